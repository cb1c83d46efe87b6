"""A process forked from one with an open outbox leaves it alone, however it ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.errors import UsageError
from edgekit.runtime.outbox.outbox import Outbox
from tests.fixtures.child_processes import run_python
from tests.runtime.outbox.outbox_parts import ListSink, put_all, quick

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
FORKER = """
import gc, os, sys
from edgekit.runtime.outbox.outbox import Outbox
with Outbox(sys.argv[1], commit_s=0.0) as outbox:
    assert all(outbox.put(b"before", key=f"before{{n}}").wait(20) for n in range(20))
    child = os.fork()
    if child == 0:
        {end}
    assert os.waitpid(child, 0)[1] == 0
    log = os.path.join(sys.argv[1], "rows-1.db-wal")
    assert os.path.exists(log), "the log is gone"
    assert all(outbox.put(b"after", key=f"after{{n}}").wait(20) for n in range(20))
    os._exit(0)  # as a kill: nothing is put in order
"""


@pytest.mark.parametrize(
    "end",
    [
        "sys.exit(0)",  # it leaves the `with`, and Python frees all
        "outbox.close(); os._exit(0)",
        "outbox._store.close(); del outbox._store; gc.collect(); os._exit(0)",
        "outbox = None; gc.collect(); sys.exit(0)",
    ],
)
def test_what_the_parent_stored_is_there_after_the_child_ended(tmp_path: Path, end: str) -> None:
    done = run_python(FORKER.format(end=end), tmp_path)
    assert done.returncode == 0, done.stderr
    sink = ListSink()
    with quick(tmp_path) as outbox:
        outbox.deliver(sink)
        assert outbox.counts()["rebuilt"] == 0
    assert sink.keys == [f"{when}{n}" for when in ("before", "after") for n in range(20)]


def test_a_child_is_told_so(tmp_path: Path) -> None:
    with Outbox(tmp_path, commit_s=5.0) as outbox:
        receipt = outbox.put(b"row", key="row")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            for act in (
                lambda: outbox.put(b"child"),
                outbox.flush,
                outbox.counts,
                outbox.quarantined,
                outbox.release,
                lambda: outbox.deliver(ListSink()),
                receipt.wait,
            ):
                try:
                    act()
                except UsageError as problem:
                    os.write(writer, f"{problem}\n".encode())
            os._exit(0)
        os.close(writer)
        said = os.fdopen(reader).read().splitlines()
        os.waitpid(child, 0)
        assert said == 7 * [
            f"the outbox was opened by process {os.getpid()}, and this is {child}, forked from it, where "
            "nothing is stored or delivered; open one here, with a folder of its own"
        ]


def test_the_folder_stays_the_parents(tmp_path: Path) -> None:
    """A lock that goes with the first file that a process closes would be gone now."""
    with quick(tmp_path) as outbox:
        put_all(outbox, "a")
        child = os.fork()
        if child == 0:
            outbox.close()
            os._exit(0)
        os.waitpid(child, 0)
        other = "import sys; from edgekit.runtime.outbox.outbox import Outbox; Outbox(sys.argv[1])"
        done = run_python(other, tmp_path)
        assert "another process has it open; give each its own folder" in done.stderr
