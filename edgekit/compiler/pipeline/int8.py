"""int8 for the targets of a build: calibrate once, search for each target, test on held-out samples.

quantization_data   splits the samples, observes the float graph, computes the float model's outputs
int8_search         searches for one target (quantize/search) within a time limit; results are cached
int8_evaluation     tests the best candidates on the held-out samples, and accepts or rejects them
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.causes import causes_of_int8, plain_int8
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.int8_evaluation import because, evaluate_int8
from edgekit.compiler.pipeline.int8_search import (
    SearchResult,
    as_manifest_entry,
    best_rejected,
    search_int8,
    why_missed,
)
from edgekit.compiler.pipeline.quantization_data import QuantizationData
from edgekit.compiler.pipeline.variant_build import VariantBuild, lost_variant, runs_here
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.fronts import (
    best_with_baseline,
    front_with,
    pareto_front,
    rejection_reason,
)
from edgekit.compiler.quantize.search.measurement import Measurement
from edgekit.errors import UsageError
from edgekit.system.progress import Notify
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, precision_of
from edgekit.target.quant_rules import Rules


def find_all_rules(
    options: BuildOptions, targets: Sequence[BuildTarget], has_samples: bool
) -> tuple[dict[str, Rules], str]:
    """Return the rules of each profile that int8 is searched for, and why it is not searched for the others.

    Raises:
        UsageError: int8 was requested by name, and is not available.
    """
    if not options.makes("searched"):
        return {}, ""
    by_name = options.precision != AUTO
    if not has_samples:
        reason = "int8 needs calibration samples: add --samples with 64 to 128 typical inputs"
        if by_name:
            raise UsageError(f"{reason}; or use int8-weights, which needs no samples, fp32, fp16 or auto")
        return {}, reason
    rules = {target.profile.name: target.rules for target in targets if target.rules is not None}
    without = ", ".join(target.profile.name for target in targets if target.rules is None)
    reason = f"{without} has no quantization rules" if without else ""
    if without and by_name:
        raise UsageError(f"{reason}; use fp32, fp16 or auto")
    return rules, reason


def add_int8(
    variants: Sequence[VariantBuild],
    data: QuantizationData,
    rules: Mapping[str, Rules],
    options: BuildOptions,
    faults: Faults,
    notify: Notify,
) -> list[VariantBuild]:
    """Return the variants, with the int8 variants of each profile after its float ones.

    Args:
        variants: Variants of all profiles, each profile's parent first.
        data: Data to calibrate, search and test int8 with.
        rules: Profile name -> its quantization rules.
        options: Holds the accuracy goal and the time limit.
        faults: One met while a target is searched costs its int8 variants.
        notify: Called with progress messages.
    """
    by_profile: dict[str, list[VariantBuild]] = {}
    for variant in variants:
        by_profile.setdefault(variant.profile.name, []).append(variant)
    left = options.seconds
    parents = {name: next((v for v in by_profile[name] if v.artifact.files), None) for name in rules}
    first: dict[str, SearchResult | Fault] = {}
    if options.precision == AUTO:
        # What int8 would ship comes first, for every target, whatever time is left then for the front.
        for index, (name, parent) in enumerate(parents.items()):
            if parent is not None:
                started = time.monotonic()
                find = partial(_search, data, rules[name], parent, replace(options, precision="int8"))
                seconds = left / (len(rules) - index)
                first[name] = faults.contain(name, f"{name}-int8", partial(find, seconds, notify))
                left = max(left - (time.monotonic() - started), 0.0)
    for index, (name, parent) in enumerate(parents.items()):
        started, profile_variants = time.monotonic(), by_profile[name]
        seconds = left / (len(rules) - index)
        added = _contained(
            data, rules[name], profile_variants[0], parent, options, seconds, first.get(name), faults, notify
        )
        left = max(left - (time.monotonic() - started), 0.0)
        # Without times a runtime loads the first variant, so the precision requested by name goes first.
        untimed = added[0].outcome is Status.NOT_RUN or added[0].by_reference
        by_name = options.precision != AUTO and untimed
        by_profile[name] = [*added, *profile_variants] if by_name else [*profile_variants, *added]
    together = [variant for profile_variants in by_profile.values() for variant in profile_variants]
    accepted_count = sum(precision_of(v.precision).stage == "searched" and not v.rejected for v in together)
    cut = [search for v in together if (search := v.evidence.get("search", {})).get("left_out")]
    limit = f"; the time limit of {options.seconds:g} s left some candidates out" if cut else ""
    notify(f"int8 variants kept: {accepted_count}{limit}")
    return together


def _contained(
    data: QuantizationData,
    rules: Rules,
    floats: VariantBuild,
    parent: VariantBuild | None,
    options: BuildOptions,
    seconds: float,
    first: SearchResult | Fault | None,
    faults: Faults,
    notify: Notify,
) -> list[VariantBuild]:
    """Return the int8 variants of one profile, or a lost one if the search met a fault."""
    name = f"{floats.profile.name}-int8"
    built: list[VariantBuild] | Fault
    if parent is None:
        built = Fault(f"its float parent, {floats.name}, failed", is_bug=False)
    elif isinstance(first, Fault):
        built = first
    else:
        build = partial(build_int8, data, rules, parent, options, seconds, notify, first)
        built = faults.contain(floats.profile.name, name, build)
    return [lost_variant(name, floats.target, "int8", parent, built)] if isinstance(built, Fault) else built


def without_fallbacks(variants: Sequence[VariantBuild]) -> list[VariantBuild]:
    """Return the variants without the float ones of each profile that has int8."""
    int8 = [v for v in variants if precision_of(v.precision).stage != "compiled"]
    profiles = {v.profile.name for v in int8 if not v.rejected}
    return [v for v in variants if v in int8 or v.profile.name not in profiles]


def _opened(
    data: QuantizationData,
    rules: Rules,
    parent: VariantBuild,
    measurements: Sequence[Measurement] = (),
) -> tuple[Candidates, str]:
    """Open the candidates of one target, and return them with the version of the engine that runs them, or ""
    if none runs them."""
    target = parent.target
    version = "" if target.missing() is not None else target.executor().engine_version()
    timed = parent.artifact if parent.timed and runs_here(parent.profile) else None
    # A reference executor is slow and computes the Q/DQ graph itself: only the final test runs on it.
    version = "" if parent.by_reference else version
    context = data.search_context
    return Candidates(context, target, rules, timed, version, measurements), version


def _search(
    data: QuantizationData,
    rules: Rules,
    parent: VariantBuild,
    options: BuildOptions,
    seconds: float,
    notify: Notify,
) -> SearchResult:
    opened, version = _opened(data, rules, parent)
    with opened as candidates:
        return search_int8(data, parent.profile, rules, candidates, options, seconds, version, notify)


def build_int8(
    data: QuantizationData,
    rules: Rules,
    parent: VariantBuild,
    options: BuildOptions,
    seconds: float,
    notify: Notify,
    first: SearchResult | None = None,
) -> list[VariantBuild]:
    """Search for one target, and test the best candidates.

    Args:
        data: Data to calibrate, search and test int8 with.
        rules: The target's rules.
        parent: The float variant, which int8 must be faster than.
        options: Holds the accuracy goal.
        seconds: Time limit of the search.
        notify: Called with each candidate and its result.
        first: With ``auto``: the search with ``int8``, done before. What it would ship is shipped, unless
            there is a candidate that is no slower and no less accurate.

    Returns:
        The variants, fastest first. If no candidate is good enough: the best one, rejected or shipped by
        force. With ``int8``, where the fastest one fails on the test samples, the most accurate one is tested
        too. There is no third: the more are tested on the same samples, the less a passed test says.
    """
    opened, version = _opened(data, rules, parent, first.measured if first is not None else ())
    with opened as candidates:
        result = first
        if result is None or candidates.timed:  # what is not timed is searched alike for int8 and for auto
            result = search_int8(data, parent.profile, rules, candidates, options, seconds, version, notify)
        result = result.after(first) if first is not None else result
        measured = [*result.measured]
        missed = {m.config: why_missed(options, m, data) for m in measured}
        valid = [m for m in measured if not missed[m.config]]
        # The search goes on past one that is good but for chance, and such a one is the second choice.
        valid = [m for m in valid if m.faster and not why_missed(options, m, data, strict=True)] or valid
        winners = pareto_front(valid)
        if options.precision != AUTO:
            winners = winners[:1]
        if first is not None and (points := pareto_front([m for m in first.measured if m in valid])):
            winners = front_with(winners, points[0])
        better = [best_with_baseline(measurement, measured, candidates.measure) for measurement in winners]
        missed.update({m.config: why_missed(options, m, data) for m in measured})
        pairs = zip(winners, better, strict=True)
        winners = [measurement if missed[other.config] else other for measurement, other in pairs]
        shipped = winners or [best_rejected(measured)]
        variants: list[VariantBuild] = []
        for measurement in shipped:
            notify(f"{parent.profile.name}  testing on {data.counts['prove']} samples  {measurement.config}")
            variant = evaluate_int8(data, parent, options, candidates, measurement.config, variants)
            if not winners:
                variant.reject(rejection_reason(measurement, (), missed[measurement.config]))
            if variant.artifact.files:
                variant.evidence["causes"] = causes_of_int8(candidates, measurement.config)
            variants.append(variant)
        second = max(valid, key=lambda m: m.rank, default=None)
        if options.precision != AUTO and variants[0].rejected and second and second not in shipped:
            notify(f"{parent.profile.name}  testing the most accurate one too  {second.config}")
            variant = evaluate_int8(data, parent, options, candidates, second.config, ())
            if not variant.rejected:
                missed[shipped[0].config] = f"on the test samples: {variants[0].reason}"
                variants, winners = [variant], [second]
        causes = [variant.evidence["causes"] for variant in variants if "causes" in variant.evidence]
        plain = plain_int8(candidates, rules, causes)
    entries = [
        as_manifest_entry(m, "" if m in winners else rejection_reason(m, winners, missed[m.config]))
        for m in measured
    ]
    block_snr_db = {name: snr_db for name, snr_db in result.block_snr_db.items() if math.isfinite(snr_db)}
    # The keys are the manifest's.
    variants[0].evidence["search"] = {"tried": entries, "damage": block_snr_db, "left_out": result.left_out}
    if result.left_out:
        variants[0].evidence["search"]["limit_s"] = options.seconds
    if plain is not None:
        variants[0].evidence["search"]["plain"] = as_manifest_entry(plain, "")
    for variant in variants:
        if "quantization" in variant.evidence:
            variant.evidence["quantization"]["because"] = because(variant, block_snr_db)
    return variants
