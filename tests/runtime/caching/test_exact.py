"""The exact cache: equal inputs take no run, others always do; bounded, counted, of one variant."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.caching.exact import SAMPLED, ExactCache
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled, throws
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle
from tests.fixtures.threads import in_threads

ENTRY_BYTES = 2 * X.nbytes


class Counted:
    """An engine's behaviour that counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, feeds: dict[str, Array]) -> dict[str, Array]:
        self.runs += 1
        return doubled(feeds)


@pytest.fixture
def counted(engines: Engines) -> Counted:
    counted = Counted()
    engines["ort"].behaviour["onnx"] = counted  # type: ignore[assignment]
    return counted


@pytest.fixture
def session(engines: Engines, counted: Counted) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=9.0)])
    with Session(bundle) as session:
        yield session


def test_equal_inputs_take_one_run(session: Session, counted: Counted) -> None:
    metrics = Metrics(session)
    cache = ExactCache(session, metrics=metrics)
    for _ in range(3):
        np.testing.assert_array_equal(cache.run({"x": X.copy()})["y"], 2 * X)
    assert (cache.hits, cache.misses, counted.runs, cache.size_bytes) == (2, 1, 1, ENTRY_BYTES)
    assert metrics.snapshot()["outcomes"] == {"reused": 2}
    cache.clear()
    assert cache.size_bytes == 0
    cache.run({"x": X})
    assert counted.runs == 2


def test_the_arrays_are_the_callers(session: Session) -> None:
    cache = ExactCache(session)
    mine = X.copy()
    cache.run({"x": mine})["y"][:] = 7
    mine[:] = 9  # a buffer that is filled anew
    for _ in range(2):
        found = cache.run({"x": X})["y"]
        np.testing.assert_array_equal(found, 2 * X)
        found[:] = 7
    assert cache.hits == 2


def test_bits_are_compared(session: Session, counted: Counted) -> None:
    cache = ExactCache(session)
    plus, minus = np.zeros_like(X), np.zeros_like(X)
    minus[0, 3] = -0.0
    for each in (plus, minus, plus, minus):
        assert np.signbit(cache.run({"x": each})["y"][0, 3]) == np.signbit(each[0, 3])
    assert counted.runs == 2


def test_what_no_sample_sees_is_compared(engines: Engines) -> None:
    """Two inputs of equal samples, different in one value: never one another's answer."""

    class Source:
        active = "one"
        runs = 0

        def run(self, feeds: dict[str, Array]) -> dict[str, Array]:
            self.runs += 1
            return doubled(feeds)

    source = Source()
    cache = ExactCache(source)  # type: ignore[arg-type]
    first = np.zeros((3, 64, 64), np.float32)
    other = first.copy()
    other.reshape(-1)[first.size // SAMPLED + 1] = 1
    for each in (first, other, first):
        np.testing.assert_array_equal(cache.run({"x": each})["y"], 2 * each)
    assert (source.runs, cache.hits) == (3, 0)  # the later one took the place of the one before
    assert cache.size_bytes == 2 * first.nbytes


def test_room_is_bounded_and_the_longest_unused_goes(session: Session, counted: Counted) -> None:
    cache = ExactCache(session, size_bytes=2 * ENTRY_BYTES)
    one, two, three = (np.full_like(X, n) for n in (1, 2, 3))
    for each in (one, two, one, three):
        cache.run({"x": each})
    assert (cache.size_bytes, counted.runs) == (2 * ENTRY_BYTES, 3)
    cache.run({"x": one})
    assert counted.runs == 3
    cache.run({"x": two})
    assert counted.runs == 4
    small = ExactCache(session, size_bytes=ENTRY_BYTES - 1)
    small.run({"x": one})
    assert (small.size_bytes, small.misses) == (0, 1)


def test_another_variant_has_other_answers(session: Session, engines: Engines) -> None:
    cache = ExactCache(session)
    cache.run({"x": X})
    change(session, throws)
    engines["tflite"].behaviour["lite"] = lambda feeds: {"y": 3 * feeds["x"]}
    cache.run({"x": X + 1})  # falls back
    assert cache.size_bytes == ENTRY_BYTES  # what another one answered than was asked is not kept
    np.testing.assert_array_equal(cache.run({"x": X})["y"], 3 * X)
    assert (cache.hits, cache.misses) == (0, 3)


def test_a_budgets_variants_count_too(session: Session) -> None:
    with Budget(session, Latency(40.0)) as budget:
        cache = ExactCache(budget)
        for _ in range(2):
            np.testing.assert_array_equal(cache.run({"x": X})["y"], 2 * X)
        assert (cache.hits, cache.misses) == (1, 1)


def test_what_does_not_fit_is_told_by_the_session(session: Session) -> None:
    cache = ExactCache(session)
    for feeds in ({"x": [1.0]}, {"z": X}, {"x": X[0]}):
        with pytest.raises(UsageError):
            cache.run(feeds)  # type: ignore[arg-type]
    assert cache.size_bytes == 0
    with pytest.raises(UsageError) as error:
        ExactCache(session, 0)
    assert str(error.value) == "size_bytes must be positive, not 0"


def test_threads_get_their_own_answers(session: Session) -> None:
    cache = ExactCache(session, size_bytes=3 * ENTRY_BYTES)
    wrong: list[int] = []

    def ask(seed: int) -> None:
        for n in np.random.default_rng(seed).integers(0, 6, 300):
            if cache.run({"x": np.full_like(X, n)})["y"][0, 0] != 2 * n:
                wrong.append(int(n))

    in_threads(*(partial(ask, seed) for seed in range(4)))
    assert not wrong
    assert cache.hits + cache.misses == 1200
    assert cache.size_bytes <= 3 * ENTRY_BYTES


@pytest.mark.needs_ort
def test_on_a_real_engine_a_hit_is_bit_for_bit_the_run() -> None:
    with Session(ort_bundle(good=onnx_bytes(DOUBLES)), threads=1) as session:
        cache = ExactCache(session)
        values = np.random.default_rng(0).normal(size=(1, 6)).astype(np.float32)
        first, again = cache.run({"x": values}), cache.run({"x": values})
        assert first["y"].tobytes() == again["y"].tobytes() == session.run({"x": values})["y"].tobytes()
        assert (cache.hits, cache.misses) == (1, 1)
