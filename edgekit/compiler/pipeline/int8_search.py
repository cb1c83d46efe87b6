"""Int8 search of one target: its limits, its cached result, and its record in the manifest."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace

from edgekit.bundle.evidence import SearchedCandidate
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.forecast import NEAREST, OPTIMIZED, REGIONS, candidates_to_come, part
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import best_so_far
from edgekit.compiler.quantize.search.measurement import DEFAULT, QUICK, CandidateConfig, Measurement
from edgekit.compiler.quantize.search.strategy import search_fastest, search_front, search_untimed
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Notify
from edgekit.target.precisions import AUTO
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class SearchResult:
    """Result of a search.

    Attributes:
        measured: The candidates that were measured, in order.
        block_snr_db: Block -> SNR in dB with only its part of the network quantized, if it was examined.
        left_out: Number of candidates skipped because the user's time limit was over.
        resumed: Whether what an earlier build shipped is good enough, so that no others were measured.
    """

    measured: Sequence[Measurement]
    block_snr_db: dict[str, float] = field(default_factory=dict)
    left_out: int = 0
    resumed: bool = False

    def after(self, first: SearchResult) -> SearchResult:
        """Return this search's result, appended to that of an earlier search of the same target."""
        configs = {measurement.config for measurement in first.measured}
        added = [measurement for measurement in self.measured if measurement.config not in configs]
        return SearchResult(
            [*first.measured, *added],
            {**first.block_snr_db, **self.block_snr_db},
            self.left_out,
            self.resumed,
        )


@dataclass(frozen=True)
class _Shipped:
    """Candidates that a build shipped, the fastest first."""

    configs: Sequence[CandidateConfig] = ()


def search_int8(
    data: QuantizationData,
    candidates: Candidates,
    options: BuildOptions,
    seconds: float | None,
    notify: Notify,
    resumes: bool = True,
) -> SearchResult:
    """Search, or load the cached result of an identical search that was not cut.

    Candidates that the last build shipped for a graph that differs in its weights alone, or for other
    samples, are measured first. If they are good enough, the search ends.

    A search that the user's time limit has cut is not loaded. Its measurements are cached by candidate and
    take no time, so the search continues where it stopped.

    Args:
        seconds: The user's time limit; None for none.
        resumes: Whether the search may end with what an earlier build shipped.
    """
    # The target's first placement is measured in any case: float regions may be chosen in it.
    unlikely = data.search_context.inaccurate.intersection(candidates.placements[1:])
    key = _key("search", data.search_context.digest, candidates, options, sorted(unlikely))
    cached = measurement_cache.recall(key, SearchResult)
    if cached is not None and cached.measured and (resumes or not cached.resumed):
        _learn(data, options, cached.measured)
        return cached
    limit = _TimeLimit(seconds)
    result = _search(data, candidates, options, limit, notify, resumes, unlikely)
    _learn(data, options, result.measured)
    if not result.left_out and not candidates.deaths:
        measurement_cache.record(key, SearchResult, result)
    return result


def _search(
    data: QuantizationData,
    candidates: Candidates,
    options: BuildOptions,
    limit: _TimeLimit,
    notify: Notify,
    resumes: bool,
    unlikely: Collection[str],
) -> SearchResult:
    """Measure candidates. ``unlikely`` are placements that need not be."""
    profile, rules = candidates.target.profile, candidates.rules
    block_snr_db: dict[str, float] = {}
    measured_so_far: list[Measurement] = []
    best, running, label = "", "", profile.name
    group, placements = f"{profile.name} {options.precision}", candidates.placements
    to_come = candidates_to_come(profile.name, len(placements), [])

    def report(detail: str, done: int = 0, total: int = 0, unit: str = "", *_: object, **__: object) -> None:
        notify(f"{label}: {detail}", done, total, unit, limit.left_s(), best, running, to_come=to_come)

    def measure(config: CandidateConfig) -> Measurement:
        nonlocal best, running, label, to_come
        candidates.report = report
        if not candidates.is_known(config):
            kind = NEAREST if config.recipe.rounding == "nearest" else OPTIMIZED
            running = part(group, kind, len(measured_so_far))
            label = f"{profile.name}, candidate {len(measured_so_far) + 1}"
            report("quantizing")
        measured_so_far.append(candidates.measure(config))
        best, running = best_so_far(measured_so_far, candidates.parent_ms, is_enough), ""
        is_found = any(map(is_enough, measured_so_far))
        to_come = candidates_to_come(profile.name, len(placements), measured_so_far, is_found)
        report("compared")
        return measured_so_far[-1]

    def has_time(config: CandidateConfig) -> bool:
        return candidates.is_known(config) or limit.allows()

    def find_float_regions(config: CandidateConfig, min_gain: float) -> Sequence[frozenset[str]]:
        if rules.integers or not limit.allows():
            return ()
        nonlocal running, label
        candidates.report, running, label = report, part(group, REGIONS), profile.name
        report("noise of each part")
        regions, snr_db = candidates.find_float_regions(config, min_gain)
        block_snr_db.update(snr_db)
        return regions

    def is_enough(measurement: Measurement) -> bool:
        return is_good_enough(options, measurement, data)

    def may_be_enough(measurement: Measurement) -> bool:
        return options.goal.is_near(measurement.fidelity)

    common = (placements, candidates.floats_of, measure, find_float_regions)
    shipped = _recall_shipped(data, candidates, options) if resumes else ()
    resumed = bool(shipped) and all(has_time(config) and is_enough(measure(config)) for config in shipped)
    if resumed:
        pass
    elif candidates.timed and options.precision != AUTO:
        search_fastest(*common, is_enough, may_be_enough, has_time, unlikely)
    elif candidates.timed:
        search_front([p for p in placements if p not in unlikely], *common[1:], may_be_enough, has_time)
    else:
        search_untimed(placements, measure, find_float_regions, candidates.float_share, has_time)
    measured = list({measurement.config: measurement for measurement in measured_so_far}.values())
    return SearchResult(measured, block_snr_db, limit.left_out, resumed)


