"""What a store gives up, and what it leaves alone: the bundle's own faults, and all that may pass."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from edgekit.errors import EngineError, MissingDependency, NoVariantError, UsageError
from edgekit.runtime.loading import unpacked_files
from edgekit.runtime.loading.probe import ProbeResult
from edgekit.runtime.store.bundle_store import Store
from edgekit.runtime.store.files import StoreFiles
from edgekit.runtime.store.state import (
    STARTS_LIMIT,
    StoreState,
    confirmed,
    given_up,
    started,
    to_start,
    uncounted,
)
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.fake_engines import Engines


def active(store: Store) -> str:
    with store.open(probe=False) as session:
        return session.active.variant


def on_disk(store: Store) -> tuple[StoreState, set[str]]:
    again = Store(store.root, store.factory)
    return again.state, {path.stem for path in (store.root / "slots").iterdir()}


# --- what is not the bundle's doing ----------------------------------------------------------------------


PASSING = {
    "no engine": MissingDependency("onnxruntime", "a test", "pip install"),
    "half an engine": ImportError("libonnxruntime.so.1: cannot open shared object file"),
    "full disk": OSError(errno.ENOSPC, "No space left on device"),
    "no handles": OSError(errno.EMFILE, "Too many open files"),
    "no memory": MemoryError(),
    "who knows": EngineError("it did not load"),  # of a bundle that was well here
}


@pytest.mark.parametrize("reason", PASSING)
def test_what_may_pass_costs_no_confirmed_bundle(store: Store, engines: Engines, reason: str) -> None:
    known, files = on_disk(store)
    engines["ort"].refused = dict.fromkeys(("a", "b", "factory"), PASSING[reason])
    for _ in range(2 * STARTS_LIMIT):
        with pytest.raises(NoVariantError):
            store.open(probe=False)
    state, left = on_disk(store)
    assert (state.current, state.starts, state.good, state.given_up) == (known.current, 0, known.good, ())
    assert left == files
    engines["ort"].refused = {}
    assert active(store) == "b"


def test_a_full_cache_costs_no_confirmed_bundle(
    store: Store, engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the cache nor the temporary folder takes a file."""
    (tmp_path / "file").touch()
    with monkeypatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(tmp_path / "file"))
        patch.setattr("tempfile.tempdir", str(tmp_path / "file"))
        patch.setattr(unpacked_files, "_process_folders", [])
        with pytest.raises(NoVariantError, match="variant factory cannot be unpacked"):
            store.open(probe=False)
    assert "cannot be unpacked" in store.notes[0]
    assert store.state.given_up == ()
    assert active(store) == "b"


def test_engines_that_are_gone_at_one_start(store: Store, engines: Engines) -> None:
    engines["ort"].missing = True
    with pytest.raises(NoVariantError, match="ort is not installed"):
        store.open(probe=False)
    with pytest.raises(MissingDependency):
        store.open(probe=False, strict=True)
    assert store.state.given_up == ()
    engines["ort"].missing = False
    assert active(store) == "b"


def test_another_bundle_stands_in_for_one_start(store: Store, engines: Engines) -> None:
    engines["ort"].refused["b"] = OSError(errno.ENOSPC, "No space left on device")
    b, a = store.state.good
    assert active(store) == "a"
    assert (store.opened, store.state.current, store.state.starts) == (a, b, 0)
    assert store.state.stood_in == ((a, 1),)
    (note,) = store.notes
    assert note.startswith(f"bundle {b[:12]} is skipped at this start: no variant of ")
    store.confirm()
    state = store.state
    assert (state.good, state.stood_in, state.current) == ((a, b), (), b)
    del engines["ort"].refused["b"]
    assert active(store) == "b"


def test_a_bundle_that_stands_in_and_crashes_gives_way_too() -> None:
    state = StoreState(active="b", good=("b", "a"))
    for _ in range(STARTS_LIMIT):  # b cannot be opened, a dies
        state = started(uncounted(started(state), "b"), skipped=["b"])
        assert to_start(state, ["b"]) == "a"
    state = started(uncounted(started(state), "b"), skipped=["b"])
    assert to_start(state, ["b"]) == ""
    assert (state.current, state.good) == ("b", ("b",))
    assert state.given_up == (("a", "3 starts ended before it was confirmed"),)


def test_an_argument_that_does_not_fit_counts_for_no_start(store: Store, engines: Engines) -> None:
    for _ in range(2 * STARTS_LIMIT):
        with pytest.raises(UsageError):
            store.open(threads=0)
    assert store.state.starts == 0
    assert store.opened is None
    assert active(store) == "b"


def test_a_missing_engine_beside_a_fault_counts_the_starts_of_what_was_never_confirmed(
    store: Store, engines: Engines, tmp_path: Path
) -> None:
    new = small_bundle([variant("new", "ort"), variant("other", "tflite")]).save(tmp_path / "new.edgekit")
    digest = store.install(new)
    engines["ort"].refused["new"] = EngineError("bad weights")
    engines["tflite"].missing = True
    for count in range(1, STARTS_LIMIT + 1):
        assert active(store) == "b"
        assert (store.state.current, store.state.starts) == (digest, count)
    assert active(store) == "b"
    assert store.state.given_up == ((digest, "3 starts ended before it was confirmed"),)


