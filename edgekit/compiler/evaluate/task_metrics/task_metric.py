"""What a fidelity metric of a task is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgekit.compiler.evaluate.task_metrics.kept_boxes import Kept
from edgekit.tensor_spec import Json


@dataclass(frozen=True)
class TaskMetric:
    """How close the predictions of a variant are to the float model's, for one kind of task.

    Attributes:
        name: As reports show it, e.g. ``self-mAP``.
        compare: (the float model's predictions, the variant's), one each for every sample -> 0 to 1, where 1
            is equal; None where the float model predicts nothing, and the SNR is used instead.
        drop: The accepted drop, 0 to 1, unless the user gives one.
        counted: Whether it is a proportion of the samples. Then the difference of one sample may be chance,
            and candidates are compared by their SNR, which is finer.
        reference_options: Decoding options for the float model's predictions.
        variant_options: Decoding options for a variant's predictions.
        count_kept: (the float model's predictions, the variant's) -> how many of the float model's sure
            findings the variant keeps at the scores that apps use; None where that says no more than
            ``compare``.
        counted_options: Decoding options for the float model's predictions that ``count_kept`` takes.
        change: (the float model's predictions, the variant's) -> how much a small change of the outputs
            changes the predictions, as a power: 0 where they are equal, 1 where nothing is found again. For
            what ``compare`` is too coarse for; predictions must have ``scores``. None: the SNR tells.
    """

    name: str
    compare: Callable[[Sequence[Any], Sequence[Any]], float | None]
    drop: float
    counted: bool = False
    reference_options: Mapping[str, Json] = field(default_factory=dict)
    variant_options: Mapping[str, Json] = field(default_factory=dict)
    count_kept: Callable[[Sequence[Any], Sequence[Any]], Kept] | None = None
    counted_options: Mapping[str, Json] = field(default_factory=dict)
    change: Callable[[Sequence[Any], Sequence[Any]], float] | None = None
