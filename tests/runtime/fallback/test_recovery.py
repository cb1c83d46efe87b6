"""What failed while it ran comes back after a cool-down, if it is sound then, and does not flap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from edgekit.errors import NoVariantError
from edgekit.runtime import Fallback, Session
from edgekit.runtime.fallback.policy import FIRST_COOLDOWN_S, LONGEST_COOLDOWN_S, Cooldown, after_failure
from edgekit.tensor_spec import Array
from tests.fixtures.bundles import X, small_bundle, variant
from tests.fixtures.fake_engines import Behaviour, Engines, change, doubled, throws


class Clock:
    """A clock that only moves when it is told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("edgekit.runtime.fallback.variant_health.monotonic", clock.monotonic)
    return clock


@pytest.fixture
def session(engines: Engines, clock: Clock) -> Iterator[Session]:
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    with Session(bundle) as session:
        yield session


def answer(session: Session, x: Array = X) -> None:
    np.testing.assert_array_equal(session.run({"x": x})["y"], 2 * x)


def until(session: Session, reached: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not reached():
        assert time.monotonic() < end
        answer(session)


def test_it_serves_again_after_the_cool_down(session: Session, clock: Clock, engines: Engines) -> None:
    change(session, throws)
    answer(session)
    clock.now_s += FIRST_COOLDOWN_S - 1
    answer(session)
    assert (session.active.variant, engines["ort"].loaded) == ("lite", ["onnx"])
    clock.now_s += 1
    until(session, lambda: session.active.variant == "onnx")
    assert session.fallbacks == ()
    assert session.history == (
        Fallback("onnx", "lite", "RuntimeError: kernel died", "10 ms instead of 7 ms (+43 %)"),
        Fallback(
            "lite",
            "onnx",
            "it works again, after: RuntimeError: kernel died",
            "7 ms instead of 10 ms (-30 %)",
        ),
    )
    assert engines["tflite"].closed == 1
    assert session.state == "ready"


def nan(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": np.full((1, 6), np.nan, np.float32)}


def noise(feeds: Mapping[str, Array]) -> dict[str, Array]:
    return {"y": -2 * feeds["x"]}


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        (throws, "RuntimeError: kernel died"),
        (
            nan,
            "6 of 6 values of output y are NaN or infinite; the input or this variant's arithmetic is at "
            "fault: try another engine or precision",
        ),
    ],
)
def test_what_still_fails_on_the_golden_vector_does_not_serve(
    session: Session, clock: Clock, engines: Engines, behaviour: Behaviour, reason: str
) -> None:
    change(session, behaviour)
    answer(session)
    engines["ort"].behaviour["onnx"] = behaviour
    loaded = engines["ort"].loaded
    for tries, cooldown_s in ((2, 30), (3, 60), (4, 120), (5, 240)):
        clock.now_s += cooldown_s - 1
        answer(session)
        assert not session._chain._retries.waiting
        assert len(loaded) == tries - 1
        clock.now_s += 1

        def tried(tries: int = tries) -> bool:
            return len(loaded) == tries and not session._chain._retries.waiting

        until(session, tried)
        assert session.active.variant == "lite"
        assert [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks] == [("onnx", "lite", reason)]
    assert engines["ort"].closed == 5


def test_garbage_does_not_serve_again(engines: Engines, clock: Clock) -> None:
    limit = {"accuracy": {"y": {"limit_db": 100.0}}, "timing": {"p50_ms": 1.0}}

    bundle = small_bundle([variant("onnx", "ort")._replace(evidence=limit), variant("lite", "tflite")])
    with Session(bundle) as session:
        change(session, throws)
        answer(session)
        engines["ort"].behaviour["onnx"] = noise
        clock.now_s += FIRST_COOLDOWN_S
        said = "output y of a golden vector: SNR -6.0 dB; the limit is 50.0 dB"
        until(session, lambda: session.fallbacks[0].reason == said)
        assert session.active.variant == "lite"


def test_a_variant_that_fails_soon_again_waits_twice_as_long(session: Session, clock: Clock) -> None:
    for cooldown_s in (30, 60, 120):
        change(session, throws)
        answer(session)
        clock.now_s += cooldown_s - 1
        answer(session)
        assert not session._chain._retries.waiting
        assert session.active.variant == "lite"
        clock.now_s += 1
        until(session, lambda: session.active.variant == "onnx")
    assert len(session.history) == 6


def test_cool_downs_grow_end_and_are_forgiven() -> None:
    cooldown, waits = None, []
    for _ in range(2000):
        cooldown = after_failure(cooldown, 50.0)
        waits.append(cooldown.until_s - 50)
    assert waits[:9] == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert waits[-1] == LONGEST_COOLDOWN_S
    assert after_failure(Cooldown(8, 0, recovered_s=100), 100 + LONGEST_COOLDOWN_S).failures == 1
    assert after_failure(Cooldown(8, 0, recovered_s=100), 99 + LONGEST_COOLDOWN_S).failures == 9


def test_when_nothing_else_is_left_what_failed_earlier_is_tried_at_once(
    session: Session, engines: Engines, clock: Clock
) -> None:
    def picky(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"][0, 0] < 0:
            raise RuntimeError("index out of range")
        return doubled(feeds)

    change(session, picky)
    engines["ort"].behaviour["onnx"] = picky
    answer(session, -1 - X)
    assert session.active.variant == "lite"
    change(session, throws)
    engines["tflite"].behaviour["lite"] = throws
    answer(session)  # both are marked failed, and onnx is not due; yet it answers
    assert session.active.variant == "onnx"
    with pytest.raises(NoVariantError):
        session.run({"x": -1 - X})
    answer(session)
    assert len(session.history) == 2  # what failed on every variant changed nothing


@pytest.mark.parametrize("deadline_ms", [None, 60_000.0])
def test_a_second_chance_and_then_an_input_that_fails_on_all(
    engines: Engines, clock: Clock, deadline_ms: float | None
) -> None:
    """onnx fails once, lite fails once, onnx gets its second chance, one input fails on both, 40 s go by."""
    broken: set[str] = set()

    def fails(name: str) -> Behaviour:
        def behaves(feeds: Mapping[str, Array]) -> dict[str, Array]:
            if name in broken or feeds["x"][0, 0] < 0:
                raise RuntimeError("kernel died")
            return doubled(feeds)

        return behaves

    engines["ort"].behaviour["onnx"], engines["tflite"].behaviour["lite"] = fails("onnx"), fails("lite")
    bundle = small_bundle([variant("onnx", "ort", p50_ms=7.0), variant("lite", "tflite", p50_ms=10.0)])
    with Session(bundle, threads=1, deadline_ms=deadline_ms) as session:
        broken |= {"onnx"}
        answer(session)
        broken ^= {"onnx", "lite"}
        answer(session)
        assert session.active.variant == "onnx"
        broken.clear()
        with pytest.raises(NoVariantError):
            session.run({"x": -1 - X})
        clock.now_s += 40
        for _ in range(5):
            answer(session)
            time.sleep(0.02)
        assert session.active.variant == "onnx"
        assert session.fallbacks == ()
