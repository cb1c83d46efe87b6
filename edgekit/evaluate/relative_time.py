"""The time of variants over their float parent's, on a machine that does other things as well.

In the process's own time, on one thread, run by run in turns: what waits costs nothing. What shares a
processor's caches and execution units still slows both down, and not alike. So the parent is the yardstick of
the moment: while it is slower than it once was, somebody else is at work, and what was timed does not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack

from edgekit.evaluate.samples import Sample
from edgekit.evaluate.timing import OWN_TIME, Timed, opened, turns
from edgekit.system import cache_folder, json_records, timings
from edgekit.target.contract import Runner
from edgekit.tensors import TensorSpec

FASTER = 0.97
"""Time of a candidate over its parent's that counts as faster: timings in turns wobble by about 2 %."""
CLEARLY_FASTER = 0.85
"""The same that counts as surely faster: on other threads, in another moment. Above, another round of timing
is worth its time (``pace``), and so is another placement: PP-OCR recognition with everything on integers took
.94 to .99 in one timing and the next, with its large products alone .76 to .84."""


ROUNDS = 3
"""Rounds of timing of the first candidate, and of those that may or may not be faster, at most."""
RATIO_TOLERANCE = 0.01
"""Where a round moves the ratio by less, another one would tell as little: half of what timings wobble."""
UNDECIDED_RATIOS = (CLEARLY_FASTER, 1.1)
"""Between these ratios another round of timing is worth its time."""
QUIET_LIMIT = 1.02
"""The parent's time over its best one in a quiet moment. A network of 4 ms, 32 rounds with other programs on
the processor's second thread: ratios of .56 to .71 as they came, .56 to .61 in quiet moments."""
PATIENCE_SECONDS = 2.0
"""At most so many seconds of rounds are spent in waiting for one."""


class RelativeTimer:
    """Times candidates against one parent, which stays open. Not for several threads.

    Args:
        parent: The float variant, opened on one thread.
        sample: What is run.
    """

    def __init__(self, parent: Runner, sample: Sample) -> None:
        self._parent, self._sample = parent, sample
        self._best = math.inf

    def ratio(self, runner: Runner) -> float:
        """A candidate's fastest run over the parent's, both from the same rounds."""
        first = math.isinf(self._best)
        end = time.perf_counter() + PATIENCE_SECONDS
        parent = own = ratio = math.inf
        rounds = 0
        while True:
            times = turns([self._parent, runner], self._sample, OWN_TIME)
            parent, own = min(parent, *times[0]), min(own, *times[1])
            self._best = min(self._best, parent)
            rounds += 1
            before, ratio = ratio, own / parent
            is_open = (first or UNDECIDED_RATIOS[0] < ratio < UNDECIDED_RATIOS[1]) and abs(
                ratio / before - 1
            ) > RATIO_TOLERANCE
            disturbed = parent > QUIET_LIMIT * self._best and time.perf_counter() < end
            if not disturbed and (rounds >= ROUNDS or not is_open):
                return float(round(ratio, 3))


def ratio_to_parent(
    variant: Timed,
    parent: Timed,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    sample: Sample,
) -> float:
    """Time of a variant over its parent's: of variants that nobody has searched for, and that must be surely
    faster, or surely no slower. It is remembered.

    Args:
        variant: What is judged.
        parent: Than this.
        inputs: The source model's.
        outputs: The source model's.
        sample: What is run.
    """
    folder = cache_folder.cache_folder() / "ratios"
    key = timings.digest_of({"variant": variant.key, "parent": parent.key})
    known = json_records.recall(folder, key, timings.TIMING_LIMIT_BYTES)
    ratio = known.get("ratio") if isinstance(known, dict) else None
    if not isinstance(ratio, float):
        with ExitStack() as stack:
            base, own = (opened(stack, each, inputs, outputs, 1)[0] for each in (parent, variant))
            ratio = RelativeTimer(base, sample).ratio(own)
        json_records.record(folder, key, {"ratio": ratio}, timings.TIMINGS_LIMIT)
    return ratio
