"""Latency of variants relative to their float parent, on a machine with other load.

Measured in CPU time of the process, on one thread, in pairs of runs, the parent's right after the variant's:
waiting does not count. Programs that share caches and execution units still slow both down. They slow down
both runs of a pair, so the median of the ratios of the pairs is the ratio. Of short runs, the fastest of each
in a few milliseconds make a pair: an interruption hits only some of them.

Two cores with 20 to 30 programs, standard deviation of ten ratios, YOLOX-nano (16 ms) by 16 runs each and
ResNet-8 (0.3 ms) by 200, in percent; t LiteRT, o ONNX Runtime:

                                                YOLOX-nano   ResNet-8
                                                 t     o     t     o
    fastest run over the parent's               3.3   3.7   0.5   0.2
    median of the ratios of the pairs           1.7   1.5   5.0   0.8
    the same, the fastest of eight runs each      -     -   0.1   0.2
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from statistics import median

from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.timing import OWN_TIME, WARM_UP_RUNS, Timed, is_over, opened, turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.system import json_records, timings
from edgekit.system.progress import counted
from edgekit.system.records_folder import records_folder
from edgekit.target.contract import Runner
from edgekit.tensor_spec import Array, Json

FASTER = 0.97
"""Largest ratio that counts as faster: interleaved timings vary by about 2 %."""
CLEARLY_FASTER = 0.85
"""Largest ratio that counts as clearly faster, on other threads or at another time. Above it, another round
of timing is worthwhile, and so are all other placements: PP-OCR recognition with all layers in int8 took .94
to .99 in repeated timings, with only its large layers .76 to .84."""


RUNS, MOST_RUNS, ROUND_SECONDS = 8, 100, 0.05
"""Least and most runs of each of the two in a round, and CPU seconds of the parent that a round should have:
single runs of a network of 0.1 ms vary by a fifth on a busy machine."""
PAIR_SECONDS = 0.005
"""Seconds of the parent in a pair, if its runs are shorter: about as long as other programs slow it down."""
ROUNDS = 4
"""Most rounds of one timing. They are counted, not clocked: a busy machine takes no other decisions."""
PAIRED_ROUNDS = 2
"""Rounds that are taken from the runs on the validation samples; more are needed only if these differ."""
RATIO_TOLERANCE = 0.01
"""A round that changes the ratio by less is the last one: half of the variation between timings."""
ROUGH_TOLERANCE = 0.05
"""The same if the ratio is below CLEARLY_FASTER: the search treats times as equal that differ by three times
as much."""


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

    def run(self, runner: Runner, samples: Sequence[Sample]) -> tuple[Sequence[Mapping[str, Array]], float]:
        """Run a candidate on samples, and return its outputs and its ratio.

        The parent runs in turns on the same samples until there are PAIRED_ROUNDS rounds, so that the runs
        for the outputs are those that are timed.
        """
        rounds: list[tuple[list[float], list[float]]] = [([], [])]

        def run(sample: Sample) -> Mapping[str, Array]:
            started = OWN_TIME()
            outputs = runner.run(sample)
            ended = OWN_TIME()
            if len(rounds) <= PAIRED_ROUNDS:
                self._parent.run(sample)
                rounds[-1][0].append(OWN_TIME() - ended)
                rounds[-1][1].append(ended - started)
                if is_over(rounds[-1], RUNS):
                    rounds.append(([], []))
            return outputs

        outputs = keep_outputs(map(run, counted(samples, "samples")))
        return outputs, self.ratio(runner, rounds[:-1])

    def ratio(self, runner: Runner, rounds: Sequence[Sequence[Sequence[float]]] = ()) -> float:
        """Return the median of a candidate's run over the parent's.

        Args:
            rounds: First rounds: the seconds of RUNS runs of the parent, and of the candidate. They are not
                used if runs are so short that a round takes more of them.
        """
        self.best_s = min([self.best_s, *(fastest(times[0]) for times in rounds)])
        warm_up_runs = 0 if rounds else WARM_UP_RUNS
        rounds = rounds if self._runs() == RUNS else ()
        ratios, ratio = list[float](), math.inf
        for number in range(ROUNDS):
            if number < len(rounds):
                times = rounds[number]
            else:
                runners = [self._parent, runner]
                times = turns(runners, self._sample, OWN_TIME, self._runs(), warm_up_runs)
                warm_up_runs = 0
            self.best_s = min(self.best_s, fastest(times[0]))
            size = min(max(int(PAIR_SECONDS / self.best_s), 1), RUNS)
            ratios += ratios_of_pairs(times[0], times[1], size)
            before, ratio = ratio, median(ratios)
            tolerance = ROUGH_TOLERANCE if ratio <= CLEARLY_FASTER else RATIO_TOLERANCE
            if abs(ratio / before - 1) <= tolerance:
                break
        return float(round(ratio, 3))

    def _runs(self) -> int:
        return min(max(RUNS, int(ROUND_SECONDS / self.best_s)), MOST_RUNS)


def fastest(times: Sequence[float]) -> float:
    """Return the shortest run that is at least half of the median: a clock may lose time. The CPU time of a
    virtual machine has stood still for a run of 5 ms.

    >>> fastest([5.1, 0.0, 5.0, 5.2])
    5.0
    """
    minimum = 0.5 * sorted(times)[len(times) // 2]
    return min(time for time in times if time >= minimum)


def ratios_of_pairs(parent: Sequence[float], candidate: Sequence[float], size: int = 1) -> list[float]:
    """Return the candidate's time over the parent's, by the fastest of each ``size`` successive runs.

    Runs in which a clock lost time do not count (``fastest``).

    >>> ratios_of_pairs([1.0, 1.0, 0.0, 4.0], [0.5, 0.5, 0.5, 2.0])
    [0.5, 0.5, 0.5]
    >>> ratios_of_pairs([1.0, 1.0, 0.0, 4.0], [0.5, 0.5, 0.5, 2.0], size=2)
    [0.5, 0.125]
    """
    ratios = []
    least, own_least = fastest(parent), fastest(candidate)
    for start in range(0, len(parent), size):
        runs = [run for run in parent[start : start + size] if run >= least]
        own_runs = [run for run in candidate[start : start + size] if run >= own_least]
        if runs and own_runs:
            ratios.append(min(own_runs) / min(runs))
    return ratios


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
