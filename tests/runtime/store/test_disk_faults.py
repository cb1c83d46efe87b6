"""A full or a broken disk at each call: nothing committed is lost, and the next start has a whole bundle.

The long form, tests/benchmarks/bench_store_faults.py, kills and fails an unmodified process at every call.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from edgekit.bundle import Bundle
from edgekit.errors import BundleError
from edgekit.runtime.store.bundle_store import Store
from tests.runtime.store import store_faults
from tests.runtime.store.store_faults import OPERATIONS, Trial, at_every_call

FAILING = frozenset({"open", "write", "flush", "fsync", "replace", "unlink", "mkdir"})
DOES: dict[str, Callable[[Store, Path], object]] = {
    "install": lambda store, bundle: store.install(bundle),
    "activate": lambda store, bundle: store.begin(),
    "commit": lambda store, bundle: store.confirm(store.state.current),
    "rollback": lambda store, bundle: store.give_up("slow", store.state.current),
}


@pytest.mark.parametrize(
    ("when", "error"), [("c_call", errno.ENOSPC), ("c_return", errno.EIO)], ids=["ENOSPC", "late EIO"]
)
@pytest.mark.parametrize("operation", DOES)
def test_a_disk_that_fails_at_any_call_costs_no_committed_bundle(
    tmp_path: Path, operation: str, when: str, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``c_return``: the call was made, and fails all the same, as a late error of the disk does."""
    # What a profiler raises counts as the app's own; here it stands for the disk.
    monkeypatch.setattr("edgekit.system.interrupts._of_the_app", lambda problem: None)
    trial = Trial(tmp_path, operation)
    bundle, root = tmp_path / "b.edgekit", trial.root
    shutil.copytree(trial.master.root, root)
    store = Store(root, trial.master.factory)
    DOES[operation](store, bundle)
    trial.after = store.state
    points, failed = 0, True
    while failed:
        shutil.rmtree(root)
        shutil.copytree(trial.master.root, root)
        store = Store(root, trial.master.factory)
        failed = _fails_at(points, when, error, partial(DOES[operation], store, bundle))
        if operation == "activate":  # the app has a bundle, whatever the disk does
            with Bundle.open(store.path) as opened:
                opened.verify_entries()
        del store
        trial.check()
        points += failed
    assert points > 5


def _fails_at(point: int, when: str, error: int, operation: Callable[[], object]) -> bool:
    """Whether there is such a call; it fails with the error."""
    left = [point]

    def fail(frame: object, event: str, function: object) -> None:
        if event == when and getattr(function, "__name__", "") in FAILING:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(error, os.strerror(error))

    sys.setprofile(fail)
    try:
        operation()
    except BundleError:
        pass
    finally:
        sys.setprofile(None)
    return left[0] < 0


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_killed_at_every_system_call_that_changes_a_folder(tmp_path: Path, operation: str) -> None:
    """The others, two thirds, leave the store as it was: the long form has them."""
    killed = at_every_call(tmp_path, operation, "signal=KILL", store_faults.FAILING)
    assert sum(ended == "killed" for _, ended in killed) > 15
