"""Timing of several calls side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Timing:
    """Seconds a call: the minimum and the lower decile over all rounds."""

    min_s: float
    p10_s: float


def interleaved(
    calls: Mapping[str, Callable[[], object]], *, seconds: float = 3.0, batch_s: float = 0.0005
) -> dict[str, Timing]:
    """Time each call in turn, round after round, for ``seconds`` altogether.

    Short calls are timed in batches that last at least ``batch_s``, so that the clock's own cost disappears.
    """
    repeats = {}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        once = max(time.perf_counter() - started, 1e-7)
        repeats[name] = max(1, int(batch_s / once))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 10:
        for name, call in calls.items():
            count = repeats[name]
            started = time.perf_counter()
            for _ in range(count):
                call()
            samples[name].append((time.perf_counter() - started) / count)
    return {n: Timing(min(s), float(np.percentile(s, 10))) for n, s in samples.items()}
