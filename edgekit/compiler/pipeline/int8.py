"""int8 for the targets of a build: calibrate once, search for each target, test on held-out samples.

quantization_data   splits the samples, observes the float graph, computes the float model's outputs
int8_search         searches for one target (quantize/search); results are cached
int8_evaluation     tests a candidate on the held-out samples, and accepts or rejects it
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from edgekit.bundle.evidence import Search, SearchedCandidate
from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.causes import plain_int8
from edgekit.compiler.pipeline.faults import Fault
from edgekit.compiler.pipeline.int8_evaluation import float_reasons, try_int8
from edgekit.compiler.pipeline.int8_search import (
    SearchResult,
    as_manifest_entry,
    best_rejected,
    is_good_enough,
    record_shipped,
    search_int8,
    why_missed,
)
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.variant_build import VariantBuild, by_profile, parent_of, runs_here
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import (
    best_with_baseline,
    front_with,
    pareto_front,
    preferred,
    rejection_reason,
)
from edgekit.compiler.quantize.search.measurement import QUICK, CandidateConfig, Measurement
from edgekit.compiler.quantize.search.strategy import better_recipe
from edgekit.errors import UsageError
from edgekit.system.progress import Notify
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, precision_of

T = TypeVar("T")


def int8_profiles(
    options: BuildOptions, targets: Sequence[BuildTarget], has_samples: bool
) -> tuple[list[str], str]:
    """Return the profiles that int8 is searched for, and the reason that it is not searched for the others.

    Raises:
        UsageError: int8 was requested by name, and is not available.
    """
    if not options.makes("searched"):
        return [], ""
    by_name = options.precision != AUTO
    if not has_samples:
        reason = "int8 needs calibration samples: add --samples with 64 to 128 typical inputs"
        if by_name:
            raise UsageError(f"{reason}; or use int8-weights, which needs no samples, fp32, fp16 or auto")
        return [], reason
    without = ", ".join(target.profile.name for target in targets if target.rules is None)
    reason = f"{without} has no quantization rules" if without else ""
    if without and by_name:
        raise UsageError(f"{reason}; use fp32, fp16 or auto")
    return [target.profile.name for target in targets if target.rules is not None], reason


def add_int8(
    job: BuildJob, variants: Sequence[VariantBuild], data: QuantizationData, notify: Notify
) -> list[VariantBuild]:
    """Return the variants, with the int8 variants of each profile after its float ones."""
    groups, options, left = by_profile(variants), job.options, job.options.seconds
    parents = {name: parent for name in job.int8_profiles if (parent := parent_of(groups[name])) is not None}

    def in_turn(step: Callable[[VariantBuild, float | None], T]) -> dict[str, T | Fault]:
        """Run a step for each target, with an equal share of the seconds that are left of a time limit."""
        nonlocal left
        results = {}
        for index, (name, parent) in enumerate(parents.items()):
            started, seconds = time.monotonic(), None if left is None else left / (len(parents) - index)
            results[name] = job.faults.contain(name, f"{name}-int8", partial(step, parent, seconds))
            left = None if left is None else max(left - (time.monotonic() - started), 0.0)
        return results

    def search_as_int8(parent: VariantBuild, seconds: float | None) -> SearchResult:
        with open_candidates(data, parent) as candidates:
            return search_int8(data, candidates, replace(options, precision="int8"), seconds, notify)

    def build(parent: VariantBuild, seconds: float | None) -> list[VariantBuild] | Fault:
        first = searched.get(parent.profile.name)
        return first if isinstance(first, Fault) else build_int8(job, data, parent, first, seconds, notify)

    # What int8 would ship comes first, for every target, whatever time is left then for the front.
    searched = in_turn(search_as_int8) if options.precision == AUTO else {}
    built = in_turn(build)
    for name in job.int8_profiles:
        floats = groups[name]
        added = built.get(name, Fault(f"its float parent, {floats[0].name}, failed", is_bug=False))
        if isinstance(added, Fault):
            lost = VariantBuild(floats[0].target, "int8", parents.get(name))
            lost.lose(added)
            added = [lost]
        # Without times a runtime loads the first variant, so the precision requested by name goes first.
        untimed = added[0].outcome is Status.NOT_RUN or added[0].by_reference
        groups[name] = [*added, *floats] if options.precision != AUTO and untimed else [*floats, *added]
    together = [variant for group in groups.values() for variant in group]
    kept_count = sum(precision_of(v.precision).stage == "searched" and not v.rejected for v in together)
    is_cut = any(v.evidence.get("search", {}).get("left_out") for v in together)
    limit = f"; the time limit of {options.seconds:g} s left some candidates out" if is_cut else ""
    notify(f"int8 variants kept: {kept_count}{limit}")
    return together


def open_candidates(
    data: QuantizationData, parent: VariantBuild, known: Sequence[Measurement] = ()
) -> Candidates:
    """Open the candidates of one target, with measurements that are not repeated."""
    target = parent.target
    # A reference executor is slow and computes the Q/DQ graph itself: only the final test runs on it.
    engine_runs = target.missing() is None and not parent.by_reference
    version = target.executor().engine_version() if engine_runs else ""
    timed = parent.artifact if parent.timed and runs_here(parent.profile) else None
    return Candidates(data.search_context, target, parent.rules, timed, version, known)


def build_int8(
    job: BuildJob,
    data: QuantizationData,
    parent: VariantBuild,
    first: SearchResult | None,
    seconds: float | None,
    notify: Notify,
    resumes: bool = True,
) -> list[VariantBuild]:
    """Search for one target, test the shortlist, and choose the variants, the fastest first.

    Args:
        first: With ``auto``: the search with ``int8``, done before. What it would ship is shipped, unless
            there is a candidate that is no slower and no less accurate.
        seconds: The user's time limit of the search; None for none.
        resumes: Whether the search may end with what an earlier build shipped. If that fails the test, the
            whole search follows.
    """
    known = first.measured if first is not None else ()
    with open_candidates(data, parent, known) as candidates:
        result = first
        if result is None or candidates.timed:  # what is not timed is searched alike for int8 and for auto
            result = search_int8(data, candidates, job.options, seconds, notify, resumes)
        result = result.after(first) if first is not None else result
        shortlist = make_shortlist(job.options, data, candidates, result, known)
        test = partial(try_int8, job, data, parent, candidates, notify)
        further = partial(measure_further, job.options, data, candidates, shortlist)
        variants = choose(job.options, shortlist, test, candidates.measure, further)
        resumed = result.resumed or (first is not None and first.resumed)
        if resumed and any(variant.rejected for variant in variants):
            if first is not None:
                as_int8 = replace(job.options, precision="int8")
                first = search_int8(data, candidates, as_int8, seconds, notify, resumes=False)
            return build_int8(job, data, parent, first, seconds, notify, resumes=False)
        plain = plain_int8(candidates, [v.evidence["causes"] for v in variants if "causes" in v.evidence])
    block_snr_db = {name: snr_db for name, snr_db in result.block_snr_db.items() if math.isfinite(snr_db)}
    # The keys are the manifest's.
    search: Search = {"tried": shortlist.entries(), "damage": block_snr_db, "left_out": result.left_out}
    if result.resumed:
        search["resumed"] = True
    shipped = [v.config for v in variants if v.config is not None and not v.rejected]
    if shipped and not result.left_out:
        record_shipped(data, candidates, job.options, shipped)
    if result.left_out and job.options.seconds is not None:
        search["limit_s"] = job.options.seconds
    if plain is not None:
        search["plain"] = as_manifest_entry(plain, "")
    variants[0].evidence["search"] = search
    for variant in variants:
        if "quantization" in variant.evidence:
            variant.evidence["quantization"]["because"] = float_reasons(variant, block_snr_db)
    return variants


@dataclass
class Shortlist:
    """Candidates of one target that are worth a test on held-out samples.

    Attributes:
        measured: All measurements.
        missed: Reason that a candidate misses the accuracy goal in validation; "" if it meets it.
        valid: Measurements that meet the goal.
        winners: Measurements to ship, the fastest first.
    """

    measured: list[Measurement]
    missed: dict[CandidateConfig, str]
    valid: list[Measurement]
    winners: list[Measurement]

    def add(self, measurement: Measurement, missed: str = "") -> None:
        """Add a measurement, and the reason that it misses the goal; "" if another recipe meets it."""
        if measurement.config not in self.missed:
            self.measured.append(measurement)
            self.missed[measurement.config] = missed or measurement.failure

    def entries(self) -> list[SearchedCandidate]:
        """Return the manifest's entries of all candidates, each with the reason that it is not shipped."""
        losses = [
            "" if m in self.winners else rejection_reason(m, self.winners, self.missed[m.config])
            for m in self.measured
        ]
        return [as_manifest_entry(m, loss) for m, loss in zip(self.measured, losses, strict=True)]


