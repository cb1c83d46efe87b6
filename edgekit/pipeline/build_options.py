"""What is asked of a build: which precisions are tried, how much accuracy may be lost, how long to search."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from edgekit.errors import UsageError
from edgekit.evaluate.fidelity import Fidelity, Score
from edgekit.target.precisions import AUTO, TABLE
from edgekit.tensors import Json

ASKED = tuple(row for row in TABLE if row.by_name)
PRECISIONS: Mapping[str, tuple[str, ...]] = {
    # int8 and forms must beat their parent; a model that comes with Q/DQ pairs has none
    **{row.name: (row.parent or row.name,) for row in ASKED},
    AUTO: tuple(row.name for row in ASKED if row.in_auto and not row.parent),
}
"""What is asked for -> what is tried before any int8, the parent first."""

INT8 = (*(row.name for row in ASKED if row.needs_samples), AUTO)
"""What makes the quantizer work."""

WEIGHT_FORMS: Mapping[str, tuple[str, ...]] = {
    **{row.name: (row.name,) for row in ASKED if row.weights_alone},
    AUTO: tuple(row.name for row in ASKED if row.in_auto and row.weights_alone),
}
"""What makes weights alone be stored otherwise -> in which forms (quantize/rules.py)."""
FOR_SIZE = tuple(row.name for row in ASKED if row.for_size)
"""Forms that are for the size of the file: what is asked for by name is shipped without its float parent."""

DEFAULT_DROPS: Mapping[str, float] = {"self-mAP": 0.25, "top-1 agreement": 0.1}
"""What may be lost of the agreement where nobody says. A detector of self-mAP .8 lost about .015 of .34 mAP
(YOLOX-nano); what collapses, as one scale for a whole network of unlike channels does, is far below."""
COUNTED = ("top-1 agreement", "top-1")
"""Metrics that are parts of the samples."""
CHANCE = 2.0
"""Standard errors of such a part."""
DEFAULT_SNR_DB = 12.0
"""The least SNR of the worst output, where there is no task and nobody says: noise of 1/4 of the norm."""
TIME_BUDGETS_SECONDS: Mapping[str, float] = {"int8": 60.0, "auto": 180.0}
"""How long to search where nobody says: ``int8`` ends with what will do, ``auto`` looks for a front."""


@dataclass(frozen=True)
class Goal:
    """What may be lost.

    Attributes:
        drop: Part (0 to 1) of the task's own metric where the samples are labelled, else of the agreement.
        snr_db: The least SNR of the worst output.
    """

    drop: float | None = None
    snr_db: float | None = None

    def missed(self, found: Fidelity, parent: Score | None = None, chance_of: int | None = None) -> str:
        """Why this is not enough, in words; "" where it is.

        Args:
            found: Of the variant.
            parent: The task's own metric of the float model on the same samples, where they are labelled.
            chance_of: So many samples only choose, others prove: where a part of them is counted, what
                CHANCE standard errors explain is no miss. Two of 14 named otherwise is nothing against 0.9.
        """
        if self.snr_db is not None:
            enough = found.snr_db >= self.snr_db
            return "" if enough else f"SNR {_figure(found.snr_db)} dB; {self.snr_db:g} dB is asked for"
        if self.drop is not None and found.task is not None and parent is not None:
            return _below(found.task, (1 - self.drop) * parent.value, chance_of)
        if found.score.unit:
            if self.drop is None:
                return _below(found.score, DEFAULT_SNR_DB)
            # A part of the signal's norm that may be noise: 20 log10(1 / drop).
            return _below(found.score, -20 * math.log10(self.drop) if self.drop else math.inf)
        drop = DEFAULT_DROPS[found.score.metric] if self.drop is None else self.drop
        return _below(found.score, 1 - drop, chance_of)

    def as_json(self) -> Json:
        if self.snr_db is not None:
            return f"{self.snr_db:g}dB"
        return None if self.drop is None else f"{100 * self.drop:g}%"


@dataclass(frozen=True)
class BuildOptions:
    """How int8 is looked for.

    Attributes:
        precision: ``int8``: the first that is good enough; ``auto``: the whole front; or a form of weights.
        goal: What may be lost.
        seconds: How long to search, for all targets together.
        force: Ship int8 that is rejected, marked.
        fallback: Whether the float parent travels with an int8 variant.
    """

    precision: str
    goal: Goal = Goal()
    seconds: float = 0.0
    force: bool = False
    fallback: bool = True

    def as_json(self) -> dict[str, Json]:
        """For the manifest's options; nothing where int8 is not looked for."""
        if self.precision not in (*INT8, *WEIGHT_FORMS):
            return {}
        return {
            "max_drop": self.goal.as_json(),
            **({"time_budget": self.seconds} if self.precision in INT8 else {}),
            "force": self.force,
            "fallback": self.fallback,
        }


def build_options(
    precision: str, max_drop: str | None, time_budget: float | None, force: bool, fallback: bool
) -> BuildOptions:
    """Check what the options of a build say about precision.

    Raises:
        UsageError: an option is unknown, malformed, or means nothing with this precision.
    """
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}; available: {', '.join(PRECISIONS)}")
    given = {
        "--max-drop": max_drop is not None,
        "--time-budget": time_budget is not None,
        "--force": force,
        "--no-fallback": not fallback,
    }
    for flag in (flag for flag, is_given in given.items() if is_given):
        if precision not in (*INT8, *WEIGHT_FORMS):
            raise UsageError(f"{flag} is about int8, and precision is {precision}; use int8 or auto")
        if flag == "--time-budget" and precision not in INT8:
            raise UsageError(f"--time-budget is for a search, and {precision} takes none; use int8 or auto")
        if flag == "--no-fallback" and precision in FOR_SIZE:
            raise UsageError(
                f"{precision} is shipped without its float parent anyway; leave --no-fallback out"
            )
    if time_budget is not None and not 0 <= time_budget < math.inf:
        raise UsageError(f"--time-budget is {time_budget:g}; it must be a number of seconds, 0 or more")
    goal = parse_max_drop(max_drop) if max_drop is not None else Goal()
    seconds = TIME_BUDGETS_SECONDS.get(precision, 0.0) if time_budget is None else time_budget
    return BuildOptions(precision, goal, seconds, force, fallback)


def parse_max_drop(text: str) -> Goal:
    """``2%`` of the task's metric or the fidelity score; ``24dB``: the least SNR.

    >>> parse_max_drop("2%"), parse_max_drop("24 dB")
    (Goal(drop=0.02, snr_db=None), Goal(drop=None, snr_db=24.0))

    Raises:
        UsageError: it is neither.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|dB)\s*", text, re.IGNORECASE | re.ASCII)
    if match and match[2] == "%" and float(match[1]) <= 100:
        return Goal(drop=float(match[1]) / 100)
    if match and match[2] != "%":
        return Goal(snr_db=float(match[1]))
    raise UsageError(
        f"--max-drop is {text!r}; it must be a percentage of the task's metric or agreement, e.g. 2%, "
        "or the least SNR, e.g. 24dB"
    )


def _below(score: Score, least: float, chance_of: int | None = None) -> str:
    chance = 0.0
    if chance_of and score.metric in COUNTED:
        chance = CHANCE * math.sqrt(least * (1 - least) / chance_of)
    if score.value >= least - chance:
        return ""
    wanted = "an exact answer" if least == math.inf else f"{least:.1f} dB" if score.unit else f"{least:.3f}"
    return f"{score.metric if score.unit else ''} {score}; {wanted} is asked for".lstrip()


def _figure(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else str(value)
