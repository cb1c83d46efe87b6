"""The life of an update: staged, candidate, committed, kept as the previous one; and what ends it before."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import BundleError, UsageError
from edgekit.runtime import Metrics
from edgekit.runtime.store.bundle_store import HealthWindow, Store
from edgekit.runtime.store.state import StoreState
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, small_manifest, variant
from tests.fixtures.fake_engines import Engines
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write

VERSIONED = (1, 2, 3, 4)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watched(store: Store, clock: Clock) -> Store:
    """Bundles a and b are committed; a candidate needs a minute and 10 answers."""
    return Store(store.root, store.factory, window=HealthWindow(60.0, 10), clock=clock)


@pytest.fixture
def versions(tmp_path: Path) -> dict[int, Path]:
    """Bundles with a version in their manifest."""
    paths = {}
    for number in VERSIONED:
        bundle = small_bundle([variant(f"v{number}", "ort")])
        entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in bundle.manifest["entries"]}
        manifest = {**small_manifest([variant(f"v{number}", "ort")]), "extensions": {"version": number}}
        paths[number] = Bundle.create(manifest, entries).save(tmp_path / f"v{number}.edgekit")
    return paths


def committed(store: Store, path: Path, **options: Any) -> str:
    digest = store.install(path, **options)
    store.begin()
    store.confirm()
    return digest


def wrong(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": -3 * feeds["x"]}


def test_installing_changes_nothing_that_runs_and_the_next_start_takes_it(
    store: Store, bundles: dict[str, Path]
) -> None:
    b, a = store.state.good
    c = store.install(bundles["c"])
    state = store.state
    assert (state.active, state.staged, state.current) == (b, c, c)
    assert [state.phase(digest) for digest in (c, b, a, "")] == ["staged", "committed", "previous", "factory"]
    assert store.begin().stem == c
    state = store.state
    assert (state.active, state.staged, state.candidate, state.phase(c)) == (c, "", c, "candidate")
    store.confirm()
    state = store.state
    assert (state.good, state.candidate, state.phase(b)) == ((c, b), "", "previous")


def test_a_staged_bundle_that_is_given_up_leaves_the_candidate(
    store: Store, bundles: dict[str, Path], tmp_path: Path
) -> None:
    c = store.install(bundles["c"])
    store.begin()
    d = store.install(small_bundle([variant("d", "ort")]).save(tmp_path / "d.edgekit"))
    store.give_up("not wanted", d)
    assert (store.state.active, store.state.starts, store.state.phase(d)) == (c, 1, "given up")
    assert store.begin().stem == c


def test_a_candidate_is_committed_after_its_window_and_not_before(
    watched: Store, bundles: dict[str, Path], engines: Engines, clock: Clock
) -> None:
    c = watched.install(bundles["c"])
    with watched.open(probe=False) as session:
        metrics = Metrics(session)
        assert watched.observe(metrics) == "candidate"
        for _ in range(10):
            metrics.run({"x": X})
        assert watched.observe(metrics) == "candidate"  # enough answers, too soon
        clock.now_s = 59.0
        engines["ort"].behaviour["c"] = wrong
        metrics.answered("failed")
        assert watched.observe(metrics) == "candidate"
        clock.now_s = 61.0
        assert watched.observe(metrics) == "candidate"  # a failure begins the window anew
        clock.now_s = 120.0
        assert watched.observe(metrics) == "candidate"  # long enough, no answers in it
        for _ in range(10):
            metrics.run({"x": X})
        assert watched.observe(metrics) == "committed"
        assert Store(watched.root, watched.factory).state.good[0] == c
        assert watched.observe(metrics) == "committed"


def test_a_candidate_that_fails_more_than_the_model_before_is_rolled_back(
    watched: Store, bundles: dict[str, Path], engines: Engines, clock: Clock
) -> None:
    b = watched.state.good[0]
    with watched.open(probe=False) as session:
        metrics = Metrics(session)
        watched.observe(metrics)
        for _ in range(200):
            metrics.run({"x": X})
            assert watched.observe(metrics) == "committed"
    assert watched.state.answers == ((b, 200, 0, 0),)
    watched.install(bundles["c"])
    with watched.open(probe=False) as session:
        metrics = Metrics(session)
        seen = []
        for _ in range(4):
            seen.append(watched.observe(metrics))
            metrics.answered("failed")
        assert seen[:3] == ["candidate"] * 3
        assert watched.observe(metrics) == "rolled back"
        assert watched.observe(metrics) == "rolled back"
    why = watched.state.given_up[0][1]
    assert why.endswith("answers failed or used a fallback; of the bundle before 0 of 200")
    assert watched.begin().stem == b


RED = np.full((32, 32, 3), (255, 0, 0), np.uint8)
DARK = np.zeros_like(RED)


@pytest.fixture(scope="module")
def finders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same detector with the right card, with another title, and with a wrong scale: all are verified."""
    folder = tmp_path_factory.mktemp("finders")
    model, card = write(folder, COLOUR_FINDER), folder / "card.toml"
    paths = {}
    for name, text in {
        "right": COLOUR_CARD,
        "renamed": COLOUR_CARD.replace("Colours", "Colours 2"),
        "wrong": COLOUR_CARD.replace("[255, 255, 255]", "[25500, 25500, 25500]"),
    }.items():
        card.write_text(text)
        built = edgekit.build(model, targets=["ort"], card=card)
        assert built.variants[0].status.startswith("verified")
        paths[name] = built.save(folder / f"{name}.edgekit")
    return paths


