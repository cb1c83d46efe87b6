"""Two variants timed against each other, with a statement of significance.

Two loads of the same file already differ, by where its weights come to lie in memory, and stay so until they
are closed. So both are opened anew in each of many blocks and run in turns of random order there. A block
gives one ratio of times: the median over its rounds of that of the two runs, which met the same load. The
interval is over the blocks (centre_interval).

Of 36 blocks of 24 rounds of a network of 4 ms on two cores that nine programs wanted, in CPU time, that ratio
differed by 2.0 % (standard deviation) between blocks; that of the two medians by 2.2 %, of the two lower
quartiles by 4.4 %, of the two fastest runs by 5.3 %.

The estimate is that of Hodges and Lehmann: the median of the means of all pairs of values (Walsh averages).
Its interval is the one of Tukey that belongs to Wilcoxon's signed-rank test: it counts from both ends of the
sorted Walsh averages as many as that test leaves out (Hollander, Wolfe, Chicken: Nonparametric Statistical
Methods, 3rd edition, sections 3.2 and 3.3). It assumes that values are independent and spread alike to both
sides of what is sought, not that they are normal: a value far out moves it little.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.kept_variants import kept_variants
from edgekit.compiler.evaluate.run_bundle import golden_inputs
from edgekit.compiler.evaluate.timing import OWN_TIME, busy
from edgekit.errors import MissingDependency, ProfileError, UsageError
from edgekit.runtime import Session
from edgekit.system.formats.plain_text import milliseconds
from edgekit.system.progress import counted
from edgekit.target import registry
from edgekit.tensor_spec import Array

BLOCKS = 20
"""Each of both sides opened anew. A ratio that is 3 % off and differs by 2 % between blocks is found."""
ROUNDS = 10
"""The fewest of a block."""
WARM_UP_RUNS = 2
CONFIDENCE = 0.95
CLOCKS: Mapping[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": OWN_TIME}


class Side(NamedTuple):
    """Variant of a bundle, and its label."""

    bundle: Bundle
    variant: str
    name: str


class LatencyRatio(TypedDict):
    """Time of the first over the second's."""

    first: str
    second: str
    ratio: float
    low: float
    """Of the interval of the ratio."""
    high: float
    confidence: float
    differs: bool
    """Whether 1 is outside of the interval."""
    ms: tuple[float, float]
    """Median over the blocks of the median of each one's runs."""
    blocks: int
    rounds: int
    """Of all blocks."""
    threads: int
    clock: str
    """``wall``, or ``cpu``: CPU time of the process, of all threads together."""
    busy: bool
    """Whether more wanted to run than there are processors."""


def compare_bundles(
    bundle: Bundle,
    against: str,
    *,
    engine: str | None = None,
    variant: str | None = None,
    threads: int | None = None,
    seconds: float = 10.0,
    clock: str = "wall",
) -> list[LatencyRatio]:
    """Compare a variant with another of its bundle, or each with its namesake in another bundle.

    Args:
        against: A variant of it, or the path of another bundle.
        engine: Target; other targets' variants are skipped.
        variant: Name of the only variant to compare.
        threads: Number of threads of each variant. None means a Session's default.
        seconds: Duration of all rounds together, in seconds.
        clock: A key of ``CLOCKS``.

    Raises:
        UsageError: no variant in common, or a variant that does not exist.
        BundleError: the other bundle can't be read, or there is no golden vector.
        NoVariantError: a variant does not work here.
    """

    variants = [v for v in kept_variants(bundle) if engine in (None, v.target) and variant in (None, v.name)]
    names = [v.name for v in variants if is_installed(v.target)]
    if not names:
        raise UsageError(f"{bundle.name} has no variant of that name that can run here")
    if against in [v.name for v in bundle.variants if v.files]:
        if variant is None and len(names) != 1 and (names := [n for n in names if n != against][:2])[1:]:
            raise UsageError(f"--against {against} is a variant; add --variant too: {', '.join(names)}, ...")
        second = Side(bundle, against, against)
        return [
            compare(Side(bundle, names[0], names[0]), second, threads=threads, seconds=seconds, clock=clock)
        ]
    if not Path(against).exists():
        raise UsageError(f"{against} is neither a variant of {bundle.name} nor a bundle")
    with Bundle.open(against) as other:
        other.verify_entries()
        other_names = [v.name for v in other.variants if v.files]
        both = [name for name in names if name in other_names]
        if not both:
            raise UsageError(f"no variant in common: {', '.join(names)} and {', '.join(other_names)}")
        return [
            compare(
                Side(bundle, name, f"{bundle.name}:{name}"),
                Side(other, name, f"{other.name}:{name}"),
                threads=threads,
                seconds=seconds,
                clock=clock,
            )
            for name in both
        ]