def test_states_that_cannot_be_read_are_left_as_they_are(
    store: Store, engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = on_disk(store)
    contents = [(store.root / f"state.{number}.json").read_bytes() for number in (0, 1)]

    def failing(*given: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("edgekit.system.ownership.read_own", failing)
        assert store.begin() == store.factory
    assert store.notes[0] == (
        f"{store.root} cannot be written: Input/output error; changes are kept in this process only"
    )
    assert on_disk(store) == before
    assert [(store.root / f"state.{number}.json").read_bytes() for number in (0, 1)] == contents


# --- what is ---------------------------------------------------------------------------------------------


def test_its_own_faults_give_a_confirmed_bundle_up_and_its_file_goes_later(
    store: Store, engines: Engines
) -> None:
    b, a = store.state.good
    path = store.path
    content = path.read_bytes()
    path.write_bytes(content[:-70] + bytes(70))
    assert active(store) == "a"
    state, _ = on_disk(store)
    ((digest, reason),) = state.given_up
    assert digest == b
    assert ".edgekit is damaged" in reason  # the rest is cut where the folder has a long name
    assert (state.current, state.good) == (a, (a,))
    store.begin()
    assert on_disk(store)[1] == {a}


@pytest.mark.parametrize("change", ["given up", "third start"])
def test_no_confirmed_file_is_removed_in_the_step_that_gives_it_up(
    store: Store, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    real = StoreFiles.write

    def watched(self: StoreFiles, before: StoreState, state: StoreState) -> StoreState:
        result = real(self, before, state)
        files = {path.stem for path in self.slots.iterdir()}
        steps.append((before.named <= files, before.given_up != result.given_up))
        return result

    monkeypatch.setattr(StoreFiles, "write", watched)
    if change == "given up":
        store.give_up("slow", store.state.current)
    for _ in range(4 * STARTS_LIMIT):
        store.begin()
    assert (True, True) in steps
    assert all(kept for kept, _ in steps)


def test_a_crash_of_the_probe_gives_up_and_its_want_of_memory_does_not(
    store: Store, engines: Engines, bundles: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    c = store.install(bundles["c"])
    outcome = ProbeResult("it crashed the probe process (SIGKILL)", "X", False, "machine")
    monkeypatch.setattr("edgekit.runtime.loading.probe.probe_once", lambda *given: outcome)
    with store.open() as session:
        assert session.active.variant == "b"
    assert (store.state.current, store.state.starts) == (c, 0)
    outcome = ProbeResult("it crashed the probe process (SIGFPE)", "X", True, "bundle")
    with store.open() as session:
        assert session.active.variant == "b"
    ((digest, reason),) = store.state.given_up
    assert digest == c
    assert "SIGFPE" in reason


def test_a_slot_that_is_another_bundle_is_not_opened(
    store: Store, engines: Engines, bundles: dict[str, Path]
) -> None:
    shutil.copy(bundles["c"], store.path)
    store.path.chmod(0o600)
    assert active(store) == "a"
    assert store.state.given_up[0][1] == "its file is not the bundle that was installed"


# --- what this object opened -----------------------------------------------------------------------------


def test_confirm_is_about_what_was_opened_and_not_what_was_installed_since(
    store: Store, engines: Engines, bundles: dict[str, Path]
) -> None:
    b, a = store.state.good
    with store.open(probe=False):
        c = store.install(bundles["c"])
        store.confirm()
    assert (store.state.current, store.state.good, store.state.starts) == (c, (b, a), 0)
    with store.open(probe=False) as session:
        assert session.active.variant == "c"
        assert store.state.starts == 1
        store.confirm()
    assert store.state.good == (c, b)


def test_a_bundle_that_runs_is_confirmed_though_two_were_installed_since(
    store: Store, engines: Engines, bundles: dict[str, Path], tmp_path: Path
) -> None:
    c = store.install(bundles["c"])
    with store.open(probe=False):
        for name in "de":
            last = store.install(small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit"))
        store.confirm()
    assert store.state.good[0] == c
    assert store.state.current == last
    store.give_up("slow", last)
    assert active(store) == "c"


def test_give_up_is_about_what_was_opened(store: Store, engines: Engines, bundles: dict[str, Path]) -> None:
    b, a = store.state.good
    with store.open(probe=False):
        c = store.install(bundles["c"])
        store.give_up("slow")
        assert (store.state.current, store.state.good, store.state.given_up) == (c, (a,), ((b, "slow"),))
        store.confirm()  # too late
    assert store.notes == (f"bundle {b[:12]} is not confirmed: slow",)
    assert store.state.good == (a,)


def test_where_nothing_was_opened_there_is_nothing_to_confirm(store: Store) -> None:
    for what in ("confirm()", "give_up()"):
        with pytest.raises(UsageError) as error:
            store.confirm() if what == "confirm()" else store.give_up("slow")
        assert str(error.value) == (
            f"{what} applies to the bundle that this store opened, and it has opened none\n"
            "  call open() or begin() of the same object first, or give the bundle's digest, e.g. "
            "store.state.current"
        )
    with pytest.raises(UsageError, match="'newest' is not a digest of a bundle; store"):
        store.confirm("newest")
    store.confirm("0" * 64)
    assert store.notes == ("bundle 000000000000 is not confirmed: its file is missing",)


def test_what_was_given_up_meanwhile_stays_so() -> None:
    state = given_up(StoreState(active="b", good=("b", "a")), "slow")
    assert confirmed(state, "b") == state
    assert confirmed(StoreState(active="b"), "a").good == ("a",)
    assert confirmed(StoreState(active="b", starts=2), "").starts == 2
