"""Forecast of a build: which step of how many runs, and the seconds that are left of all of them.

A build consists of parts of a few kinds: a float variant to compile, a candidate rounded to nearest, one with
optimized weights. The time of a part that is yet to come is the mean of its kind so far, or else a multiple
of the calibration's, which runs before every search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from statistics import fmean

from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.system.progress import Progress, Stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO

SAME_STEP = {"labels": "card"}
"""Stage -> the planned one whose place it takes."""
NEAREST, OPTIMIZED, REGIONS, TEST = "nearest", "optimized", "regions", "test"
"""Kinds of parts of a search: a candidate rounded to nearest, one with optimized weights, the choice of
regions that stay in float, the final test."""
SCREENED = 6
"""Typical number of placements that a search measures."""
SEARCH = {"int8": {NEAREST: SCREENED + 1.0, OPTIMIZED: 1.0}, AUTO: {NEAREST: 2.0, OPTIMIZED: 2.5, TEST: 2.0}}
"""Typical parts of a search, by its precision."""
LONGER = {NEAREST: 0.5, OPTIMIZED: 2.5}
"""Parts that are still to come of a search that is longer than a typical one."""
TYPICAL: Mapping[str, tuple[str, float, float]] = {
    "opened": ("", 0.0, 2.0),
    "checked": ("", 0.0, 1.0),
    "reference": ("", 0.0, 6.0),
    "compared": ("reference", 0.5, 0.0),
    "card": ("reference", 1.0, 0.0),
    "labels": ("reference", 2.2, 0.0),
    "compiled": ("", 0.0, 2.0),
    NEAREST: ("calibrated", 0.15, 0.5),
    OPTIMIZED: ("calibrated", 1.65, 2.0),
    REGIONS: ("calibrated", 0.15, 0.0),
    TEST: ("calibrated", 0.13, 0.2),
    "estimated": ("", 0.0, 1.0),
    "timed": ("compiled", 2.0, 0.0),
}
"""Kind -> another kind, the multiple of its time, and seconds in addition, for a kind that has not run yet:
fitted to eleven builds (docs/measured.md). Any other kind has no forecast until a part of it has ended."""
COUNTED = {"calibrated": 0.4, "labels": 0.6}
"""Share of a part's time in which its items are counted, if not all of it."""
LATE = 0.1
"""A part that takes longer than expected takes this share of its time so far in addition."""


def part(group: str, kind: str, name: object = "") -> str:
    """Return the name of a part for ``Stage.part``: its group, its kind, and what tells it from others."""
    return f"{group}/{kind}/{name}"