ENGINES_DIFFER = 0.04
"""Largest difference in a task's score between engines that counts: YOLOX-nano without depthwise kernels,
rounded to nearest, has a self-mAP of .88 on ONNX Runtime and .92 on OpenVINO, without riders .85 and .84."""


def _learn(data: QuantizationData, options: BuildOptions, measured: Sequence[Measurement]) -> None:
    """Note the placements that no recipe makes accurate enough, for the build's other targets."""
    for fidelity, config in ((m.fidelity, m.config) for m in measured if m.config.recipe == QUICK):
        if fidelity is not None and not fidelity.score.unit and not config.floats:
            score = replace(fidelity.score, value=fidelity.score.value + ENGINES_DIFFER)
            if not options.goal.is_near(replace(fidelity, score=score)):
                data.search_context.inaccurate.add(config.placement)


def record_shipped(
    data: QuantizationData,
    candidates: Candidates,
    options: BuildOptions,
    shipped: Sequence[CandidateConfig],
) -> None:
    """Record the candidates that a build ships, the fastest first, for the search of a retrained model."""
    for precision, configs in {"int8": shipped[:1], options.precision: shipped}.items():
        key = _shipped_key(data, candidates, replace(options, precision=precision))
        measurement_cache.record_shipped(key, _Shipped, _Shipped(configs))


def _recall_shipped(
    data: QuantizationData, candidates: Candidates, options: BuildOptions
) -> Sequence[CandidateConfig]:
    """Return the candidates that the last build of a graph of this structure shipped, if a search may measure
    them."""
    key = _shipped_key(data, candidates, options)
    configs = (measurement_cache.recall_shipped(key, _Shipped) or _Shipped()).configs
    recipes = (
        replace(config.recipe, samples=DEFAULT.samples, positions=DEFAULT.positions) for config in configs
    )
    is_usual = all(config.recipe == recipe for config, recipe in zip(configs, recipes, strict=True))
    is_known = {config.placement for config in configs} <= {*candidates.placements}
    return configs if is_usual and is_known else ()


def _shipped_key(data: QuantizationData, candidates: Candidates, options: BuildOptions) -> str:
    return _key("shipped", data.search_context.structure, candidates, options)


def _key(kind: str, model: str, candidates: Candidates, options: BuildOptions, *facts: Json) -> str:
    """Return the name of a record on a search. ``model`` is the digest of what is searched."""
    return measurement_cache.key(
        kind,
        model,
        repr(candidates.rules),
        candidates.target.profile.as_json(),
        candidates.version,
        default_threads(),
        [options.precision, options.goal.as_json(), candidates.timed],
        *facts,
    )


class _TimeLimit:
    """The user's time limit of one search in seconds, or None; counts the candidates that it left out."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self.left_out = 0

    def left_s(self) -> float | None:
        return None if self._end is None else max(self._end - time.monotonic(), 0.0)

    def allows(self) -> bool:
        """Return whether there is time for another candidate."""
        is_over = self.left_s() == 0.0
        self.left_out += is_over
        return not is_over


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


def is_good_enough(options: BuildOptions, measurement: Measurement, data: QuantizationData) -> bool:
    """Return whether a candidate is faster than its parent, and meets the goal with a margin for chance."""
    missed = why_missed(options, measurement, data, strict=True)
    return measurement.faster and not missed and options.goal.has_margin(measurement.fidelity)


def best_rejected(measured: Sequence[Measurement]) -> Measurement:
    """Return the best of rejected candidates: first faster than the parent, then most accurate."""
    return max(measured, key=lambda t: (t.fidelity is not None, t.faster, t.rank))
