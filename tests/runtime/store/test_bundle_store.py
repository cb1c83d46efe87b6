"""Whatever happens to a store, at whatever moment: the next start has a bundle to run, a known one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.errors import BundleError, EngineError, NoVariantError, UsageError
from edgekit.runtime.loading.probe import ProbeResult
from edgekit.runtime.store.bundle_store import Store
from edgekit.runtime.store.files import encoded
from edgekit.runtime.store.state import (
    STARTS_LIMIT,
    StoreState,
    confirmed,
    given_up,
    installed,
    started,
)
from edgekit.system.atomic_files import write_atomically
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines

NAMES = "abcd"


@pytest.fixture
def bundles(tmp_path: Path) -> dict[str, Path]:
    """Bundles of one variant each, which is called as they are; ``factory`` is one of them."""
    return {
        name: small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit")
        for name in ("factory", *NAMES)
    }


@pytest.fixture
def store(tmp_path: Path, bundles: dict[str, Path]) -> Store:
    return Store(tmp_path / "store", bundles["factory"])


def name_of(path: Path) -> str:
    """The variant of a bundle, every byte of which is checked."""
    with Bundle.open(path) as bundle:
        bundle.verify_entries()
        return bundle.variants[0].name


def slots(store: Store) -> list[str]:
    return sorted(name_of(path) for path in (store.root / "slots").glob("*.edgekit"))


def test_the_third_crash_goes_back_to_what_was_good_and_in_the_end_to_the_factory(
    store: Store, bundles: dict[str, Path]
) -> None:
    assert name_of(store.begin()) == "factory"
    store.confirm()
    for name in "ab":
        store.install(bundles[name])
        assert name_of(store.begin()) == name
        store.confirm()
    store.install(bundles["c"])
    ran = [name_of(store.begin()) for _ in range(4 * STARTS_LIMIT)]  # each dies before it confirms
    assert ran == ["c"] * 3 + ["b"] * 3 + ["a"] * 3 + ["factory"] * 3
    assert [reason for _, reason in store.state.given_up] == ["3 starts ended before it was confirmed"] * 3
    assert slots(store) == []  # the last went as the second start of the factory was counted
    assert {name_of(store.begin()) for _ in range(20)} == {"factory"}
    store.install(bundles["c"])  # what was given up gets another chance when it is installed again
    assert name_of(store.begin()) == "c"


def test_a_confirmed_bundle_stays(store: Store, bundles: dict[str, Path]) -> None:
    store.install(bundles["a"])
    for _ in range(10):
        assert name_of(store.begin()) == "a"
        store.confirm()
    assert store.path == store.begin()
    assert slots(store) == ["a"]


def test_old_bundles_are_removed(store: Store, bundles: dict[str, Path]) -> None:
    for name in NAMES:
        store.install(bundles[name])
        store.begin()
        store.confirm()
    assert slots(store) == ["b", "c", "d"]  # the state before names b
    store.begin()
    assert slots(store) == ["c", "d"]
    (store.root / "slots" / ".draft.part").touch()
    (store.root / ".state.0.json.12.part").touch()
    store.begin()
    assert slots(store) == ["c", "d"]
    assert not list(store.root.rglob("*.part"))


def test_a_bundle_that_does_not_load_gives_way_at_once(
    store: Store, bundles: dict[str, Path], engines: Engines
) -> None:
    store.install(bundles["a"])
    store.begin()
    store.confirm()
    store.install(bundles["b"])
    engines["ort"].refused["b"] = EngineError("bad weights")
    with store.open(probe=False) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.variant == "a"
    ((_, reason),) = store.state.given_up
    assert "bad weights" in reason
    store.install(bundles["c"])
    path = store.path
    content = path.read_bytes()
    path.write_bytes(content[:-70] + bytes(70))
    with store.open(probe=False) as session:
        assert session.active.variant == "a"
    store.path.unlink()
    with store.open(probe=False) as session:
        assert session.active.variant == "factory"
    assert store.state.given_up[-1][1] == "its file is missing"
    engines["ort"].refused["factory"] = EngineError("no")
    with pytest.raises(NoVariantError):
        store.open(probe=False)
    with pytest.raises(UsageError):
        store.open(threads=0)


def test_what_was_never_confirmed_is_probed(
    store: Store, bundles: dict[str, Path], engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    probed = []

    def probe(bundle: Bundle, variant: Variant, threads: int) -> ProbeResult:
        probed.append(variant.name)
        return ProbeResult("")

    monkeypatch.setattr("edgekit.runtime.loading.probe.probe_once", probe)
    store.open().close()
    store.install(bundles["a"])
    store.open().close()
    store.confirm()
    store.open().close()
    assert probed == ["a"]


def test_a_damaged_bundle_is_not_installed(store: Store, bundles: dict[str, Path]) -> None:
    store.install(bundles["a"])
    known = store.state
    content = bundles["b"].read_bytes()
    bundles["b"].write_bytes(content[:-66] + b"?" + content[-65:])
    with pytest.raises(BundleError):
        store.install(bundles["b"])
    assert (store.state, slots(store)) == (known, ["a"])


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("damage", [lambda c: c[:-3], lambda c: b"", lambda c: c.replace(b"starts", b"s")])
def test_one_torn_state_loses_a_step_and_no_bundle(
    store: Store, bundles: dict[str, Path], number: int, damage: Callable[[bytes], bytes]
) -> None:
    store.install(bundles["a"])
    store.confirm(store.state.current)
    for _ in range(2):
        store.begin()
    path = store.root / f"state.{number}.json"
    path.write_bytes(damage(path.read_bytes()))
    assert name_of(store.begin()) == "a"
    assert store.state.starts == 2 + number  # number 0 held the second start
    for number in (0, 1):
        (store.root / f"state.{number}.json").write_bytes(b"{}")
    assert name_of(store.begin()) == "factory"


def test_a_disk_that_takes_nothing_costs_the_count_and_not_the_app(
    store: Store, bundles: dict[str, Path], engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.install(bundles["a"])
    store.confirm(store.state.current)
    store.install(bundles["b"])

    def full(*given: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("edgekit.runtime.store.files.write_atomically", full)
        assert name_of(store.begin()) == "b"
        assert store.notes == (
            f"{store.root} cannot be written: No space left on device; changes are kept in this process only",
        )
        engines["ort"].refused["b"] = EngineError("bad weights")
        with store.open(probe=False) as session:
            assert session.active.variant == "a"
        with pytest.raises(BundleError, match="No space left on device\n  nothing has changed; free"):
            store.install(bundles["c"])
    assert name_of(store.begin()) == "a"
    assert Store(store.root, store.factory).state == store.state
    file = store.root.with_name("file")
    file.touch()
    assert name_of(Store(file / "store", store.factory).begin()) == "factory"


def test_a_state_from_elsewhere_names_no_file_outside(store: Store) -> None:
    store.begin()
    write_atomically(store.root / "state.0.json", [encoded(StoreState(99, "../../../etc/passwd"))])
    assert name_of(store.begin()) == "factory"


def test_10_000_histories_end_on_a_known_bundle() -> None:
    """The pure half: starts, crashes, installations and confirmations in any order."""
    draw = random.Random(7)
    for _ in range(10_000):
        state, known = StoreState(), {""}
        unconfirmed = 0
        for _ in range(draw.randrange(1, 30)):
            move = draw.choice(["install", "start", "start", "start", "confirm", "give up"])
            previous = state
            if move == "install":
                digest = draw.choice("abcde")
                known.add(digest)
                state = installed(state, digest)
                unconfirmed = 0 if state.staged else state.starts
            elif move == "start":
                state = started(state)
                unconfirmed = unconfirmed + 1 if state.current == previous.current else 1
                assert state.current == "" or unconfirmed <= STARTS_LIMIT
                assert state.starts == unconfirmed or state.current == ""
            elif move == "confirm":
                state, unconfirmed = confirmed(state), 0
                assert state.good[:1] == ((state.current,) if state.current else state.good[:1])
            else:
                state = given_up(state, "slow")
                unconfirmed = state.starts
                assert state.current != previous.current or state.current == ""
                assert previous.current not in state.good or previous.current == ""
            assert state.current in known
            assert len(set(state.good)) == len(state.good) <= 2


@pytest.mark.parametrize("digest", ["newest", "../" * 22, 7])
def test_what_is_no_digest_is_refused(store: Store, digest: Any) -> None:
    for act in (store.confirm, partial(store.give_up, "it does not work")):
        with pytest.raises(UsageError, match=r"of a bundle; store\.state lists the known ones"):
            act(digest)
