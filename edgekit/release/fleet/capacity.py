"""Simulated capacity of a server: random arrivals, several runners, and a queue with a deadline.

The model is ``edgekit serve``. It rejects a request when the queue is full, or when past run times predict
a missed deadline. It answers the others in the order of arrival.
The network is not simulated, nor is parsing, unless the given times include it.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass

import numpy as np

from edgekit.errors import UsageError
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class Spike:
    """More requests for a time.

    Attributes:
        start_s: When it begins.
        seconds: Duration in seconds.
        factor: Factor by which the rate is multiplied.
    """

    start_s: float
    seconds: float
    factor: float


@dataclass(frozen=True)
class SimulationResult:
    """Result of a simulation.

    Attributes:
        requests: Number of requests.
        refused: Number of rejected requests.
        late: Number of accepted requests that were answered after the deadline.
        seconds: Time from arrival to response of the accepted requests, [accepted], in order of arrival.
        arrived_s: Arrival times of the accepted requests in seconds, [accepted].
        busy: Share of the runners' time in which they ran.
    """

    requests: int
    refused: int
    late: int
    seconds: Array
    arrived_s: Array
    busy: float

    def quantile_ms(self, q: float) -> float:
        """Return a quantile of the response time in milliseconds, or nan if no request was accepted."""
        return float(1000 * np.quantile(self.seconds, q)) if len(self.seconds) else float("nan")


def simulate(
    rate: float,
    run_s: Array,
    runners: int,
    *,
    seconds: float = 60.0,
    queue: int = 64,
    deadline_s: float = 1.0,
    spike: Spike | None = None,
    seed: int = 0,
) -> SimulationResult:
    """Simulate a server that gets independent requests at a mean rate.

    Args:
        rate: Requests per second.
        run_s: Measured run times in seconds, [n]; each request draws one of them.
        runners: Number of concurrent runs.
        seconds: Duration of the simulated traffic.
        queue: Maximum number of waiting requests.
        deadline_s: Deadline in seconds from a request's arrival.
        spike: Period with more requests.
        seed: Random seed.

    Raises:
        UsageError: a number is not positive.
    """
    run_s = np.asarray(run_s, np.float64)
    if not (rate > 0 and seconds > 0 and deadline_s > 0 and runners >= 1 and queue >= 1):
        raise UsageError("rate, seconds, deadline, runners and queue must be positive numbers")
    if run_s.size == 0 or not (run_s > 0).all():
        raise UsageError("measured times must be positive numbers, at least one")
    rng = np.random.default_rng(seed)
    arrivals = _arrivals(rng, rate, seconds, spike)
    runs = rng.choice(run_s, len(arrivals))
    free = [0.0] * runners
    waiting: deque[float] = deque()  # when those that wait will start
    expected_s = float(run_s.mean())
    took, accepted_s, overdue, busy_s = [], [], 0, 0.0
    for arrived, run in zip(arrivals, runs, strict=True):
        while waiting and waiting[0] <= arrived:
            waiting.popleft()
        start = max(arrived, free[0])
        if len(waiting) >= queue or start + expected_s - arrived > deadline_s:
            continue
        heapq.heapreplace(free, start + run)
        if start > arrived:
            waiting.append(start)
        took.append(start + run - arrived)
        accepted_s.append(arrived)
        overdue += took[-1] > deadline_s
        busy_s += run
    end_s = max(seconds, max(free))
    return SimulationResult(
        requests=len(arrivals),
        refused=len(arrivals) - len(took),
        late=overdue,
        seconds=np.array(took),
        arrived_s=np.array(accepted_s),
        busy=busy_s / (runners * end_s),
    )


def highest_rate(run_s: Array, runners: int, p99_ms: float, seconds: float = 60.0, seed: int = 0) -> float:
    """Return the highest number of requests per second at which none is refused and 99 % are answered in
    time, within 2 %.

    Args:
        run_s: Seconds of measured runs, [n].
        runners: Runs at once.
        p99_ms: The time in which 99 % are to be answered.
        seconds: Simulated time at each rate.
        seed: Random seed.

    Raises:
        UsageError: not even single requests are answered in that time.
    """
    if 1000 * np.quantile(run_s, 0.99) > p99_ms:
        raise UsageError(f"more than 1 % of single runs take longer than {p99_ms:g} ms")
    low, high = 0.0, runners / float(np.mean(run_s))
    while high - low > 0.02 * high:
        rate = (low + high) / 2
        result = simulate(rate, run_s, runners, seconds=seconds, queue=1 << 30, deadline_s=3600.0, seed=seed)
        low, high = (rate, high) if result.quantile_ms(0.99) <= p99_ms else (low, rate)
    return low


def _arrivals(rng: np.random.Generator, rate: float, seconds: float, spike: Spike | None) -> Array:
    """Draw the times of a Poisson process: [n], sorted."""
    times = rng.uniform(0.0, seconds, rng.poisson(rate * seconds))
    if spike is not None:
        more = rng.poisson(rate * (spike.factor - 1) * spike.seconds)
        times = np.concatenate([times, rng.uniform(spike.start_s, spike.start_s + spike.seconds, more)])
    return np.sort(times)
