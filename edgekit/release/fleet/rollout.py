"""Decisions of a staged rollout: devices with the new bundle against those with the old one.

Each device counts once, by its first responses under the new conditions minus its earlier ones. Devices
differ more from each other than two releases do. A sequential test compares the two groups of devices, and
may be evaluated after every report: by means, or by ranks in a fleet with too few devices for that
(:mod:`edgekit.release.fleet.sequential_test`). A hundredth of the devices may report anything without
changing a decision: means are trimmed by as many at both ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from edgekit.errors import UsageError
from edgekit.release.fleet.devices import Amounts, Device, DeviceInterval, Fleet, first_time, ignored
from edgekit.release.fleet.sequential_test import (
    LEAST,
    LEAST_OF_BOTH,
    mean_interval,
    shift_interval,
    trimmed_mean,
)
from edgekit.runtime.metrics.labelled_counts import Counts
from edgekit.runtime.store.health import burns_faster

Decision = Literal["promote", "stop", "wait"]

ANSWERS = 200
"""Minimum number of responses for a device to count."""
ALPHA = 0.05
"""Maximum share of rollouts that are stopped although the new bundle is not worse. The same limit applies to
rollouts that are promoted although it is worse by the margin."""
COUNTED = 0.9
"""Share of a stage's devices that completes the stage: some devices are off for weeks."""
MEANING = {"promote": "not worse by the margin", "stop": "worse", "wait": "not known yet"}


@dataclass(frozen=True)
class Measure:
    """Measure by which bundles are compared; a larger value is worse.

    Attributes:
        margin: Largest difference that does not matter.
        value: Function that computes the value from counts, or None if they do not contain it.
        percent: Whether values are logarithms, and differences percents of a time; else points.
    """

    name: str
    margin: float
    value: Callable[[Amounts], float | None]
    percent: bool = False


@dataclass(frozen=True)
class MeasureResult:
    """Result of comparing the devices by one measure.

    Attributes:
        devices: Number of devices that count, with the old and with the new bundle.
        difference: Value of the new bundle minus that of the old one; larger is worse.
        low, high: Confidence interval of the true difference, valid at all times.
    """

    measure: Measure
    devices: tuple[int, int]
    difference: float
    low: float
    high: float

    @property
    def decision(self) -> Decision:
        """Return ``promote`` if the new bundle is not worse by the margin, and ``stop`` if it is worse."""
        return "promote" if self.high < self.measure.margin else "stop" if self.low > 0 else "wait"

    @property
    def cells(self) -> tuple[str, ...]:
        """Return measure, devices, difference, its limits, and their meaning."""
        figures = [self._shown(value) for value in (self.difference, self.low, self.high)]
        devices = f"{self.devices[1]} against {self.devices[0]}"
        return self.measure.name, devices, *figures, MEANING[self.decision]

    def _shown(self, value: float) -> str:
        if not math.isfinite(value):
            return "-"
        return f"{100 * math.expm1(value):+.1f} %" if self.measure.percent else f"{100 * value:+.2f} points"

    def as_json(self) -> dict[str, Any]:
        return {
            "measure": self.measure.name,
            "devices": dict(zip(("baseline", "candidate"), self.devices, strict=True)),
            "worse_by": self.difference,
            "low": self.low if math.isfinite(self.low) else None,
            "high": self.high if math.isfinite(self.high) else None,
            "margin": self.measure.margin,
            "decision": self.decision,
        }


@dataclass(frozen=True)
class Verdict:
    """Decision on a rollout.

    Attributes:
        reached: Number of devices that have run the candidate.
        given_up: Number of devices whose store has dropped the candidate.
        given_up_too_often: Whether that is more often than for the baseline, by the sequential test of
            :mod:`edgekit.runtime.store.health`.
    """

    baseline: str
    candidate: str
    reached: int
    devices: int
    given_up: int
    given_up_too_often: bool
    findings: tuple[MeasureResult, ...]

    @property
    def decision(self) -> Decision:
        """Return ``stop`` if any measure decides it, ``promote`` if all do, else ``wait``."""
        decisions = {finding.decision for finding in self.findings}
        if self.given_up_too_often or "stop" in decisions:
            return "stop"
        return "promote" if decisions == {"promote"} else "wait"

    @property
    def is_impossible(self) -> bool:
        """Return whether the fleet is too small for any verdict by the measures."""
        return self.decision == "wait" and self.devices < LEAST_OF_BOTH

    @property
    def needs_devices(self) -> bool:
        """Return whether it waits although nearly all devices with the candidate have counted. Each counts
        once, so only additional devices add information."""
        minimum = 1 if is_small(self.devices) else LEAST
        enough = max(minimum, COUNTED * (self.reached - self.given_up))
        return self.decision == "wait" and self._counted(1) >= enough

    def _counted(self, group: int) -> int:
        return min((finding.devices[group] for finding in self.findings), default=0)

    def sentence(self) -> str:
        """Describe the decision and its reason in a sentence."""
        gave_up = f", of which {self.given_up} dropped it" if self.given_up else ""
        reached = f"bundle {self.candidate} is on {self.reached} of {self.devices} devices{gave_up}"
        return f"{self._reason()}; {reached}"

    def _reason(self) -> str:
        old, new = self._counted(0), self._counted(1)
        needed = LEAST_OF_BOTH // 2 if is_small(self.devices) else LEAST
        if self.decision == "stop":
            worse = [f"{f.measure.name} got worse" for f in self.findings if f.decision == "stop"]
            return f"stop: {' and '.join([*worse, *['devices drop it'] * self.given_up_too_often])}"
        if self.decision == "promote":
            return "promote: no metric got worse by its margin"
        if self.is_impossible:
            return (
                f"no verdict: {self.devices} devices are too few for a verdict, also later: at least "
                f"{LEAST_OF_BOTH} must report, half of them with the new bundle; compare the table, or roll "
                "out to a larger fleet"
            )
        if min(old, new) < needed:
            return (
                f"wait: {needed} devices with each bundle are needed that have answered enough before and "
                f"after; {new} with the new one and {old} with the old one have"
            )
        if self.needs_devices:
            return "wait: the devices of this stage cannot settle the difference: add devices"
        return "wait: the difference is not known well enough yet"

    def as_json(self) -> dict[str, Any]:
        names = ("decision", "baseline", "candidate", "reached", "devices", "given_up", "needs_devices")
        return {
            **{name: getattr(self, name) for name in names},
            "impossible": self.is_impossible,
            "given_up_too_often": self.given_up_too_often,
            "findings": [finding.as_json() for finding in self.findings],
        }


