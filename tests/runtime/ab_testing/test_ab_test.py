"""A/B: a key keeps its variant, answers of a fallback do not count, the faster one is told."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from edgekit.errors import EngineError, UsageError
from edgekit.runtime import Session
from edgekit.runtime.ab_testing.ab_test import ABTest, hash_fraction
from edgekit.runtime.ab_testing.sequential_test import LEAST, step
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Engines, change, doubled, throws
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle


@pytest.fixture
def session(engines: Engines) -> Iterator[Session]:
    bundle = small_bundle([variant("one", "ort", p50_ms=7.0), variant("two", "tflite", p50_ms=9.0)])
    with Session(bundle, threads=1) as session:
        yield session


def spins(seconds: float) -> object:
    """An engine that takes so long, whatever else the machine does."""

    def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
        end_s = time.perf_counter() + seconds
        while time.perf_counter() < end_s:
            pass
        return doubled(feeds)

    return run


def test_a_key_keeps_its_variant_and_the_split_is_fair(session: Session) -> None:
    keys = [f"user-{n}" for n in range(4000)]
    with ABTest(session, "two", share=0.25) as test, ABTest(session, "two", share=0.25) as again:
        found = [test.gets(key) for key in keys]
        assert found == [again.gets(key) for key in keys]
        assert set(found) == {"one", "two"}
        assert abs(found.count("two") - 1000) < 4 * (4000 * 0.25 * 0.75) ** 0.5
    with ABTest(session, "two", share=0.25, salt="next experiment") as other:
        both = sum(other.gets(key) == one == "two" for key, one in zip(keys, found, strict=True))
    assert abs(both - 250) < 4 * (4000 / 16) ** 0.5  # independent of the first one
    places = np.sort([hash_fraction(key, "") for key in keys])
    assert np.abs(places - np.arange(4000) / 4000).max() < 1.63 / 4000**0.5  # Kolmogorov, 1 %


def test_who_gets_it_is_answered_by_it(session: Session, engines: Engines) -> None:
    engines["tflite"].behaviour["two"] = lambda feeds: {"y": 3 * feeds["x"]}
    with ABTest(session, "two") as test:
        for n in range(40):
            factor = 3 if test.gets(str(n)) == "two" else 2
            np.testing.assert_array_equal(test.run({"x": X}, str(n))["y"], factor * X)
        assert sum(test.latency.answers) == 40
    assert engines["tflite"].closed == 1
    np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)


def test_the_faster_one_is_told(session: Session, engines: Engines) -> None:
    change(session, spins(0.0004))  # type: ignore[arg-type]
    engines["tflite"].behaviour["two"] = spins(0.0002)  # type: ignore[assignment]
    with ABTest(session, "two") as test:
        assert str(test.latency) == f"two against one: 0 and 0 requests; {LEAST} each are needed"
        assert test.latency.winner == ""
        for n in range(400):
            test.run({"x": X}, str(n))
        verdict = test.latency
    assert verdict.winner == "two"
    assert verdict.p < 0.01
    assert verdict.low < verdict.difference < verdict.high < 0
    assert str(verdict).endswith("two is better")


def test_the_apps_own_measure(session: Session) -> None:
    random = np.random.default_rng(0)
    with ABTest(session, "two") as test:
        for n in range(2000):
            key = str(n)
            test.score(key, random.random() < (0.9 if test.gets(key) == "one" else 0.8))
        verdict = test.scores
        assert verdict.winner == "one"  # more is better
        assert -0.2 < verdict.low < -0.1 < verdict.high < 0
        assert test.latency.answers == (0, 0)
        with pytest.raises(UsageError) as error:
            test.score("x", 1.5)
        assert str(error.value) == "a score is a number from 0 to 1, not 1.5"


def test_answers_of_a_fallback_do_not_count(session: Session, engines: Engines) -> None:
    engines["tflite"].behaviour["two"] = failing = Failing()
    with ABTest(session, "two") as test:
        test.run({"x": X}, "a")
        failing.fails = True
        for n in range(20):
            np.testing.assert_array_equal(test.run({"x": X}, str(n))["y"], 2 * X)
        counted = sum(test.latency.answers)
        test.run({"x": X}, "b")
        test.score("b", 1.0)
        assert sum(test.latency.answers) == counted < 21
        assert test.scores.answers == (0, 0)
        assert test.notes == ("two failed, one runs its requests: RuntimeError: kernel died",)


class Failing:
    fails = False

    def __call__(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return throws(feeds) if self.fails else doubled(feeds)


def test_a_session_that_fell_back_is_noted(session: Session, engines: Engines) -> None:
    with ABTest(session, "two") as test:
        change(session, throws)
        keys = iter(str(n) for n in range(100))
        test.run({"x": X}, next(key for key in keys if test.gets(key) == "one"))
        assert test.notes == ("the session fell back to two",)


def test_what_does_not_fit_is_refused(session: Session, engines: Engines) -> None:
    with pytest.raises(UsageError) as error:
        ABTest(session, "one")
    assert str(error.value) == "one is the session's own variant; name another one of new bundle"
    for wrong in ({"share": 0.0}, {"share": 1.0}, {"alpha": 0.0}):
        with pytest.raises(UsageError, match=r"^share and alpha must be above 0 and below 1, not "):
            ABTest(session, "two", **wrong)  # type: ignore[arg-type]
    engines["tflite"].refused["two"] = EngineError("no")
    with pytest.raises(EngineError, match=r"^no$"):
        ABTest(session, "two")


@pytest.mark.needs_ort
def test_equal_variants_of_a_real_engine_are_not_told_apart() -> None:
    """Their outputs are the session's; of a model of some microseconds the way to it is most of the time."""
    good = onnx_bytes(DOUBLES)
    with Session(ort_bundle(one=good, two=good), threads=1) as session, ABTest(session, "two") as test:
        for n in range(300):
            np.testing.assert_array_equal(test.run({"x": X}, str(n))["y"], 2 * X)
        assert sum(test.latency.answers) == 300
        assert abs(test.latency.difference) < 1


def test_a_difference_of_less_than_a_hundredth_is_none(session: Session) -> None:
    """However certain it is."""
    random = np.random.default_rng(0)
    for slower, winner in ((0.005, ""), (0.03, "one")):
        with ABTest(session, "two") as test:
            for log_s in random.normal(-4, 0.02, 4000):
                test._times = step(step(test._times, False, log_s), True, log_s + slower)
            assert test.latency.p < 0.05
            assert test.latency.winner == winner
