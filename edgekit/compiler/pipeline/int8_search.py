"""Int8 search of one target: its time limit, its cached result, and its record in the manifest."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

from edgekit.bundle.evidence import SearchedCandidate
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import best_so_far, with_better_times
from edgekit.compiler.quantize.search.measurement import CandidateConfig, Measurement
from edgekit.compiler.quantize.search.strategy import search_fastest, search_front, search_untimed
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Notify
from edgekit.target.precisions import AUTO


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        measured: The candidates that were measured, in order.
        block_snr_db: Block -> SNR in dB with only that block quantized, for the blocks that were examined.
        left_out: Number of candidates skipped because the time ran out.
    """

    measured: Sequence[Measurement]
    block_snr_db: dict[str, float] = field(default_factory=dict)
    left_out: int = 0

    def after(self, first: SearchResult) -> SearchResult:
        """Return this search's result, appended to that of an earlier search of the same target."""
        configs = {measurement.config for measurement in first.measured}
        added = [measurement for measurement in self.measured if measurement.config not in configs]
        return SearchResult(
            [*first.measured, *added], {**first.block_snr_db, **self.block_snr_db}, self.left_out
        )


def search_int8(
    data: QuantizationData, candidates: Candidates, options: BuildOptions, seconds: float, notify: Notify
) -> SearchResult:
    """Search, or load the cached result of an identical search that had all the time it needed.

    A search that the time limit has cut is not loaded. Its measurements are cached by candidate and take no
    time, so the search continues where it stopped.
    """
    profile, rules = candidates.target.profile, candidates.rules
    key = measurement_cache.key(
        "search",
        data.search_context.digest,
        repr(rules),
        profile.as_json(),
        candidates.version,
        default_threads(),
        [options.precision, options.goal.as_json(), candidates.timed],
    )
    cached = measurement_cache.recall(key, SearchResult)
    if cached is not None and cached.measured:
        return cached
    clock = _Clock(seconds)
    block_snr_db: dict[str, float] = {}
    measured_so_far: list[Measurement] = []
    best = best_so_far((), None, bool)

    def report(detail: str, done: int = 0, total: int = 0, unit: str = "", *_: object, **__: object) -> None:
        notify(f"{profile.name}: {detail}", done, total, unit, clock.seconds_left(), best)

    def measure(config: CandidateConfig) -> Measurement:
        nonlocal best
        candidates.report = lambda detail, *counts: report(f"{config}: {detail}", *counts)
        if candidates.is_known(config):
            measurement = candidates.measure(config)
        else:
            report(str(config))
            with clock.spending(config):
                measurement = candidates.measure(config)
        measured_so_far.append(measurement)
        best = best_so_far(measured_so_far, candidates.parent_ms, is_good_enough)
        return measurement

    def has_time(config: CandidateConfig, share: float = 1.0) -> bool:
        return candidates.is_known(config) or clock.has_time(config, share)

    def find_float_regions(config: CandidateConfig, min_gain: float) -> Sequence[frozenset[str]]:
        if rules.integers:
            return ()
        if not clock.left():
            clock.left_out += 1
            return ()
        candidates.report = report
        regions, snr_db = candidates.find_float_regions(config, clock.left, min_gain)
        clock.left_out += not clock.left()  # not all regions are known
        block_snr_db.update(snr_db)
        return regions

    def is_good_enough(measurement: Measurement) -> bool:
        return measurement.faster and not why_missed(options, measurement, data, strict=True)

    if candidates.timed and options.precision != AUTO:
        measured = search_fastest(
            candidates.placements, measure, find_float_regions, is_good_enough, has_time
        )
    elif candidates.timed:
        measured = search_front(candidates.placements, measure, find_float_regions, has_time)
    else:
        measured = search_untimed(
            candidates.placements, measure, find_float_regions, candidates.float_share, has_time
        )
    measured = with_better_times(measured)
    if not clock.left_out and not candidates.deaths:
        measurement_cache.record(key, SearchResult, SearchResult(measured, block_snr_db))
    return SearchResult(measured, block_snr_db, clock.left_out)


class _Clock:
    """Clock that decides whether another candidate fits into the time limit of a search.

    It counts wall-clock time, because that is what the user waits for: a busy machine measures fewer
    candidates. A candidate is skipped if the last one with the same rounding took longer than the time left.
    The last one is used and not the first, which also analyses the float network and times the parent.

    Args:
        seconds: Time limit of the search.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self._last: dict[str, float] = {}
        self.left_out = 0

    def left(self) -> bool:
        return time.monotonic() < self._end

    def seconds_left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)

    def has_time(self, config: CandidateConfig, share: float = 1.0) -> bool:
        """Return whether a candidate fits into the first ``share`` (0 to 1) of the time. If it does not fit
        into all of it, it counts as left out."""
        done = time.monotonic() + self._last.get(config.recipe.rounding, 0.0)
        self.left_out += done >= self._end
        return done < self._end - (1 - share) * self._seconds

    @contextmanager
    def spending(self, config: CandidateConfig) -> Iterator[None]:
        """Measure the time that one candidate takes."""
        started = time.monotonic()
        yield
        self._last[config.recipe.rounding] = time.monotonic() - started


def as_manifest_entry(measurement: Measurement, lost: str) -> SearchedCandidate:
    """Return a candidate's manifest entry; ``lost`` is why it was rejected, or ""."""
    fidelity, config = measurement.fidelity, measurement.config
    return {
        "choice": str(config),
        "placement": config.placement,
        "recipe": asdict(config.recipe),
        "floats": sorted(config.floats),
        "agreement": None if fidelity is None else fidelity.score.as_json(),
        "snr_db": None if fidelity is None or not math.isfinite(fidelity.snr_db) else fidelity.snr_db,
        "task": None if fidelity is None or fidelity.task is None else fidelity.task.as_json(),
        "ratio": measurement.ratio,
        "lost": lost,
    }


def why_missed(
    options: BuildOptions, measurement: Measurement, data: QuantizationData, strict: bool = False
) -> str:
    """Return why a candidate misses the goal in validation, beyond chance; "" if it meets it."""
    if measurement.fidelity is None:
        return measurement.failure
    samples = len(data.search_context.validation)
    return options.goal.missed(measurement.fidelity, data.labelled, samples, strict=strict)


def best_rejected(measured: Sequence[Measurement]) -> Measurement:
    """Return the best of rejected candidates: first faster than the parent, then most accurate."""
    return max(measured, key=lambda t: (t.fidelity is not None, t.faster, t.rank))
