"""Forecast of a build: which step of how many runs, and the seconds that are left of all of them.

A build consists of parts of a few kinds: a float variant to compile, a candidate rounded to nearest, one with
optimized weights. A search tells how many of each it expects (``candidates_to_come``). A part takes as long
as those of its kind so far, on its target if there were any; before the first one, a multiple of another
kind's.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from statistics import fmean

from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.quantize.search.fronts import pareto_front
from edgekit.compiler.quantize.search.measurement import Measurement
from edgekit.system.progress import Progress, Stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO

SAME_STEP = {"labels": "card"}
"""Stage -> the planned one whose place it takes."""
NEAREST, OPTIMIZED, REGIONS, TEST = "nearest", "optimized", "regions", "test"
"""Kinds of parts of a search: a candidate rounded to nearest, one with optimized weights, the choice of
regions that stay in float, the final test."""
PLACEMENTS = 5.0
"""Number of placements of a target, before its search tells it."""
PER_POINT = 5.0
"""Candidates with optimized weights for each point of the front, while none is saturated."""
MULTIPLES = {
    OPTIMIZED: (NEAREST, 5.0),
    REGIONS: (NEAREST, 1.0),
    TEST: (NEAREST, 0.5),
    "estimated": ("compiled", 1.0),
    "timed": ("compiled", 4.0),
}
"""Kind that has not run yet -> another kind, and the multiple of its time."""
EARLY_S = 10.0
"""No estimate is given before: too little has been measured by then."""
LATE = 0.1
"""A part that takes longer than expected takes this share of its time so far in addition."""


def part(group: str, kind: str, name: object = "") -> str:
    """Return the name of a part for ``Stage.part``: its group, its kind, and what tells it from others."""
    return f"{group}/{kind}/{name}"


def candidates_to_come(
    profile: str, placements: float, measured: Sequence[Measurement], is_enough: bool = False
) -> dict[str, dict[str, float]]:
    """Return the parts that a target's two searches still have by what was measured so far, for
    ``Stage.to_come``. The first search ends soon once a candidate ``is_enough``; the second once one is
    saturated, for then no recipe can gain."""
    nearest = [m for m in measured if m.config.recipe.rounding == NEAREST]
    optimized = len(measured) - len(nearest)
    if not measured:
        once, most = 1.5, PER_POINT
    elif not any(m.faster for m in measured):  # no recipe makes them faster
        once, most = 0.0, 0.0
    elif any(m.saturated and m.faster for m in measured):
        once, most = 1.0, 1.0
    else:
        once, most = 1.0 if is_enough else 2.5, PER_POINT * len(pareto_front(nearest) or measured[:1])
    first = {NEAREST: max(placements - len(nearest), 0.0), OPTIMIZED: max(once - optimized, 0.0), TEST: 1.0}
    further = {NEAREST: 1.0, OPTIMIZED: max(most - max(optimized, 1.0), optimized / 4), TEST: 1.0}
    return {f"{profile} int8": first, f"{profile} {AUTO}": further}


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
        self._finished_s: dict[str, dict[str, list[float]]] = {}
        self._part, self._began_s, self._counted_s = "", 0.0, math.nan
        self._start_s = time.monotonic()

    def __call__(self, stage: Stage) -> None:
        now, name = time.monotonic(), SAME_STEP.get(stage.name, stage.name)
        if name in self._steps:
            self._step = self._steps.index(name) + 1
            whole = "" if name in ("searched", "weights") else part(name, stage.name)
            self._follow(stage.part or whole, stage, now)
        left_s = self._left_s(now, math.inf if stage.left_s is None else stage.left_s)
        stage = stage._replace(step=self._step, steps=len(self._steps), left_s=left_s)
        self._progress(stage._replace(part="", to_come=None))

    def _follow(self, running: str, stage: Stage, now: float) -> None:
        has_ended = stage.seconds is not None
        if self._part and (has_ended or running not in ("", self._part)):
            target, kind = _target_and_kind(self._part)
            self._finished_s.setdefault(kind, {}).setdefault(target, []).append(now - self._began_s)
            self._part = ""
        if running and running != self._part and not has_ended:
            self._part, self._began_s, self._counted_s = running, now, math.nan
            self._expect(running.split("/")[0])
            self._take(running)
        if stage.to_come:
            self._expected |= {k: dict(v) for k, v in stage.to_come.items() if k in self._expected}
            self._take(running)
        if stage.done and stage.total:
            self._counted_s = (now - self._began_s) * stage.total / stage.done

    def _expect(self, group: str) -> None:
        """Expect nothing more of the groups before this one."""
        for earlier in [*self._expected][: [*self._expected, group].index(group)]:
            if group in self._expected:
                del self._expected[earlier]
        self._expected.setdefault(group, {})

    def _take(self, running: str) -> None:
        """Count a part that begins as no longer expected."""
        if running:
            group, kind, _ = running.split("/", 2)
            self._expected[group][kind] = max(self._expected[group].get(kind, 0.0) - 1, 0.0)

    def _left_s(self, now: float, limit_s: float) -> float | None:
        """Return the seconds left of the whole build, of which searches take ``limit_s`` at most. None means
        that it has parts of unknown length."""
        left_s = {False: 0.0, True: 0.0}
        for group, kinds in self._expected.items():
            for kind, count in kinds.items():
                left_s[group in self._steps] += count * self._cost_s(group.split()[0], kind) if count else 0.0
        if self._part:
            spent_s, cost_s = now - self._began_s, self._cost_s(*_target_and_kind(self._part))
            rest_s = (self._counted_s if math.isnan(cost_s) else cost_s) - spent_s
            left_s[self._part.split("/")[0] in self._steps] += max(rest_s, LATE * spent_s)
        whole_s = left_s[True] + min(left_s[False], limit_s)
        return None if math.isnan(whole_s) or now < self._start_s + EARLY_S else whole_s

    def _cost_s(self, target: str, kind: str) -> float:
        """Return the seconds that a part of this kind takes; not a number if nothing tells yet."""
        if by_target := self._finished_s.get(kind):
            return fmean(by_target.get(target) or chain.from_iterable(by_target.values()))
        base, multiple = MULTIPLES.get(kind, ("", math.nan))
        return multiple * self._cost_s(target, base) if base else multiple


def _target_and_kind(running: str) -> tuple[str, str]:
    group, kind, _ = running.split("/", 2)
    return group.split()[0], kind


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
        if name == "searched":
            for run in ("int8", AUTO) if precision == AUTO else ("int8",):
                expected |= {
                    f"{t} {run}": candidates_to_come(t, PLACEMENTS, [])[f"{t} {run}"] for t in searched
                }
        elif count:
            expected[name] = {NEAREST if name == "weights" else name: float(count)}
    return Forecast(progress, [name for name, count in planned.items() if count], expected)