@pytest.fixture
def finder(tmp_path: Path, finders: dict[str, Path], clock: Clock) -> Store:
    """The factory's bundle has found something in 50 of 100 frames; a candidate has a day to do so."""
    window = HealthWindow(60.0, 10, empty_seconds=86_400.0)
    store = Store(tmp_path / "finder", finders["right"], window=window, clock=clock)
    with store.open() as session:
        predict_on(store, Metrics(session), *[RED, DARK] * 50)
    assert store.state.answers == (("", 100, 0, 50),)
    return store


def predict_on(store: Store, metrics: Metrics, *frames: Array) -> str:
    store.observe(metrics)
    for frame in frames:
        metrics.predict(frame)
    return store.observe(metrics)


@pytest.mark.needs_ort
def test_a_candidate_that_finds_nothing_where_the_one_before_did_is_held_back_and_rolled_back_after_a_day(
    finder: Store, finders: dict[str, Path], clock: Clock
) -> None:
    wrong = finder.install(finders["wrong"])
    why = "it found nothing; the bundle before did in 50 of 100 answers"
    with finder.open() as session:
        metrics = Metrics(session)
        finder.observe(metrics)
        clock.now_s = 3600.0
        assert predict_on(finder, metrics, *[RED] * 50) == "candidate"
        assert metrics.counts[3:] == (0, 50)
        assert finder.notes == (f"bundle {wrong[:12]} is held back: {why}",)
        clock.now_s = 86_400.0
        assert finder.observe(metrics) == "rolled back"
    assert finder.state.given_up == ((wrong, why),)
    assert finder.begin() == finders["right"]


@pytest.mark.needs_ort
def test_a_candidate_that_saw_nothing_but_the_night_is_committed_in_the_morning(
    finder: Store, finders: dict[str, Path], clock: Clock
) -> None:
    finder.install(finders["renamed"])
    with finder.open() as session:
        metrics = Metrics(session)
        finder.observe(metrics)
        clock.now_s = 8 * 3600.0
        assert predict_on(finder, metrics, *[DARK] * 50) == "candidate"
        assert predict_on(finder, metrics, RED) == "committed"


@pytest.mark.needs_ort
def test_where_the_one_before_found_nothing_a_candidate_may_find_nothing(
    tmp_path: Path, finders: dict[str, Path], clock: Clock
) -> None:
    store = Store(tmp_path / "new", finders["right"], window=HealthWindow(60.0, 10), clock=clock)
    with store.open() as session:
        predict_on(store, Metrics(session), *[DARK] * 100)
    store.install(finders["wrong"])
    with store.open() as session:
        metrics = Metrics(session)
        store.observe(metrics)
        clock.now_s = 60.0
        assert predict_on(store, metrics, *[RED] * 10) == "committed"


def test_the_factory_s_bundle_is_observed_without_effect(
    tmp_path: Path, bundles: dict[str, Path], engines: Engines
) -> None:
    store = Store(tmp_path / "new", bundles["factory"])
    with pytest.raises(UsageError, match=r"observe\(\) applies to the bundle that this store opened"):
        store.observe(None)  # type: ignore[arg-type]
    with store.open(probe=False) as session:
        metrics = Metrics(session)
        metrics.answered("failed")
        assert store.observe(metrics) == "committed"