def make_shortlist(
    options: BuildOptions,
    data: QuantizationData,
    candidates: Candidates,
    result: SearchResult,
    as_int8: Sequence[Measurement],
) -> Shortlist:
    """Select the candidates to test: the fastest that is good enough or, with ``auto``, the Pareto front.

    Args:
        as_int8: Measurements of the search with ``int8``, whose best one is on the front of ``auto``.
    """
    measured = [*result.measured]
    missed = {m.config: why_missed(options, m, data) for m in measured}
    valid = [m for m in measured if not missed[m.config]]
    # The search goes on past one that is good but for chance, and such a one is the second choice.
    valid = [m for m in valid if is_good_enough(options, m, data)] or valid
    is_front = options.precision == AUTO
    usable = [m for m in valid if m.faster and (m in as_int8 or not is_front)]
    winners = pareto_front(valid) if is_front else []
    if usable:
        winners = front_with(winners, preferred(usable))
    better = [best_with_baseline(winner, measured, candidates.measure) for winner in winners]
    missed.update({m.config: why_missed(options, m, data) for m in measured})
    winners = [
        winner if missed[baseline.config] else baseline
        for winner, baseline in zip(winners, better, strict=True)
    ]
    return Shortlist(measured, missed, valid, winners)


def measure_further(
    options: BuildOptions, data: QuantizationData, candidates: Candidates, shortlist: Shortlist
) -> Measurement | None:
    """Measure the placements that the search left out, until one is good enough; None if none is."""
    measured = {measurement.config.placement for measurement in shortlist.measured}
    for placement in (name for name in candidates.placements if name not in measured):
        measurement = candidates.measure(CandidateConfig(placement, QUICK))
        shortlist.add(measurement, why_missed(options, measurement, data))
        if is_good_enough(options, measurement, data):
            return measurement
    return None


