"""Options of a build for precision: the precisions to build, the accuracy goal, the time limit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgekit.compiler.compress.goal import share_of
from edgekit.compiler.compress.training_length import TrainingLength, training_length
from edgekit.compiler.evaluate.fidelity import PART_SNR, Fidelity, Score
from edgekit.compiler.evaluate.kept_boxes import Kept
from edgekit.compiler.evaluate.task_metric import metric_named
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

DEFAULT_KEPT_DROP = 0.03
"""Default of the share of the float model's sure findings that may be lost, e.g. boxes."""
CHANCE = 2.0
"""How many standard errors of a proportion of the samples count as chance."""
DEFAULT_SNR_DB = 12.0
"""Default of the least SNR of the worst output, where there is no task: noise of 1/4 of the norm."""
DEFAULT_PART_SNR_DB = 20.0
"""The same where an output joins values of different scale. Its small part is the scores of a detector, most
of which are background: of 36 boxes of a YOLOv8n (nudenet's 320n.onnx), int8 variants with 12.7, 14.8 and
17.5 dB kept 30, 34 and 35, two with 19.6 and 20.6 dB all."""
FIRST_SECONDS, FRONT_SECONDS = 60.0, 180.0
"""Default time limits: ``int8`` stops at the first good candidate, ``auto`` searches a Pareto front."""


@dataclass(frozen=True)
class Goal:
    """Accuracy goal: the accepted loss.

    Attributes:
        drop: Share (0 to 1) of the task's own metric if the samples are labelled, else of the fidelity.
        snr_db: Minimum SNR of the worst output, in dB.
    """

    drop: float | None = None
    snr_db: float | None = None

    def missed(
        self,
        fidelity: Fidelity,
        parent: Score | None = None,
        chance_of: int | None = None,
        before: Kept | None = None,
        strict: bool = False,
    ) -> str:
        """Return why a variant misses the goal, as text for the manifest; "" if it meets it.

        Args:
            fidelity: Fidelity of the variant.
            parent: The float model's score on the same samples by the task's own metric; None if they have no
                labels.
            chance_of: Number of validation samples, None on the test samples. On validation samples a
                proportion may be low by up to CHANCE standard errors: 12 of 14 does not contradict 0.9.
            before: Predictions kept on the validation samples. They are added to those on the test samples,
                which are few.
            strict: Whether no lost prediction is attributed to chance.
        """
        if fidelity.lost and self.snr_db != -math.inf:
            return f"{fidelity.lost} of the float model vary, but are constant in int8"
        if self.snr_db is not None:
            enough = fidelity.snr_db >= self.snr_db
            figure = f"SNR {_figure(fidelity.snr_db)} dB{_samples_text(chance_of)}"
            return "" if enough else f"{figure}; {self.snr_db:g} dB is required"
        if self.drop is not None and fidelity.task is not None and parent is not None:
            return _below(fidelity.task, (1 - self.drop) * parent.value, chance_of)
        if fidelity.score.unit:
            if self.drop is None:
                parts = fidelity.score.metric == PART_SNR
                return _below(fidelity.score, DEFAULT_PART_SNR_DB if parts else DEFAULT_SNR_DB, chance_of)
            # The proportion of the signal's norm that may be noise: 20 log10(1 / drop).
            return _below(fidelity.score, -20 * math.log10(self.drop) if self.drop else math.inf, chance_of)
        metric = metric_named(fidelity.score.metric)
        drop = self.drop if self.drop is not None else metric.drop if metric is not None else 0.0
        kept_drop = DEFAULT_KEPT_DROP if self.drop is None else self.drop
        retained, basis = fidelity.kept, _samples_text(chance_of)
        if retained is not None and before is not None:
            retained, basis = retained.together(before), " on the validation and test samples"
        return _below(fidelity.score, 1 - drop, chance_of) or _lost(retained, 1 - kept_drop, basis, strict)

    def as_json(self) -> Json:
        if self.snr_db is not None:
            return f"{self.snr_db:g}dB"
        return None if self.drop is None else f"{100 * self.drop:g}%"


@dataclass(frozen=True)
class BuildOptions:
    """Options of a build for precision.

    Attributes:
        precision: ``int8`` for the first candidate that is good enough, ``auto`` for the whole Pareto front,
            or a float precision or weight-only form.
        goal: The accuracy goal.
        seconds: Time limit of the search, for all targets together.
        force: Whether to ship a rejected int8 variant, marked as such.
        fallback: Whether the float parent of an int8 variant is in the bundle too.
        shrink: Smaller models to build too: ``auto``, or a share, e.g. ``-50%``; "" for none.
        distil: Length of the training of each smaller model; None for no training.
        by_profile: Whether none was requested: ``precision`` is fp32, but profiles may have their own.
    """

    precision: str
    goal: Goal = Goal()
    seconds: float = 0.0
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
            **({"time_budget": self.seconds} if self.makes("searched") else {}),
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
    seconds = time_budget
    if seconds is None:
        seconds = FRONT_SECONDS if precision == AUTO else FIRST_SECONDS if options.makes("searched") else 0.0
    length = training_length(request.distil) if request.distil is not None else None
    return replace(
        options, goal=goal, seconds=seconds, force=request.force, fallback=request.fallback,
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


def _below(score: Score, minimum: float, chance_of: int | None = None) -> str:
    chance = 0.0
    if chance_of and _is_counted(score.metric):
        chance = CHANCE * math.sqrt(minimum * (1 - minimum) / chance_of)
    if score.value >= minimum - chance:
        return ""
    required = (
        "an exact answer" if minimum == math.inf else f"{minimum:.1f} dB" if score.unit else f"{minimum:.3f}"
    )
    figure = f"{score.metric if score.unit else ''} {score}{_samples_text(chance_of)}".lstrip()
    return f"{figure}; {required} is required"


def _samples_text(chance_of: int | None) -> str:
    """Name the samples, unless they are the test samples, whose figures are in the report."""
    return "" if chance_of is None else " on the validation samples"


def _lost(boxes: Kept | None, minimum: float, location: str, strict: bool) -> str:
    """Return why too few predictions are kept, as text. Unless strict, one of those that the estimate is
    based on may be lost by chance."""
    if boxes is None or not boxes.total or boxes.share >= minimum - (not strict) / boxes.based_on:
        return ""
    counted = f"{boxes.matched} of {boxes.total} confident detections kept{location}"
    estimate = f"an estimated {100 * boxes.share:.1f} % by {boxes.based_on} changes of score"
    return f"{counted}, {estimate}; {100 * minimum:.3g} % is required"


def _is_counted(name: str) -> bool:
    """Return whether a metric is a proportion of the samples."""
    metric = metric_named(name)
    return name == "top-1" or (metric is not None and metric.counted)


def _figure(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else str(value)


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
