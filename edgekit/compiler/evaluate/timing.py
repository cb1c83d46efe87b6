"""Latency of a build's variants, measured in interleaved runs.

Latencies measured one after the other on a shared machine cannot be compared, because the load differs. So
the runs of all variants of a build are interleaved in one process, with as many threads as a Session uses,
because the fastest engine depends on the number of threads.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from edgekit.bundle.evidence import Timing
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import ReferenceOutputs, write_files
from edgekit.system import cpu, json_records
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.system.formats import strict_json
from edgekit.system.records_folder import records_folder
from edgekit.target.contract import Artifact, Engine, Runner
from edgekit.target.registry import open_ready
from edgekit.tensor_spec import Json

TIMED_RUNS = 20
"""Runs of each variant; the latency is their median."""
REPORTED_RUNS = 10
"""The same where no variant can be rejected for its latency, which orders them and is reported."""
TIMED_SECONDS, LEAST_RUNS = 1.0, 3
"""CPU seconds per variant after which slow variants stop, and the least runs of each."""
WARM_UP_RUNS = 2
CONFIRMING_ROUNDS = 5
"""Most rounds of TIMED_RUNS to confirm that a variant is slower than its parent."""
RECALLED = {
    **dict.fromkeys(("min_ms", "load_ms"), float),
    **dict.fromkeys(("runs", "threads"), int),
    **dict.fromkeys(("cpu", "isa", "machine", "measured"), str),
}
"""What a recalled timing must hold."""
TOGETHER_LIMIT_BYTES = 1 << 20
"""Of the timings of one build."""
OWN_TIME = time.perf_counter if sys.platform == "win32" else time.process_time
"""CPU time of the process, less affected by other load. Windows counts it in steps of 16 ms."""


@dataclass(frozen=True)
class Timed:
    """Artifact to time, and the engine that runs it.

    Attributes:
        files_digest: ``files_digest`` of its files, computed once: they are read from end to end.
    """

    engine: Engine
    artifact: Artifact
    files_digest: str

    @property
    def digest(self) -> str:
        return stored_timings.run_digest(self.files_digest, self.artifact.options)

    @property
    def key(self) -> str:
        return stored_timings.timing_key(self.digest, self.engine.engine_version(), default_threads())


def time_in_turns(
    variants: Sequence[Timed], reference: ReferenceOutputs, runs: int = TIMED_RUNS
) -> list[Timing]:
    """Time verified variants in interleaved runs, and return the timings in their order.

    The reference's first sample is run. If every variant was timed on this machine before, the cached timings
    are returned. That keeps a rebuild byte-identical: timings are the only part of a bundle that the inputs
    do not determine.

    Raises:
        EngineError: a variant that ran before does not run now.
    """
    threads = default_threads()
    if (cached := _recalled(variants)) is not None:
        return cached
    with ExitStack() as stack:
        loaded = [opened(stack, variant, reference, threads) for variant in variants]
        times = turns([runner for runner, _ in loaded], reference.samples[0], runs=runs)
    timings = [
        timing_summary(seconds, load_ms, threads) for seconds, (_, load_ms) in zip(times, loaded, strict=True)
    ]
    by_key: Json = {v.key: dict(timing) for v, timing in zip(variants, timings, strict=True)}
    folder, name = stored_timings.timings_folder(), together_key(variants)
    json_records.record_once(folder, name, by_key, stored_timings.TIMINGS_LIMIT, TOGETHER_LIMIT_BYTES)
    if (cached := _recalled(variants)) is not None:  # another process's, where it was first
        return cached
    json_records.record(folder, name, by_key, stored_timings.TIMINGS_LIMIT)
    return timings


def together_key(variants: Sequence[Timed]) -> str:
    """Return the cache key for timings of variants in interleaved runs. A build that timed some of them with
    other variants has its own key, so that every rebuild, in any order, has identical bytes."""
    return hashlib.sha256(strict_json.encode(sorted({variant.key for variant in variants}))).hexdigest()


def _recalled(variants: Sequence[Timed]) -> list[Timing] | None:
    """Return the cached timings of variants in interleaved runs; None if one is incomplete."""
    name = together_key(variants)
    records = json_records.recall(stored_timings.timings_folder(), name, TOGETHER_LIMIT_BYTES)
    timings = [records.get(variant.key) if isinstance(records, dict) else None for variant in variants]
    if not all(stored_timings.is_whole(timing, RECALLED) for timing in timings):
        return None
    return cast("list[Timing]", timings)


def confirmed_ratio(
    variant: Timed,
    parent: Timed,
    timing: Timing,
    parent_ms: float,
    limit: float,
    reference: ReferenceOutputs,
) -> float:
    """Return a variant's time over its parent's, if its timing in the build was above the limit, because the
    few runs of one of them may all have been disturbed.

    The two run interleaved. The process's CPU time is compared first, as in the search, because other
    programs may use the processors all the time. If that is above the limit too, elapsed time is compared
    until it is below the limit or CONFIRMING_ROUNDS are over.

    Args:
        timing: Timing of the variant; the ratio is written into it, and cached with it.
        parent_ms: The parent's fastest run, in milliseconds.
        limit: The ratio from which on the variant is rejected.
    """
    folder = records_folder() / "ratios"
    facts: Json = ["confirmed", variant.key, parent.key, timing["min_ms"], parent_ms, limit]
    name = hashlib.sha256(strict_json.encode(facts)).hexdigest()
    limit_bytes = stored_timings.TIMING_LIMIT_BYTES
    ratio = _ratio_of(json_records.recall(folder, name, limit_bytes))
    if ratio is None:
        measured = _confirmed(variant, parent, timing["min_ms"], parent_ms, limit, reference)
        first = json_records.record_once(
            folder, name, {"ratio": measured}, stored_timings.TIMINGS_LIMIT, limit_bytes
        )
        ratio = _ratio_of(first) or measured
    timing["ratio"] = ratio
    return ratio


def _ratio_of(record: Json) -> float | None:
    ratio = record.get("ratio") if isinstance(record, dict) else None
    return ratio if isinstance(ratio, float) and 0 < ratio < math.inf else None


def _confirmed(
    variant: Timed, parent: Timed, min_ms: float, parent_ms: float, limit: float, reference: ReferenceOutputs
) -> float:
    with ExitStack() as stack:
        pair = [opened(stack, v, reference, default_threads())[0] for v in (variant, parent)]
        best = (min_ms / 1000, parent_ms / 1000)
        return confirmed_turns(pair, reference.samples[0], limit, best)


def confirmed_turns(
    pair: Sequence[Runner], sample: Sample, limit: float, seconds: Sequence[float] = (math.inf, 1.0)
) -> float:
    """Return the time of one runner over another's, as :func:`confirmed_ratio` compares them; their CPU time
    if that and elapsed time are above the limit.

    Args:
        pair: The runner that may be slower, and the one to compare with.
        seconds: Seconds of the fastest run of each so far; by default none.
    """
    own = [min(runs) for runs in turns(pair, sample, OWN_TIME)]
    if own[0] <= limit * own[1]:
        return float(_digits(own[0] / own[1]))
    best = list(seconds)
    for _ in range(CONFIRMING_ROUNDS):
        fastest = [min(runs) for runs in turns(pair, sample)]
        best = (
            [min(times) for times in zip(best, fastest, strict=True)] if math.isfinite(best[0]) else fastest
        )
        if best[0] <= limit * best[1]:
            own = best
            break
    return float(_digits(own[0] / own[1]))


def busy() -> bool:
    """Return whether the load of the last minute exceeds the number of processors: then wall-clock time
    includes other programs. False on a system without load averages (Windows)."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return load > (os.cpu_count() or 1)