def choose(
    options: BuildOptions,
    shortlist: Shortlist,
    test: Callable[[CandidateConfig, Sequence[VariantBuild]], VariantBuild],
    measure: Callable[[CandidateConfig], Measurement],
    further: Callable[[], Measurement | None],
) -> list[VariantBuild]:
    """Test the shortlist, and return its variants. If no candidate is good enough: the best one, rejected or
    shipped by force.

    With ``int8``, if the fastest one fails the test or is doubtful, the most accurate other one is tested
    too, with a better recipe if it was only measured with the quick one. If the fastest one fails and there
    is no other structure, ``further`` measures placements that the search left out. A third is never tested:
    the more are tested on the same samples, the less a passed test says.
    """
    shipped, variants = shortlist.winners or [best_rejected(shortlist.measured)], list[VariantBuild]()
    for measurement in shipped:
        variants.append(test(measurement.config, variants))
        if not shortlist.winners:
            variants[-1].reject(rejection_reason(measurement, (), shortlist.missed[measurement.config]))
    first = shipped[0].config
    if options.precision == AUTO or not shortlist.winners:
        return variants  # without a winner, no candidate that is accurate enough is faster than the parent
    if not (variants[0].rejected or variants[0].doubtful):
        return variants
    others = [m for m in shortlist.valid if m not in shipped]
    second = _most_accurate([m for m in others if m.config.structure != first.structure])
    if second is None and variants[0].rejected:
        second = further()
    if second is not None and second.config.recipe == QUICK:
        refined = measure(replace(second.config, recipe=better_recipe(second)))
        shortlist.add(refined)
        second = max(second, refined, key=lambda m: m.accuracy)
    second = second or _most_accurate(others)  # the first structure with another recipe
    if second is None:
        return variants
    variant = test(second.config, ())
    if variant.rejected or (variant.doubtful and not variants[0].rejected):
        return variants
    reason = variants[0].reason if variants[0].rejected else variants[0].evidence["agreement"]["not_proved"]
    shortlist.missed[first] = f"on the test samples: {reason}"
    shortlist.winners = [second]
    return [variant]


def _most_accurate(measured: Sequence[Measurement]) -> Measurement | None:
    saturated = [m for m in measured if m.saturated]
    return preferred(saturated) if saturated else max(measured, key=lambda m: m.rank, default=None)
