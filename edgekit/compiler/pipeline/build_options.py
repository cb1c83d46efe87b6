"""Options of a build for precision: the precisions to build, the accuracy goal, the time limit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from edgekit.compiler.compress.goal import share_of
from edgekit.compiler.compress.training_length import TrainingLength, training_length
from edgekit.compiler.evaluate.accuracy_limits import Goal
from edgekit.compiler.model.shape_sets import further_shapes
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.errors import UsageError
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, FULL_PRECISION, TABLE, Stage, precision_of, requested
from edgekit.tensor_spec import Json

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    # int8 and weight-only variants need their parent; a model with Q/DQ pairs has none
    name: tuple(
        dict.fromkeys(
            variant_precision
            for row in requested(name)
            for variant_precision in (row.parent, row.name if row.stage == "compiled" else "")
            if variant_precision
        )
    )
    for name in (*(row.name for row in TABLE if row.is_for_tensors), AUTO)
}
"""Requested precision -> the precisions that are compiled before quantization, the parent first."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build for precision.

    Attributes:
        precision: ``int8`` for the first candidate that is good enough, ``auto`` for the whole Pareto front,
            or a float precision or weight-only form.
        seconds: Time limit of the search, for all targets together. None means that the number of candidates
            alone ends it, so that every machine tries the same ones.
        force: Whether to ship a rejected int8 variant, marked as such.
        fallback: Whether the float parent of an int8 variant is in the bundle too.
        shrink: Smaller models to build too: ``auto``, or a share, e.g. ``-50%``; "" for none.
        distil: Length of the training of each smaller model; None for no training.
        by_profile: Whether none was requested: ``precision`` is fp32, but profiles may have their own.
    """

    precision: str
    goal: Goal = field(default_factory=Goal)
    seconds: float | None = None
    force: bool = False
    fallback: bool = True
    shrink: str = ""
    distil: TrainingLength | None = None
    by_profile: bool = False

    def makes(self, stage: Stage) -> bool:
        """Return whether a requested precision is made in this stage of the build."""
        return any(row.stage == stage for row in requested(self.precision))

    @property
    def has_goal(self) -> bool:
        """Return whether a requested precision is held to an accuracy goal."""
        return any(row.stage != "compiled" for row in requested(self.precision))

    @property
    def for_size(self) -> bool:
        """Return whether the form requested by name reduces the file size: it ships without its parent."""
        return precision_of(self.precision).for_size

    @property
    def smaller_goal(self) -> Goal:
        """Return the goal of smaller models. One of a given size has a goal only if the user gives one."""
        return self.goal if self.shrink == AUTO or self.goal != Goal() else Goal(snr_db=-math.inf)

    def as_json(self) -> dict[str, Json]:
        """Return the manifest's options that differ in form from the request, or that were set by default."""
        distil: dict[str, Json] = {} if self.distil is None else {"distil": str(self.distil)}
        if not self.has_goal:
            return {"max_drop": self.goal.as_json(), **distil} if self.shrink else {}
        return {
            **distil,
            "max_drop": self.goal.as_json(),
            **({} if self.seconds is None else {"time_budget": self.seconds}),
            "force": self.force,
            "fallback": self.fallback,
        }