def opened(
    stack: ExitStack, variant: Timed, reference: ReferenceOutputs, threads: int
) -> tuple[Runner, float]:
    """Open a runner that is closed with the stack, and return it with the CPU time of loading, in ms."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edgekit-")))
    files = write_files(variant.artifact, folder)
    started = OWN_TIME()
    options = variant.artifact.options
    runner = open_ready(variant.engine, files, reference.inputs, reference.outputs, options, threads)
    load_ms = 1000 * (OWN_TIME() - started)
    return stack.enter_context(closing(runner)), load_ms


def turns(
    runners: Sequence[Runner],
    sample: Sample,
    clock: Callable[[], float] = time.perf_counter,
    runs: int = TIMED_RUNS,
    warm_up_runs: int = WARM_UP_RUNS,
) -> list[list[float]]:
    """Measure the seconds of each runner's runs by a clock, interleaved, after warm-up runs."""
    times: list[list[float]] = [[] for _ in runners]
    for runner in runners:
        for _ in range(warm_up_runs):
            runner.run(sample)
    end = OWN_TIME() + TIMED_SECONDS * len(runners)
    for number in range(runs):
        if number >= LEAST_RUNS and OWN_TIME() > end:
            break
        for runner, seconds in zip(runners, times, strict=True):
            started = clock()
            runner.run(sample)
            seconds.append(clock() - started)
    return times


def is_over(times: Sequence[Sequence[float]], runs: int) -> bool:
    """Return whether interleaved runs are as many as :func:`turns` makes, by the seconds of each runner."""
    count = len(times[0])
    is_late = sum(map(sum, times)) > TIMED_SECONDS * len(times)
    return count >= runs or (count >= LEAST_RUNS and is_late)


def timing_summary(seconds: Sequence[float], load_ms: float, threads: int) -> Timing:
    """Summarize these runs, measured now, as a timing."""
    return {
        "p50_ms": _digits(1000 * float(np.median(seconds))),
        "min_ms": _digits(1000 * min(seconds)),
        "load_ms": _digits(load_ms),
        "runs": len(seconds),
        "threads": threads,
        "cpu": cpu.cpu_name(),
        "isa": " ".join(cpu.instruction_sets()) or "unknown",
        "machine": cpu.processor_kind(),
        "measured": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
    }


def _digits(value: float) -> float:
    return float(f"{value:.4g}")
