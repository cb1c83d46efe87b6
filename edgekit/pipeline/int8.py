"""int8 for the targets of a build: calibrate once, search for each target, prove on what chose nothing.

quantization_data   split the samples; observe the float graph; the float model's outputs
int8_search         for a target: what is tried (quantize/search), within the time, remembered
int8_evaluation     what won is run on the held-out samples, and kept, or why not
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from edgekit.bundle.variant import Status
from edgekit.errors import UsageError
from edgekit.pipeline.build_options import INT8, BuildOptions
from edgekit.pipeline.int8_evaluation import because, evaluate_int8
from edgekit.pipeline.int8_search import Say, as_fact, best_refused, search_int8, why_missed
from edgekit.pipeline.quantization_data import QuantizationData
from edgekit.pipeline.variant_build import VariantBuild, runs_here
from edgekit.quantize.search.candidates import Candidates
from edgekit.quantize.search.strategy import best_with_baseline, pareto_front, rejection_reason, select_one
from edgekit.target.build_target import BuildTarget
from edgekit.target.quant_rules import Rules


def find_all_rules(
    asked: BuildOptions, targets: Sequence[BuildTarget], has_samples: bool
) -> tuple[dict[str, Rules], str]:
    """The rules of each profile that int8 is looked for, and why it is not for the others.

    Raises:
        UsageError: int8 is asked for by name, and can't be made.
    """
    if asked.precision not in INT8:
        return {}, ""
    by_name = asked.precision == "int8"
    if not has_samples:
        why = "int8 is calibrated on samples: give --samples, 64 to 128 inputs like those the model will see"
        if by_name:
            raise UsageError(f"{why}; or use int8-weights, which needs none, fp32, fp16 or auto")
        return {}, why
    rules = {target.profile.name: target.rules for target in targets if target.rules is not None}
    without = ", ".join(target.profile.name for target in targets if target.rules is None)
    why = f"{without} has no rules for quantizing" if without else ""
    if without and by_name:
        raise UsageError(f"{why}; use fp32, fp16 or auto")
    return rules, why


def add_int8(
    trials: Sequence[VariantBuild],
    data: QuantizationData,
    rules: Mapping[str, Rules],
    asked: BuildOptions,
    say: Say,
) -> list[VariantBuild]:
    """The trials with the int8 of each profile behind those that it has so far.

    Args:
        trials: Of all profiles, each profile's parent first.
        data: Of the build.
        rules: By profile name.
        asked: What is good enough, and how long to search for it.
        say: Told what was found.
    """
    found: dict[str, list[VariantBuild]] = {}
    for trial in trials:
        found.setdefault(trial.profile.name, []).append(trial)
    left = asked.seconds
    for place, (name, own) in enumerate((n, own) for n, own in found.items() if n in rules):
        started = time.monotonic()
        made = try_int8(data, rules[name], own[0], asked, left / (len(rules) - place), say)
        left = max(left - (time.monotonic() - started), 0.0)
        # Where nobody can time, a runtime takes the first that is there: what was asked for by name.
        untimed = made[0].outcome is Status.NOT_RUN or made[0].by_reference
        by_name = asked.precision == "int8" and untimed
        found[name] = [*made, *own] if by_name else [*own, *made]
    together = [trial for own in found.values() for trial in own]
    kept = sum(t.precision.startswith("int8") and not t.rejected for t in together)
    say(f"int8 variants kept: {kept}")
    return together


def without_fallbacks(trials: Sequence[VariantBuild]) -> list[VariantBuild]:
    """What is left where the float parents of int8 variants are not wanted."""
    has_int8 = {t.profile.name for t in trials if t.precision.startswith("int8") and not t.rejected}
    return [t for t in trials if t.profile.name not in has_int8 or t.precision.startswith("int8")]


def try_int8(
    data: QuantizationData,
    rules: Rules,
    parent: VariantBuild,
    asked: BuildOptions,
    seconds: float,
    say: Say,
) -> list[VariantBuild]:
    """Search for a target, and prove what won.

    Args:
        data: Of the build.
        rules: Of the target.
        parent: The float variant: what int8 must be faster than.
        asked: What is good enough.
        seconds: Time for the search.
        say: Told what is being tried.

    Returns:
        The variants, fastest first. Where none is good enough: one that is rejected, or shipped by force.
    """
    target, profile = parent.target, parent.profile
    version = "" if target.missing() is not None else target.executor().engine_version()
    timed = parent.artifact if parent.timed and runs_here(profile) else None
    # A stand-in for hardware takes long, and what it computes is the Q/DQ graph: it has the last word only.
    chosen_on = "" if parent.by_reference else version
    with Candidates(data.bench, target, rules, timed, chosen_on) as candidates:
        found = search_int8(data, profile, rules, candidates, asked, seconds, chosen_on, say)
        tried, damage = [*found.tried], found.damage
        missed = {t.config: why_missed(asked, t, data) for t in tried}
        good = [t for t in tried if not missed[t.config]]
        winners = pareto_front(good)
        if asked.precision == "int8" and winners:
            winners = [select_one(winners)]
        winners = [best_with_baseline(each, tried, candidates.measure) for each in winners]
        missed.update({each.config: why_missed(asked, each, data) for each in tried})
        shipped = winners or [best_refused(tried)]
        trials: list[VariantBuild] = []
        for each in shipped:
            trial = evaluate_int8(data, parent, asked, candidates, each.config, trials)
            if not winners:
                trial.reject(rejection_reason(each, (), missed[each.config]))
            trials.append(trial)
    facts = [
        as_fact(t, "" if t in winners else rejection_reason(t, winners, missed[t.config])) for t in tried
    ]
    trials[0].evidence["search"] = {"tried": facts, "damage": dict(damage), "left_out": found.left_out}
    for trial, each in zip(trials, shipped, strict=True):
        if "quantization" in trial.evidence:
            trial.evidence["quantization"]["because"] = because(each.config, trial, damage)
    return trials