def build_options(request: BuildRequest) -> BuildOptions:
    """Check and parse the options of a build for precision.

    Raises:
        UsageError: an option is unknown, malformed, or not used with this precision.
    """
    precision, shrink, time_budget = request.requested_precision, request.shrink, request.time_budget
    row = precision_of(precision)
    if row.name == precision and row.stage == "language":
        raise UsageError(f"{precision} applies to language models only; use int8 or auto")
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision {precision!r}; available: {', '.join(PRECISIONS)}")
    if shrink not in (None, AUTO):
        share_of("--shrink", shrink)
    if request.distil is not None and not shrink:
        raise UsageError("--distil trains the models of --shrink; give --shrink -50% or --shrink auto too")
    rows = [row for row in TABLE if row.is_for_tensors]
    shrinkable = (*(row.name for row in rows if row.is_float or row.stage == "searched"), AUTO)
    if shrink and precision not in shrinkable:
        raise UsageError(
            f"--shrink builds smaller models in {', '.join(shrinkable)}, not in {precision}; leave it out, "
            "or build the model that edgekit model shrink writes"
        )
    flag = "--lengths" if request.lengths else "--shape with several shapes"
    if (request.lengths or further_shapes(request.shapes or {})) and shrink:
        raise UsageError(
            f"{flag} cannot be combined with --shrink; build the model that edgekit model shrink writes"
        )
    options = BuildOptions(precision, by_profile=request.precision is None)
    is_set_by_flag = {
        "--max-drop": request.max_drop is not None,
        "--time-budget": time_budget is not None,
        "--force": request.force,
        "--no-fallback": not request.fallback,
    }
    for flag in (flag for flag, is_given in is_set_by_flag.items() if is_given):
        if flag == "--force" and request.samples is not None and request.card is not None:
            continue  # samples with labels stop a build too
        if not options.has_goal and not (shrink and flag == "--max-drop"):
            raise UsageError(f"{flag} applies to int8, but the precision is {precision}; use int8 or auto")
        if flag == "--time-budget" and not options.makes("searched"):
            raise UsageError(
                f"--time-budget limits the int8 search, and {precision} has no search; use int8 or auto"
            )
        if flag == "--no-fallback" and options.makes("quantized"):
            raise UsageError(
                f"{precision} is never timed, so its float variant must stay; leave --no-fallback out"
            )
        if flag == "--no-fallback" and options.for_size:
            raise UsageError(
                f"{precision} is always built without its float variant; leave --no-fallback out"
            )
    if time_budget is not None and not 0 <= time_budget < math.inf:
        raise UsageError(f"--time-budget is {time_budget:g}; it must be a number of seconds, 0 or more")
    goal = parse_max_drop(request.max_drop) if request.max_drop is not None else Goal()
    length = training_length(request.distil) if request.distil is not None else None
    return replace(
        options, goal=goal, seconds=time_budget, force=request.force, fallback=request.fallback,
        shrink=shrink or "", distil=length,
    )  # fmt: skip


def parse_max_drop(text: str) -> Goal:
    """Parse ``2%`` of the task's metric or the fidelity score, or ``24dB``, the minimum SNR.

    >>> parse_max_drop("2%"), parse_max_drop("24 dB")
    (Goal(drop=0.02, snr_db=None), Goal(drop=None, snr_db=24.0))

    Raises:
        UsageError: the text is malformed.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(%|dB)\s*", text, re.IGNORECASE | re.ASCII)
    if match and match[2] == "%" and float(match[1]) <= 100:
        return Goal(drop=float(match[1]) / 100)
    if match and match[2] != "%":
        return Goal(snr_db=float(match[1]))
    raise UsageError(
        f"--max-drop is {text!r}; it must be a percentage of the task's metric or agreement, e.g. 2%, or a "
        "minimum SNR, e.g. 24dB"
    )


def precisions_to_compile(
    precision: str, name: str, quantized: bool, targets: Sequence[BuildTarget]
) -> tuple[str, ...]:
    """Return the precisions to compile, the parent first. A model with Q/DQ pairs is compiled as it is.

    Raises:
        UsageError: a target lacks the precision, or the model is already quantized.
    """
    row = precision_of(precision)
    without = [t.profile.name for t in targets if row.is_narrow and precision not in t.info.precisions]
    if without:
        raise UsageError(f"{', '.join(without)} does not support {precision}; use fp32, fp16, int8 or auto")
    if quantized:
        if precision not in (AUTO, FULL_PRECISION) and row.stage != "searched":
            raise UsageError(f"{name} is already quantized; build it with --precision int8 or auto")
        return ("int8",)
    return PRECISIONS[precision]
