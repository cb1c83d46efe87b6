"""Latency of variants relative to their float parent, on a machine with other load.

Measured in CPU time of the process, on one thread, in interleaved runs: waiting does not count. Programs that
share caches and execution units still slow both variants down, but not equally. So the parent serves as a
reference: while it is slower than its best run, the machine is busy, and the round is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.timing import OWN_TIME, Timed, opened, turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.system import json_records, timings
from edgekit.system.records_folder import records_folder
from edgekit.target.contract import Runner
from edgekit.tensor_spec import Json

FASTER = 0.97
"""Largest ratio that counts as faster: interleaved timings vary by about 2 %."""
CLEARLY_FASTER = 0.85
"""Largest ratio that counts as clearly faster, on other threads or at another time. Above it, another round
of timing is worthwhile, and so are all other placements: PP-OCR recognition with all layers in int8 took .94
to .99 in repeated timings, with only its large layers .76 to .84."""


RUNS = 8
"""Runs of each of the two in a round."""
ROUNDS = 4
"""Most rounds of one timing. They are counted, not clocked: a busy machine takes no other decisions."""
RATIO_TOLERANCE = 0.01
"""A round that changes the ratio by less is the last one: half of the variation between timings."""
QUIET_LIMIT = 1.02
"""The machine counts as idle if the parent's time is at most this multiple of its best. A network of 4 ms, 32
rounds with other programs on the core's second thread: ratios of .56 to .71 in all rounds, .56 to .61 in idle
ones."""


class RelativeTimer:
    """Timer of candidates against one parent, which stays open. Not for several threads.

    Args:
        parent: The float variant, opened on one thread.

    Attributes:
        best_s: The parent's fastest run so far in seconds; infinite before the first.
    """

    def __init__(self, parent: Runner, sample: Sample) -> None:
        self._parent, self._sample = parent, sample
        self.best_s = math.inf

    def ratio(self, runner: Runner) -> float:
        """Return a candidate's fastest run over the parent's, both from the same rounds."""
        parent = candidate = ratio = math.inf
        for _ in range(ROUNDS):
            times = turns([self._parent, runner], self._sample, OWN_TIME, RUNS)
            parent, candidate = min(parent, fastest(times[0])), min(candidate, fastest(times[1]))
            self.best_s = min(self.best_s, parent)
            before, ratio = ratio, candidate / parent
            if parent <= QUIET_LIMIT * self.best_s and abs(ratio / before - 1) <= RATIO_TOLERANCE:
                break
        return float(round(ratio, 3))


def fastest(times: Sequence[float]) -> float:
    """Return the shortest run that is at least half of the median: a clock may lose time. The CPU time of a
    virtual machine has stood still for a run of 5 ms.

    >>> fastest([5.1, 0.0, 5.0, 5.2])
    5.0
    """
    minimum = 0.5 * sorted(times)[len(times) // 2]
    return min(time for time in times if time >= minimum)


def ratio_to_parent(variant: Timed, parent: Timed, reference: ReferenceOutputs) -> float:
    """Return a variant's time over its parent's, cached or measured. It is for variants that no search has
    timed, and that must be surely faster, or surely no slower.

    Args:
        reference: Reference whose first sample is run.
    """
    folder = records_folder() / "ratios"
    key = timings.digest_of({"variant": variant.key, "parent": parent.key})
    cached = json_records.recall(folder, key, timings.TIMING_LIMIT_BYTES)
    ratio = cached.get("ratio") if isinstance(cached, dict) else None
    if not isinstance(ratio, float) or ratio <= 0:
        with ExitStack() as stack:
            base, runner = (opened(stack, timed, reference, 1)[0] for timed in (parent, variant))
            ratio = RelativeTimer(base, reference.samples[0]).ratio(runner)
        record: Json = {"ratio": ratio}
        cached = json_records.record_once(
            folder, key, record, timings.TIMINGS_LIMIT, timings.TIMING_LIMIT_BYTES
        )
        first = cached.get("ratio") if isinstance(cached, dict) else None
        ratio = first if isinstance(first, float) and first > 0 else ratio
    return ratio
