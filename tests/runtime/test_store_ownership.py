"""Whose the files of a store are: nothing of another user's is believed, and nobody waits for a pipe."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.errors import BundleError
from edgekit.runtime.store.bundle_store import Store
from edgekit.runtime.store.state import StoreState
from tests.fixtures.child_processes import run_python

posix = pytest.mark.skipif(os.name != "posix", reason="needs permission bits")


def on_disk(store: Store) -> tuple[StoreState, set[str]]:
    again = Store(store.root, store.factory)
    return again.state, {path.stem for path in (store.root / "slots").iterdir()}


SCRIPT = (
    "import sys\nfrom edgekit.runtime.store.bundle_store import Store\nstore = Store(*sys.argv[1:])\n"
    "print(store.begin().name)\nprint(*store.notes, sep='\\n')"
)


def begun(store: Store) -> tuple[str, str]:
    """What a new process begins with, and its notes; it must not hang."""
    done = run_python(SCRIPT, store.root, store.factory, check=True)
    name, _, notes = done.stdout.partition("\n")
    return name, notes


@posix
@pytest.mark.parametrize("what", ["lock", "state", "slot", "slots"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_links_and_pipes_are_refused_and_nobody_waits_for_them(
    store: Store, tmp_path: Path, what: str, kind: str
) -> None:
    b, a = store.state.good
    paths = {"lock": [".lock"], "state": ["state.0.json", "state.1.json"], "slots": ["slots"]}
    for name in paths.get(what, [f"slots/{b}.edgekit"]):
        path = store.root / name
        os.rename(path, tmp_path / path.name)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / path.name)
    if what == "slots" and kind == "link":  # of our own, to a folder of our own
        assert begun(store) == (f"{b}.edgekit", "\n")
        return
    name, notes = begun(store)
    assert name == {"lock": f"{b}.edgekit", "slot": f"{a}.edgekit"}.get(what, "factory.edgekit")
    why = {"pipe": "it is not a regular file", "link": "it is a symbolic link"}[kind]
    assert ("it is not a folder" if what == "slots" else why) in notes
    if what == "slot":
        assert Store(store.root, store.factory).state.given_up == ()


@posix
@pytest.mark.parametrize("name", [".", "slots", "state.1.json", "slot"])
def test_what_others_may_write_to_is_not_believed(store: Store, name: str) -> None:
    b, a = store.state.good
    before = on_disk(store)
    assert before[0].serial % 2 == 0
    path = store.root / (f"slots/{b}.edgekit" if name == "slot" else name)
    mode = path.stat().st_mode & 0o777
    assert not mode & 0o077
    path.chmod(mode | 0o020)
    began, notes = begun(store)
    assert began == {"slot": f"{a}.edgekit", "state.1.json": f"{b}.edgekit"}.get(name, "factory.edgekit")
    assert "other users can write to it" in notes
    if name in (".", "slots"):
        with pytest.raises(BundleError, match="other users can write to it\n  nothing has changed; free"):
            store.install(store.factory)
    path.chmod(mode)
    state, files = on_disk(store)
    assert (state.current, state.good, state.given_up) == (b, (b, a), ())
    assert files == before[1]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("name", [".", "slots", "state.0.json", "slot"])
def test_what_is_another_users_is_not_believed(store: Store, name: str) -> None:
    b, a = store.state.good
    path = store.root / (f"slots/{b}.edgekit" if name == "slot" else name)
    os.chown(path, 12345, 12345)
    began, notes = begun(store)
    assert began != f"{b}.edgekit" or name == "state.0.json"
    assert "it belongs to user 12345" in notes
    os.chown(path, 0, 0)
    state = Store(store.root, store.factory).state  # that of one file costs its step, as if it were torn
    assert (state.current, state.given_up) == (b, ())
    assert state.good == (b, a) or name == "state.0.json"


@posix
@pytest.mark.parametrize("mask", [0o000, 0o002, 0o022])
def test_a_store_believes_its_own_files_under_every_umask(
    tmp_path: Path, bundles: dict[str, Path], mask: int
) -> None:
    before = os.umask(mask)
    try:
        store = Store(tmp_path / "new" / "store", bundles["factory"])
        digest = store.install(bundles["a"])
        assert store.begin().stem == digest
        store.confirm()
        assert store.notes == ()
    finally:
        os.umask(before)