def test_a_candidate_with_wrong_golden_outputs_never_answers(
    store: Store, bundles: dict[str, Path], engines: Engines
) -> None:
    evidence = {"limits_db": {"y": 30.0}}
    bad = variant("bad", "ort")._replace(evidence=evidence)
    path = small_bundle([bad]).save(bundles["c"].with_name("bad.edgekit"))
    digest = store.install(path)
    engines["ort"].behaviour["bad"] = wrong
    with store.open(probe=False) as session:
        assert session.active.variant == "b"
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
    reason = dict(store.state.given_up)[digest]
    assert reason.startswith("output y of a golden vector: SNR -")
    committed = store.install(path)
    engines["ort"].behaviour.clear()
    with store.open(probe=False):
        store.confirm()
    engines["ort"].behaviour["bad"] = wrong
    with store.open(probe=False) as session:  # checked as a candidate only: each start is to be quick
        assert session.bundle.digest == committed


HOLD = (
    "import sys; from edgekit.runtime.store.bundle_store import Store; store = Store(*sys.argv[1:])\n"
    "print(store.begin().stem, flush=True); sys.stdin.readline(); store.confirm(); print(store.state.good[0])"
)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no open file anyway")
def test_what_another_process_has_open_is_not_removed(
    store: Store, bundles: dict[str, Path], tmp_path: Path
) -> None:
    c = store.install(bundles["c"])
    command = [sys.executable, "-c", HOLD, str(store.root), str(store.factory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline().strip() == c
        for name in "de":
            store.install(small_bundle([variant(name, "ort")]).save(tmp_path / f"{name}.edgekit"))
            for _ in range(2):
                store.begin()
            store.confirm()
        assert c not in store.state.named
        assert store.slot(c).exists()
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline().strip() == c
    assert store.state.good[0] == c


# --- versions --------------------------------------------------------------------------------------------


def test_what_is_older_than_a_committed_bundle_is_refused_unless_it_is_kept(
    tmp_path: Path, bundles: dict[str, Path], versions: dict[int, Path]
) -> None:
    store = Store(tmp_path / "new", bundles["factory"])
    two, three = committed(store, versions[2]), committed(store, versions[3])
    before = store.state
    with pytest.raises(BundleError) as error:
        store.install(versions[1])
    assert str(error.value) == (
        f"{versions[1]} cannot be installed\n"
        "  its version is 1, but version 3 was already committed\n"
        "  nothing has changed; install a newer bundle"
    )
    with pytest.raises(BundleError, match="it has no version, but version 3 was already committed"):
        store.install(bundles["a"])
    assert store.state == before
    assert store.install(versions[2]) == two  # the previous one is kept
    store.begin()
    store.confirm()
    assert (store.state.minimum, store.state.good) == (3, (two, three))
    four = store.install(versions[4])
    store.begin()
    store.give_up("slow")  # it was never committed, so it bars nothing
    assert store.state.minimum == 3
    assert store.install(bundles["a"], version=3) != four


def test_a_version_is_a_whole_number_and_the_bundle_s_own(
    tmp_path: Path, bundles: dict[str, Path], versions: dict[int, Path]
) -> None:
    store = Store(tmp_path / "new", bundles["factory"])
    with pytest.raises(UsageError, match="has version 1, but 2 was passed: leave it out"):
        store.install(versions[1], version=2)
    with pytest.raises(UsageError, match="a whole number of 0 or more, not -1"):
        store.install(bundles["a"], version=-1)
    assert not store.root.exists()


# --- several models --------------------------------------------------------------------------------------


def test_models_of_one_store_have_their_own_states_and_share_slots(
    tmp_path: Path, bundles: dict[str, Path]
) -> None:
    root = tmp_path / "models"
    stores = {name: Store(root, bundles["factory"], name=name) for name in ("detector", "reader")}
    for store in stores.values():
        committed(store, bundles["a"])
    assert len(list((root / "slots").iterdir())) == 1
    detector, reader = stores.values()
    for name in "bc":
        committed(detector, bundles[name])
    detector.begin()
    a = reader.state.active
    assert a not in detector.state.named
    assert reader.begin().stem == a  # the other model's changes did not remove it
    assert reader.slot(a).exists()
    assert Store(root, bundles["factory"]).state == StoreState()
    with pytest.raises(UsageError, match=r"'\.\./x' cannot name a model in a store: use 1 to 64 lower-case"):
        Store(root, bundles["factory"], name="../x")


def test_a_store_without_its_factory_s_bundle_installs_and_starts_nothing(
    store: Store, bundles: dict[str, Path], tmp_path: Path
) -> None:
    tool = Store(store.root, None)
    assert tool.begin().stem == store.state.active
    with pytest.raises(UsageError, match=r"the factory bundle is unknown\n  pass its path"):
        Store(tmp_path / "empty", None).begin()
