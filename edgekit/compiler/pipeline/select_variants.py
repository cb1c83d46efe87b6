"""Selection of a build's variants, once all are tried: timed in turns, then kept only with a gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from edgekit.bundle.evidence import Timing
from edgekit.compiler.evaluate.relative_time import FASTER, ratio_to_parent
from edgekit.compiler.evaluate.timing import REPORTED_RUNS, TIMED_RUNS, confirmed_ratio, opened, time_in_turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.variant_build import VariantBuild, runs_here
from edgekit.system import breadcrumbs
from edgekit.system.cpu import default_threads
from edgekit.system.formats.plain_text import size
from edgekit.target.precisions import AUTO, precision_of


def select(
    variants: Sequence[VariantBuild], options: BuildOptions, reference: ReferenceOutputs
) -> list[VariantBuild]:
    """Select timed variants: reject or drop those without a gain."""
    whole = [variant for variant in variants if variant.shrunk is None]
    smaller = [variant for variant in variants if variant.shrunk is not None]
    selected = [*select_forms(whole, options), *smaller]
    select_smaller(selected, reference)
    return selected if options.fallback else _without_fallbacks(selected)


def time_variants(variants: Sequence[VariantBuild], reference: ReferenceOutputs, faults: Faults) -> None:
    """Time the variants that verified, in turns, and reject those slower than their parent, and those that
    do not run any more."""
    by_key = _timings(variants, reference, faults)
    ran = [variant for variant in variants if variant.timed]
    for variant in ran:
        variant.evidence["timing"] = by_key[variant.target.name, variant.to_time.digest]
    for variant in ran:
        if variant.parent is not None and variant.parent.timed:
            compare = partial(_ratio_to_parent, variant, variant.parent, reference)
            ratio = variant.attempt(faults, compare)
            if ratio is not None and ratio > variant.slower_limit:
                variant.reject(f"{ratio:.2f}x the time of {variant.parent.name}")
    for variant in ran:  # variants with the same bytes share their times; each gets its own copy
        variant.evidence["timing"] = variant.evidence["timing"].copy()
        if not runs_here(variant.profile):
            variant.evidence["timing"]["elsewhere"] = True


def _timings(
    variants: Sequence[VariantBuild], reference: ReferenceOutputs, faults: Faults
) -> dict[tuple[str, str], Timing]:
    """Map target and digest to the timing of variants that still run; others are lost to their fault."""
    ran = [variant for variant in variants if variant.timed]
    unique = {(v.target.name, v.to_time.digest): v.to_time for v in ran}
    runs = TIMED_RUNS if any(variant.parent is not None for variant in ran) else REPORTED_RUNS
    together = f"timing {', '.join(variant.name for variant in ran)}"
    try:
        with breadcrumbs.at_risk(together):
            return dict(zip(unique, time_in_turns(list(unique.values()), reference, runs), strict=True))
    except Exception:  # whose it is shows when each runs alone
        for variant in ran:
            variant.attempt(faults, partial(_run_once, variant, reference))
        if all(variant.timed for variant in ran):
            if not breadcrumbs.has_ended(together):
                raise
            return {key: time_in_turns([timed], reference, runs)[0] for key, timed in unique.items()}
    return _timings(variants, reference, faults)


def _run_once(variant: VariantBuild, reference: ReferenceOutputs) -> None:
    with ExitStack() as stack:
        opened(stack, variant.to_time, reference, default_threads())[0].run(reference.samples[0])


def _ratio_to_parent(variant: VariantBuild, parent: VariantBuild, reference: ReferenceOutputs) -> float:
    """Return the latency relative to the parent. A variant that seems too slow is timed again."""
    timing, limit = variant.evidence["timing"], variant.slower_limit
    if "stored_weights" in variant.evidence or variant.shrunk is not None:
        timing["ratio"] = ratio_to_parent(variant.to_time, parent.to_time, reference)
        return timing["ratio"]
    parent_ms = parent.evidence["timing"]["min_ms"]
    ratio = float(timing["min_ms"] / parent_ms)
    if ratio <= limit:
        return ratio
    return confirmed_ratio(variant.to_time, parent.to_time, timing, parent_ms, limit, reference)


def select_forms(variants: Sequence[VariantBuild], options: BuildOptions) -> list[VariantBuild]:
    """Select weight-only variants once all are timed: the fastest of each form, if it has a gain.

    ``int8-dynamic`` must be faster than float. So must ``int8-weights``, unless it was requested by name:
    then its purpose is the file size, and it is shipped without its parent. With ``auto``, a form is rejected
    if an int8 variant is faster and no less accurate.
    """
    groups: dict[str, list[VariantBuild]] = {}
    for variant in variants:
        groups.setdefault(variant.name, []).append(variant)
    left = [_fastest(group) for group in groups.values()]
    for_size = [t for t in left if precision_of(t.precision).for_size]
    for variant in [t for t in for_size if t.parent is not None and t.artifact.files]:
        sizes = [t.evidence["size_bytes"] for t in (variant, variant.parent) if t is not None]
        if sizes[0] >= sizes[1]:  # the source stores its weights so already, or few of them are large
            variant.reject(f"it saves no space: {size(sizes[0])}, while fp32 has {size(sizes[1])}")
    for variant in [t for t in left if "stored_weights" in t.evidence and t.timed]:
        parent, ratio = variant.parent, _ratio(variant)
        faster_int8 = (t for t in left if t.profile == variant.profile and _is_better(t, variant))
        if parent is None or not parent.timed:
            continue
        if ratio > FASTER and runs_here(variant.profile) and not options.for_size:
            variant.reject(no_gain_reason(variant, parent, ratio))
        elif options.precision == AUTO and (faster := next(faster_int8, None)):
            variant.reject(f"{faster.name} is faster and as accurate")
    if options.for_size:
        has = {t.profile.name for t in left if t.precision == options.precision and not t.rejected}
        left = [t for t in left if t.profile.name not in has or t.precision == options.precision]
    return left


def _fastest(group: Sequence[VariantBuild]) -> VariantBuild:
    """Return the fastest accepted variant of one name; its evidence records the times of the others."""
    best = min(group, key=lambda t: (t.rejected, _ratio(t)))
    if len(group) > 1 and "stored_weights" in best.evidence:
        best.evidence["stored_weights"]["lost"] = [
            {"ops": t.evidence["stored_weights"]["ops"], "lost": f"{_ratio(t):.2f}x the time of fp32"}
            for t in group
            if t is not best and "stored_weights" in t.evidence
        ]
    return best


def no_gain_reason(variant: VariantBuild, parent: VariantBuild, ratio: float) -> str:
    """Return the reason that rejects a weight-only form that is not faster than its parent."""
    words = f"{ratio:.2f}x the time of {parent.name}"
    if not precision_of(variant.precision).for_size:
        return words
    sizes = [size(t.evidence["size_bytes"]) for t in (variant, parent)]
    return (
        f"{words}; to save space ({sizes[0]} instead of {sizes[1]}), build it with --precision "
        f"{variant.precision}"
    )


def _ratio(variant: VariantBuild) -> float:
    """Return the latency relative to the parent; 1 if they were not timed."""
    stored, timing = variant.evidence.get("stored_weights", {}), variant.evidence.get("timing")
    if "ratio" in stored:
        return float(stored["ratio"])
    if timing is None or variant.parent is None or "timing" not in variant.parent.evidence:
        return 1.0
    return float(timing.get("ratio", timing["min_ms"] / variant.parent.evidence["timing"]["min_ms"]))


def _is_better(int8: VariantBuild, form: VariantBuild) -> bool:
    """Return whether an int8 variant is kept, faster than the form, and no less accurate in the test."""
    if int8.rejected or not int8.timed or "quantization" not in int8.evidence:
        return False
    one, other = (t.evidence["agreement"]["value"] for t in (int8, form))
    return _ratio(int8) < _ratio(form) and other is not None and (one is None or one >= other)


def select_smaller(variants: Sequence[VariantBuild], reference: ReferenceOutputs) -> None:
    """Reject smaller variants, once all are timed, that are not faster than every more accurate one."""
    accepted = [v for v in variants if not v.rejected and v.timed and v.shrunk is None]
    smaller = [v for v in variants if not v.rejected and v.shrunk is not None]
    for variant in sorted(smaller, key=lambda v: (-_accuracy(v), _milliseconds(v))):
        if not variant.timed:
            variant.reject("it could not be timed here")
        elif variant.parent is not None and variant.parent.rejected:
            variant.reject(f"its parent {variant.parent.name} was rejected")
        elif (better := _fastest_better(variant, accepted)) is not None:
            ratio = ratio_to_parent(variant.to_time, better.to_time, reference)
            if ratio > FASTER:
                variant.reject(f"{ratio:.2f}x the time of {better.name}, which is more accurate")
        if not variant.rejected:
            accepted.append(variant)


def _fastest_better(variant: VariantBuild, variants: Sequence[VariantBuild]) -> VariantBuild | None:
    """Return the fastest variant of the same profile that is no less accurate, or None."""
    candidates = [v for v in variants if v.profile == variant.profile and _accuracy(v) >= _accuracy(variant)]
    return min(candidates, key=_milliseconds, default=None)


def _accuracy(variant: VariantBuild) -> float:
    """Return the fidelity to the whole float model; infinite if the outputs are equal."""
    agreement = variant.evidence.get("agreement")
    if agreement is None or agreement["value"] is None:
        return math.inf
    return float(agreement["value"])


def _milliseconds(variant: VariantBuild) -> float:
    timing = variant.evidence.get("timing")
    return float(timing["min_ms"]) if timing else math.inf


def _without_fallbacks(variants: Sequence[VariantBuild]) -> list[VariantBuild]:
    """Return the variants without the float ones of each profile that has int8."""
    int8 = [v for v in variants if precision_of(v.precision).stage != "compiled"]
    profiles = {v.profile.name for v in int8 if not v.rejected}
    return [v for v in variants if v in int8 or v.profile.name not in profiles]