def measures(points: float = 0.01, slower: float = 0.1) -> tuple[Measure, ...]:
    """Return the measures: bad responses, the app's scores, and time.

    Args:
        points: Margin of the share of bad responses and of the mean score: .01 is one point of a hundred.
        slower: Margin of the time: .1 is 10 %.

    Raises:
        UsageError: a margin is not above 0 and below 1.
    """
    for value in (points, slower):
        if not 0 < value < 1:
            raise UsageError(f"a margin must be above 0 and below 1, not {value!r}")
    return (
        Measure("bad answers", points, _bad_share),
        Measure("scores", points, _lost_score),
        Measure("time", math.log1p(slower), _log_time, percent=True),
    )


def judged(
    fleet: Fleet,
    baseline: str,
    candidate: str,
    compared: Iterable[Measure] = (),
    answers: int = ANSWERS,
    alpha: float = ALPHA,
) -> Verdict:
    """Decide on a new bundle by the devices of a fleet.

    Args:
        compared: Measures; default: ``measures()``. A measure that no device reports is skipped.
        answers: Minimum number of responses for a device to count.
        alpha: Significance level of the test, for all measures together.

    Raises:
        UsageError: no device has run one of the bundles.
    """
    devices = list(fleet.devices.values())
    given_up = {device.name: device.newest.given_up for device in devices}
    reported = {*fleet.bundles, *(bundle for bundles in given_up.values() for bundle in bundles)}
    for digest in (baseline, candidate):
        if digest not in reported:
            raise UsageError(f"no device reports bundle {digest}; reported are {', '.join(sorted(reported))}")
    starts = {device.name: device.first_s(candidate) for device in devices}
    # Devices that had the old one before: no other one is compared.
    began = first_time(
        start
        for device in devices
        if (start := starts[device.name]) is not None and (device.first_s(baseline) or math.inf) < start
    )
    selected = tuple(compared) or measures()
    results = []
    for measure in selected:
        # One that got the candidate later was among the others until then.
        changes = (_change(device, measure, baseline, baseline, began, answers) for device in devices)
        old = [change for change in changes if change is not None]
        changes = (_change(device, measure, baseline, candidate, began, answers) for device in devices)
        new = [change for change in changes if change is not None]
        if not old and not new:
            continue
        level = alpha / len(selected)
        if is_small(len(devices)):
            interval = shift_interval(old, new, level)
        else:
            means = trimmed_mean(old, ignored(len(old))), trimmed_mean(new, ignored(len(new)))
            interval = mean_interval(*means, measure.margin, level)
        results.append(MeasureResult(measure, (len(old), len(new)), *interval))
    reached = sum(start is not None or candidate in given_up[name] for name, start in starts.items())
    lost, lost_before = (sum(digest in b for b in given_up.values()) for digest in (candidate, baseline))
    too_often = burns_faster(Counts(reached, failed=lost), (len(devices), lost_before))
    return Verdict(baseline, candidate, reached, len(devices), lost, too_often, tuple(results))


def is_small(devices: int) -> bool:
    """Return whether a fleet has too few devices for the test by means: it is judged by ranks."""
    return devices < 2 * LEAST


def _change(
    device: Device, measure: Measure, baseline: str, bundle: str, began: float, answers: int
) -> float | None:
    """Compare a device's first responses since the rollout's start with earlier ones. None means too few."""
    old = device.intervals(baseline)
    before = _first([interval for interval in reversed(old) if interval.end <= began], answers)
    after = _first([interval for interval in device.intervals(bundle) if interval.start >= began], answers)
    if before is None or after is None:
        return None
    was, now = measure.value(before), measure.value(after)
    return None if was is None or now is None else now - was


def _first(intervals: Iterable[DeviceInterval], answers: int) -> Amounts | None:
    """Sum the first intervals with so many responses. Ignore later ones, so that a device counts once."""
    total = Amounts()
    for interval in intervals:
        total = total.plus(interval.amounts)
        if total.answers >= answers:
            return total
    return None


def _bad_share(amounts: Amounts) -> float | None:
    return (amounts.failed + amounts.fallback) / amounts.answers if amounts.answers else None


def _lost_score(amounts: Amounts) -> float | None:
    return 1 - amounts.score_sum / amounts.scores if amounts.scores else None


def _log_time(amounts: Amounts) -> float | None:
    mean = amounts.seconds / amounts.times if amounts.times else 0.0
    return math.log(mean) if mean > 0 else None