class Forecast:
    """Progress callback that adds the step and the seconds left to the events of a build.

    Args:
        progress: Called with the events.
        expected: Number of expected parts by kind, for each group in the order in which they run: a stage,
            or the search of a target.
    """

    def __init__(
        self, progress: Progress, steps: Sequence[str], expected: Mapping[str, Mapping[str, float]]
    ) -> None:
        self._progress, self._steps, self._step = progress, steps, 1
        self._expected = {group: dict(kinds) for group, kinds in expected.items()}
        self._finished_s: dict[str, list[float]] = {}
        self._part, self._began_s = "", 0.0
        self._share, self._counted_s = 0.0, 0.0

    def __call__(self, stage: Stage) -> None:
        now, name = time.monotonic(), SAME_STEP.get(stage.name, stage.name)
        if name in self._steps:
            self._step = self._steps.index(name) + 1
            whole = "" if name in ("searched", "weights") else part(name, stage.name)
            self._follow(stage.part or whole, stage, now)
        left_s = self._left_s(now, math.inf if stage.left_s is None else stage.left_s)
        self._progress(stage._replace(part="", step=self._step, steps=len(self._steps), left_s=left_s))

    def _follow(self, running: str, stage: Stage, now: float) -> None:
        has_ended = stage.seconds is not None
        if self._part and (has_ended or running not in ("", self._part)):
            self._finished_s.setdefault(_kind(self._part), []).append(now - self._began_s)
            self._part = ""
        if running and running != self._part and not has_ended:
            self._begin(running, now)
        if stage.done and stage.total:
            counted = COUNTED.get(stage.name, 1.0) * stage.done / stage.total
            is_slower = _kind(self._part) == OPTIMIZED  # its later layers take longer
            self._share = counted**2 if is_slower else counted
            self._counted_s = now - self._began_s

    def _begin(self, running: str, now: float) -> None:
        self._part, self._began_s, self._share = running, now, 0.0
        group, kind = running.split("/")[0], _kind(running)
        for earlier in [*self._expected][: [*self._expected, group].index(group)]:
            if group in self._expected:
                del self._expected[earlier]
        kinds = self._expected.setdefault(group, {})
        if kind == REGIONS:  # the first structure was not accurate enough: another one will be optimized
            kinds[OPTIMIZED] = kinds.get(OPTIMIZED, 0.0) + 1
        elif kind not in kinds:
            kinds.clear()
        kinds[kind] = kinds[kind] - 1 if kinds.get(kind, 0.0) >= 1 else LONGER.get(kind, 0.0)

    def _left_s(self, now: float, limit_s: float) -> float | None:
        """Return the seconds left of the whole build, of which searches take ``limit_s`` at most. None means
        that it has parts of unknown length."""
        left_s = {False: 0.0, True: 0.0}
        for group, kinds in self._expected.items():
            for kind, count in kinds.items():
                left_s[group in self._steps] += count * self._cost_s(kind) if count else 0.0
        if self._part:
            spent_s = now - self._began_s
            rest_s = max(self._cost_s(_kind(self._part), now_running=True) - spent_s, LATE * spent_s)
            left_s[self._part.split("/")[0] in self._steps] += rest_s
        whole_s = left_s[True] + min(left_s[False], limit_s)
        return None if math.isnan(whole_s) else whole_s

    def _cost_s(self, kind: str, *, now_running: bool = False) -> float:
        """Return the seconds that a part of this kind takes; not a number if nothing tells yet."""
        if kind in self._finished_s:
            typical_s = fmean(self._finished_s[kind])
        else:
            base, multiple, seconds = TYPICAL.get(kind, ("", 0.0, math.nan))
            typical_s = multiple * self._cost_s(base) + seconds if base else seconds
        is_counted = self._share > 0 and _kind(self._part) == kind
        if not is_counted or (kind in self._finished_s and not now_running):
            return typical_s
        counted_s = self._counted_s / self._share  # the more of it is done, the better a guide
        return counted_s if math.isnan(typical_s) else typical_s + self._share * (counted_s - typical_s)


def _kind(running: str) -> str:
    return running.split("/")[1] if running else ""


def forecast(
    progress: Progress, options: BuildOptions, targets: Sequence[BuildTarget], request: BuildRequest
) -> Forecast:
    """Return the forecast of a build by its request."""
    names, precision = [target.profile.name for target in targets], options.precision
    searched = names if request.samples is not None and options.makes("searched") else []
    planned = {
        "opened": 1,
        "checked": 1,
        "reference": 1,
        "card": int(request.card is not None),
        "compiled": len(names) * (2 if precision == AUTO else 1),
        "calibrated": int(request.samples is not None and options.has_goal),
        "searched": len(searched),
        "quantized": int(options.makes("quantized")),
        "weights": 2 * len(names) if options.makes("weights") else 0,
        "shrunk": int(bool(options.shrink)),
        "estimated": int(any(target.info.estimate is not None for target in targets)),
        "timed": 1,
    }
    expected: dict[str, Mapping[str, float]] = {}
    for name, count in planned.items():
        if name == "searched" and precision == AUTO:
            expected |= {f"{target} int8": SEARCH["int8"] for target in searched}
        if name == "searched":
            kinds = SEARCH[precision] if precision == AUTO else {**SEARCH["int8"], TEST: 1.0}
            expected |= {f"{target} {precision}": kinds for target in searched}
        elif count:
            expected[name] = {NEAREST if name == "weights" else name: float(count)}
    return Forecast(progress, [name for name, count in planned.items() if count], expected)
