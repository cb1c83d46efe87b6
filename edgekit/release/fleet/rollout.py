"""Whether a staged rollout goes on: devices with the new bundle against those with the old one.

Each device counts once, with its first answers under the new conditions, and less what it did before: devices
differ more from each other than a release differs from the last one. The two groups of devices are compared
by a sequential test, which may be looked at after every report
(:mod:`edgekit.release.fleet.sequential_test`). A hundredth of the devices can say anything and change
nothing: means are trimmed by as many at both ends. Decisions only: no clock, no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from edgekit.errors import UsageError
from edgekit.release.fleet.devices import Amounts, Device, Fleet, Interval, first_time, ignored
from edgekit.release.fleet.sequential_test import LEAST, Arm, Comparison
from edgekit.runtime.metrics.labelled_counts import Counts
from edgekit.runtime.store.health import burns_faster

Decision = Literal["promote", "stop", "wait"]

ANSWERS = 200
"""After so many answers a device counts."""
ALPHA = 0.05
"""At most this share of rollouts is stopped though the new bundle is no worse, and as many are promoted
though it is worse by the margin."""


COUNTED = 0.9
"""Share of a stage's devices after which it has told what it can: some devices are off for weeks."""


@dataclass(frozen=True)
class Measure:
    """What is compared; a larger value is worse.

    Attributes:
        name: For people.
        margin: A difference that does not matter.
        value: Of some answers; None: they say nothing about it.
        percent: Whether values are logarithms, and differences percents of a time; else points.
    """

    name: str
    margin: float
    value: Callable[[Amounts], float | None]
    percent: bool = False


@dataclass(frozen=True)
class Finding:
    """What the devices say about one measure.

    Attributes:
        measure: What was compared.
        devices: How many count, with the old and with the new bundle.
        difference: Of the new bundle from the old one; larger is worse.
        low, high: Where the true difference lies, at all times, with the confidence of the test.
        decision: ``promote``: it is not worse by the margin; ``stop``: it is worse; ``wait``: neither is
            known.
    """

    measure: Measure
    devices: tuple[int, int]
    difference: float
    low: float
    high: float
    decision: Decision


@dataclass(frozen=True)
class Verdict:
    """What to do with a rollout.

    Attributes:
        baseline, candidate: The old and the new bundle.
        reached: Devices that have run the candidate.
        devices: All.
        given_up: Devices whose store gave the candidate up.
        given_up_too_often: Whether more of them do than gave up the baseline, by the sequential test of
            :mod:`edgekit.runtime.store.health`.
        findings: By measure.
    """

    baseline: str
    candidate: str
    reached: int
    devices: int
    given_up: int
    given_up_too_often: bool
    findings: tuple[Finding, ...]

    @property
    def decision(self) -> Decision:
        """``stop`` where one measure says so, ``promote`` where all do."""
        decisions = {finding.decision for finding in self.findings}
        if self.given_up_too_often or "stop" in decisions:
            return "stop"
        return "promote" if decisions == {"promote"} else "wait"

    @property
    def needs_devices(self) -> bool:
        """Whether it waits though nearly all devices with the candidate have counted: each counts once, so
        only further devices can tell more."""
        counted = min((finding.devices[1] for finding in self.findings), default=0)
        enough = max(LEAST, COUNTED * (self.reached - self.given_up))
        return self.decision == "wait" and counted >= enough


def measures(points: float = 0.01, slower: float = 0.1) -> tuple[Measure, ...]:
    """Bad answers, the app's scores, and time.

    Args:
        points: Margin of the share of bad answers and of the mean score: .01 is one point of a hundred.
        slower: Margin of the time: .1 is 10 %.

    Raises:
        UsageError: one is not above 0 and below 1.
    """
    for value in (points, slower):
        if not 0 < value < 1:
            raise UsageError(f"a margin is above 0 and below 1, not {value!r}")
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
    """What the devices of a fleet say about a new bundle.

    Args:
        fleet: The devices.
        baseline: Digest of the old bundle.
        candidate: Digest of the new one.
        compared: What counts; default: ``measures()``. One that no device reports is left out.
        answers: A device counts after so many.
        alpha: Of the test, for all measures together.

    Raises:
        UsageError: no device has run one of the bundles.
    """
    devices = list(fleet.devices.values())
    known = {*fleet.bundles, *(bundle for device in devices for bundle in device.given_up)}
    for digest in (baseline, candidate):
        if digest not in known:
            raise UsageError(f"no device reports bundle {digest}; reported are {', '.join(sorted(known))}")
    starts = {device.name: device.first_s(candidate) for device in devices}
    # Devices that had the old one before: no other one is compared.
    began = first_time(
        start
        for device in devices
        if (start := starts[device.name]) is not None and (device.first_s(baseline) or math.inf) < start
    )
    lost, lost_before = (
        {device.name for device in devices if bundle in device.given_up} for bundle in (candidate, baseline)
    )
    asked = tuple(compared) or measures()
    kept: list[Finding] = []
    for measure in asked:
        # One that got the candidate later was among the others until then.
        old, new = (
            _arm(_value(device, measure, baseline, bundle, began, answers) for device in devices)
            for bundle in (baseline, candidate)
        )
        if old.count or new.count:
            kept.append(_finding(measure, Comparison(measure.margin, old, new), alpha / len(asked)))
    reached = sum(start is not None or name in lost for name, start in starts.items())
    too_often = burns_faster(Counts(reached, failed=len(lost)), (len(devices), len(lost_before)))
    return Verdict(baseline, candidate, reached, len(devices), len(lost), too_often, tuple(kept))


def _arm(values: Iterable[float | None]) -> Arm:
    """The trimmed mean of a group and its variance: Yuen, "The two-sample trimmed t for unequal population
    variances", Biometrika 61 (1974), by winsorized squares."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return Arm()
    count = len(known)
    cut = min(ignored(count), (count - 1) // 2)
    kept = known[cut : count - cut]
    winsorized = [kept[0]] * cut + kept + [kept[-1]] * cut
    centre = math.fsum(winsorized) / count
    squares = math.fsum((value - centre) ** 2 for value in winsorized)
    # An arm's variance is of its numbers: so that by `count` it is that of the trimmed mean.
    as_many = count * (count - 1) / max(1, len(kept) * (len(kept) - 1))
    return Arm(count, math.fsum(kept) / len(kept), squares * as_many)


def _finding(measure: Measure, comparison: Comparison, alpha: float) -> Finding:
    counts = comparison.a.count, comparison.b.count
    low, high = comparison.interval(alpha)
    if min(counts) >= LEAST and not math.isfinite(high):  # nothing varies: all values are the same
        low = high = comparison.difference
    decision: Decision = "promote" if high < measure.margin else "stop" if low > 0 else "wait"
    return Finding(measure, counts, comparison.difference, low, high, decision)


def _value(
    device: Device, measure: Measure, baseline: str, bundle: str, began: float, answers: int
) -> float | None:
    """A device's first answers since the rollout began, less those before; None: it has too few of either."""
    old = device.intervals(baseline)
    before = _first([each for each in reversed(old) if each.end <= began], answers)
    after = _first([each for each in device.intervals(bundle) if each.start >= began], answers)
    if before is None or after is None:
        return None
    was, now = measure.value(before), measure.value(after)
    return None if was is None or now is None else now - was


def _first(intervals: Iterable[Interval], answers: int) -> Amounts | None:
    """The first of them with so many answers; later ones are not looked at, so that it counts once."""
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