def is_installed(target: str) -> bool:
    try:
        registry.engine(target).engine_version()
    except (MissingDependency, ProfileError):
        return False
    return True


def compare(
    first: Side, second: Side, *, threads: int | None = None, seconds: float = 10.0, clock: str = "wall"
) -> LatencyRatio:
    """Time two variants against each other on the first bundle's golden vector.

    Args:
        second: Variant to compare with; it must take the same inputs.
        threads: Number of threads of each variant. None means a Session's default.
        seconds: Duration of all rounds together, by the clock; each block has at least ``ROUNDS``.
        clock: A key of ``CLOCKS``.

    Raises:
        UsageError: the inputs of the two differ, or seconds is not a positive number.
        BundleError: there is no golden vector.
        NoVariantError: one of them does not work here.
        MissingDependency: the engine of one is not installed.
    """
    if not 0 < seconds < math.inf:
        raise UsageError(f"seconds must be greater than 0, not {seconds:g}")
    feeds = golden_inputs(first.bundle)
    if first.bundle.inputs != second.bundle.inputs:
        raise UsageError(f"{first.name} and {second.name} have different inputs, so they cannot be compared")
    shuffled = random.Random(0)
    ratios, times, rounds, used = [], [], 0, 0
    for _ in counted(range(BLOCKS), "rounds", name="comparing", describe=lambda _: first.name):
        with ExitStack() as stack:
            order = [0, 1]
            shuffled.shuffle(order)  # what is opened first has the better place in memory
            runs: dict[int, Callable[[Mapping[str, Array]], object]] = {}
            for index in order:
                side = (first, second)[index]
                session = stack.enter_context(
                    Session(side.bundle, variant=side.variant, strict=True, threads=threads)
                )
                runs[index], used = session.run, session.threads
            durations = _in_turns(runs, feeds, seconds / BLOCKS, CLOCKS[clock], shuffled)
        pair = np.array([durations[0], durations[1]])
        times.append(np.median(pair, axis=1))
        ratios.append(float(np.median(np.log(pair[0] / pair[1]))))
        rounds += len(durations[0])
    interval = centre_interval(ratios, CONFIDENCE)
    low_ratio, high_ratio = math.exp(interval.low), math.exp(interval.high)
    middle = [round(1000 * float(ms), 4) for ms in np.median(np.array(times), axis=0)]
    return {
        "first": first.name,
        "second": second.name,
        "ratio": round(math.exp(interval.estimate), 5),
        "low": round(low_ratio, 5),
        "high": round(high_ratio, 5),
        "confidence": CONFIDENCE,
        "differs": not low_ratio <= 1 <= high_ratio,
        "ms": (middle[0], middle[1]),
        "blocks": BLOCKS,
        "rounds": rounds,
        "threads": used,
        "clock": clock,
        "busy": busy(),
    }


def _in_turns(
    runs: Mapping[int, Callable[[Mapping[str, Array]], object]],
    feeds: Mapping[str, Array],
    seconds: float,
    clock: Callable[[], float],
    shuffled: random.Random,
) -> dict[int, list[float]]:
    """Return the seconds of each run. The order in a turn is random: the first run changes the caches."""
    durations: dict[int, list[float]] = {index: [] for index in runs}
    for run in runs.values():
        for _ in range(WARM_UP_RUNS):
            run(feeds)
    order = list(runs)
    end = clock() + seconds
    while len(durations[0]) < ROUNDS or clock() < end:
        shuffled.shuffle(order)
        for index in order:
            started = clock()
            runs[index](feeds)
            durations[index].append(max(clock() - started, 1e-9))
    return durations


