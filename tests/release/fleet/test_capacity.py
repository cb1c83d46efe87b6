"""The simulation against what queueing theory knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgekit.errors import UsageError
from edgekit.release.fleet.capacity import Spike, highest_rate, simulate

FOR_EVER: dict[str, Any] = {"queue": 1 << 30, "deadline_s": 1e6}
MEAN_S = 0.01
EXPONENTIAL = np.random.default_rng(1).exponential(MEAN_S, 200_000)


@pytest.mark.parametrize("load", [0.5, 0.8])
@pytest.mark.parametrize("times", [EXPONENTIAL, np.full(1, MEAN_S)], ids=["M/M/1", "M/D/1"])
def test_one_runner_waits_as_pollaczek_and_khinchine_say(load: float, times: np.ndarray) -> None:
    """Mean wait = rate E[S^2] / 2 (1 - load)."""
    rate = load / times.mean()
    found = simulate(rate, times, 1, seconds=4000.0, **FOR_EVER)
    expected = rate * (times**2).mean() / (2 * (1 - load))
    assert found.seconds.mean() - times.mean() == pytest.approx(expected, rel=0.05)
    assert found.busy == pytest.approx(load, rel=0.02)
    assert found.refused == found.late == 0


def test_several_runners_wait_as_erlang_says() -> None:
    """Erlang's C formula, 4 runners at 80 %."""
    runners, load = 4, 0.8
    offered = runners * load
    last = offered**runners / math.factorial(runners) / (1 - load)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(runners)) + last)
    mean_s = EXPONENTIAL.mean()
    found = simulate(offered / mean_s, EXPONENTIAL, runners, seconds=1500.0, **FOR_EVER)
    expected = waits * mean_s / (runners - offered)
    assert found.seconds.mean() - mean_s == pytest.approx(expected, rel=0.07)


def test_a_spike_is_refused_and_over_at_once() -> None:
    spike = Spike(20.0, 20.0, 10.0)
    found = simulate(90.0, np.full(1, 0.01), 2, seconds=60.0, deadline_s=0.1, spike=spike)
    asked, capacity = 90 * 60 + 810 * 20, 200
    assert found.requests == pytest.approx(asked, rel=0.03)
    assert found.late == 0
    assert found.refused == pytest.approx((900 - capacity) * 20, rel=0.03)
    after = found.seconds[found.arrived_s > 40.0 + 0.1]
    assert np.quantile(after, 0.99) < 0.05


def test_the_queue_is_bounded() -> None:
    found = simulate(1000.0, np.full(1, 0.01), 1, seconds=10.0, queue=5, deadline_s=1e6)
    assert found.seconds.max() == pytest.approx(0.06, abs=1e-4)


def test_the_highest_rate_is_the_highest() -> None:
    rate = highest_rate(EXPONENTIAL, 2, p99_ms=100.0)
    for factor, ok in ((0.95, True), (1.1, False)):
        found = simulate(rate * factor, EXPONENTIAL, 2, **FOR_EVER)
        assert (found.quantile_ms(0.99) <= 100.0) is ok
    with pytest.raises(UsageError, match="more than 1 % of single runs"):
        highest_rate(EXPONENTIAL, 2, p99_ms=20.0)


@pytest.mark.parametrize(
    "wrong", [{"rate": 0.0}, {"runners": 0}, {"run_s": np.zeros(1)}, {"run_s": np.zeros(0)}]
)
def test_numbers_that_are_none(wrong: dict[str, object]) -> None:
    given = {"rate": 1.0, "run_s": np.ones(1), "runners": 1, **wrong}
    with pytest.raises(UsageError):
        simulate(**given)  # type: ignore[arg-type]
