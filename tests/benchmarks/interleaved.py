"""Timing of several calls side by side."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Timing:
    """Seconds a call in each round, float64 [rounds]; the rounds of calls timed together are paired."""

    samples_s: npt.NDArray[np.float64]

    @property
    def min_s(self) -> float:
        return float(self.samples_s.min())

    @property
    def p10_s(self) -> float:
        return float(np.percentile(self.samples_s, 10))

    @classmethod
    def joined(cls, timings: Sequence[Timing]) -> Timing:
        """The rounds of all of them."""
        return cls(np.concatenate([timing.samples_s for timing in timings]))

    def over_s(self, other: Timing) -> float:
        """Median over the rounds of what this call takes more than the other did in the same round."""
        return float(np.median(self.samples_s - other.samples_s))

    def ratio_to(self, other: Timing) -> float:
        """Median over the rounds of this call's time over the other's in the same round."""
        return float(np.median(self.samples_s / other.samples_s))


def interleaved(
    calls: Mapping[str, Callable[[], object]],
    *,
    seconds: float = 3.0,
    batch_s: float = 0.0005,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each call once a round, round after round, for ``seconds`` altogether.

    ``clock``: ``time.thread_time`` counts what the calling thread computes, ``time.process_time`` what all of
    the process does; both leave out the turns of other processes, and are for calls without parallel work.

    Short calls are timed in batches that last at least ``batch_s``, so that the clock's own cost disappears.
    The order is shuffled in each round: a call that always comes after one that moves megabytes finds its
    weights gone from the cache, and was 40 us slower for that alone (YOLOX-nano).
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = clock()
        call()
        once = max(clock() - started, 1e-7)
        repeats[name] = max(1, int(batch_s / once))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    shuffled = random.Random(0)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 10:
        shuffled.shuffle(order)
        for name in order:
            call, count = calls[name], repeats[name]
            started = clock()
            for _ in range(count):
                call()
            samples[name].append((clock() - started) / count)
    return {name: Timing(np.array(found)) for name, found in samples.items()}
