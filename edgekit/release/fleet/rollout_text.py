"""A rollout's verdict in words."""

from __future__ import annotations

import math
from typing import Any

from edgekit.release.fleet.rank_test import LEAST_OF_BOTH
from edgekit.release.fleet.rollout import MeasureResult, Verdict, is_small
from edgekit.release.fleet.sequential_test import LEAST

SAYS = {"promote": "not worse by the margin", "stop": "worse", "wait": "not known yet"}


def sentence(verdict: Verdict) -> str:
    """Describe the decision and its reason in a sentence."""
    reached = f"bundle {verdict.candidate} is on {verdict.reached} of {verdict.devices} devices"
    if verdict.decision == "stop":
        worse = [f"{f.measure.name} got worse" for f in verdict.findings if f.decision == "stop"]
        if verdict.given_up_too_often:
            worse.append("devices drop it")
        text = f"stop: {' and '.join(worse)}"
    elif verdict.decision == "promote":
        text = "promote: no metric got worse by its margin"
    else:
        text = f"{'no verdict' if verdict.is_impossible else 'wait'}: {_missing(verdict)}"
    gave_up = f", of which {verdict.given_up} dropped it" if verdict.given_up else ""
    return f"{text}; {reached}{gave_up}"


def finding_cells(finding: MeasureResult) -> tuple[str, ...]:
    """Measure, devices, difference, its limits, what that says."""
    figures = (finding.difference, finding.low, finding.high)
    return (
        finding.measure.name,
        f"{finding.devices[1]} against {finding.devices[0]}",
        *(_shown(finding, figure) for figure in figures),
        SAYS[finding.decision],
    )


def as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "decision": verdict.decision,
        "baseline": verdict.baseline,
        "candidate": verdict.candidate,
        "reached": verdict.reached,
        "devices": verdict.devices,
        "given_up": verdict.given_up,
        "needs_devices": verdict.needs_devices,
        "impossible": verdict.is_impossible,
        "given_up_too_often": verdict.given_up_too_often,
        "findings": [
            {
                "measure": finding.measure.name,
                "devices": {"baseline": finding.devices[0], "candidate": finding.devices[1]},
                "worse_by": finding.difference,
                "low": finding.low if math.isfinite(finding.low) else None,
                "high": finding.high if math.isfinite(finding.high) else None,
                "margin": finding.measure.margin,
                "decision": finding.decision,
            }
            for finding in verdict.findings
        ],
    }


def _missing(verdict: Verdict) -> str:
    if verdict.is_impossible:
        return (
            f"{verdict.devices} devices are too few for a verdict, also later: at least {LEAST_OF_BOTH} must "
            "report, half of them with the new bundle; compare the table, or roll out to a larger fleet"
        )
    old, new = (min((f.devices[arm] for f in verdict.findings), default=0) for arm in (0, 1))
    if is_small(verdict.devices):
        minimum = LEAST_OF_BOTH // 2
        if min(old, new) < minimum:
            return (
                f"{minimum} devices with each bundle are needed that have answered enough before and after; "
                f"{new} with the new one and {old} with the old one have"
            )
    elif min(old, new) < LEAST:
        return (
            f"{LEAST} devices with each bundle are needed that have answered enough before and after; "
            f"{new} with the new one and {old} with the old one have"
        )
    if verdict.needs_devices:
        return "the devices of this stage cannot settle the difference: add devices"
    return "the difference is not known well enough yet"


def _shown(finding: MeasureResult, value: float) -> str:
    if not math.isfinite(value):
        return "-"
    if finding.measure.percent:
        return f"{100 * math.expm1(value):+.1f} %"
    return f"{100 * value:+.2f} points"