def statement(comparison: LatencyRatio) -> str:
    """Return the result as a sentence.

    >>> statement({"first": "A", "second": "B", "ratio": 0.959, "low": 0.95, "high": 0.968,
    ...     "confidence": 0.95, "differs": True})  # type: ignore[typeddict-item]
    'A is 4.1 % faster than B, 95 %: 3.2 to 5.0'
    """
    first, second, sure = comparison["first"], comparison["second"], f"{100 * comparison['confidence']:g} %"
    ratio, low, high = (100 * (comparison[key] - 1) for key in ("ratio", "low", "high"))
    if not comparison["differs"]:
        return (
            f"no significant difference ({sure}): {first} takes {low:+.1f} to {high:+.1f} % more time "
            f"than {second}"
        )
    if high < 0:
        return f"{first} is {-ratio:.1f} % faster than {second}, {sure}: {-high:.1f} to {-low:.1f}"
    return f"{first} is {ratio:.1f} % slower than {second}, {sure}: {low:.1f} to {high:.1f}"


def render_comparisons(ratios: Sequence[LatencyRatio]) -> str:
    """Format the output of ``edgekit bench --against``."""
    return "\n\n".join("\n".join(_lines(ratio)) for ratio in ratios)


def _lines(ratio: LatencyRatio) -> list[str]:
    threads = f"{ratio['threads']} thread{'s' if ratio['threads'] > 1 else ''}"
    kind = "CPU time" if ratio["clock"] == "cpu" else "wall time"
    first, second = (milliseconds(ms) for ms in ratio["ms"])
    lines = [
        f"  {statement(ratio)}",
        f"  measured  {first} and {second} a run, {kind} on {threads}, {ratio['rounds']} rounds in "
        f"{ratio['blocks']} blocks",
    ]
    if ratio["busy"] and ratio["clock"] == "wall":
        load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "high"
        lines.append(
            f"  note      the machine is busy (load {load}), so wall times vary; --clock cpu varies less"
        )
    return lines


class Interval(NamedTuple):
    """Estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def centre_interval(values: Sequence[float] | Array, confidence: float = 0.95) -> Interval:
    """Estimate the centre of symmetry of the distribution that the values are drawn from.

    Args:
        values: Independent values, at least 6 for 95 %, as 2 / 2**6 is the first share below 5 %.
        confidence: Least probability, 0 to 1, that the interval contains the centre.

    Raises:
        UsageError: there are too few values for that confidence.

    >>> centre_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    Interval(estimate=3.5, low=1.0, high=6.0)
    """
    count = len(values)
    array = np.asarray(values, np.float64)
    first, second = np.triu_indices(count)
    walsh = np.sort((array[first] + array[second]) / 2)
    left_out = _left_out(count, (1 - confidence) / 2)
    if left_out < 1:
        raise UsageError(f"{count} pairs are too few for an interval at {confidence:.0%}")
    low, high = walsh[left_out - 1], walsh[len(walsh) - left_out]
    return Interval(float(np.median(walsh)), float(low), float(high))


def _left_out(count: int, tail: float) -> int:
    """Return the largest k with P(T <= k - 1) <= tail, for the signed-rank statistic T of ``count`` values.

    T is the sum of the ranks 1 to n that a fair coin picks, so that each subset of ranks is as likely.
    """
    ways = np.zeros(count * (count + 1) // 2 + 1)
    ways[0] = 1
    for rank in range(1, count + 1):
        ways[rank:] = ways[rank:] + ways[:-rank]
    shares = np.cumsum(ways / 2.0**count)
    return int(np.searchsorted(shares, tail, side="right"))
