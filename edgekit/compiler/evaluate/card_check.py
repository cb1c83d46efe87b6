"""Checks at the build that a card fits its model, before it reaches a device.

The shapes of inputs and outputs are checked where the model is opened (``Card.check``). Here the labels are
counted, and the model's own outputs are decoded as the card says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgekit.errors import CardError, EngineError
from edgekit.processing import processing
from edgekit.processing.card import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.task import Task
from edgekit.processing.task_table import find_decoder
from edgekit.tensor_spec import Array, TensorSpec, is_finite


def check_labels(card: Card, outputs: Sequence[TensorSpec]) -> None:
    """Check that there are as many labels as classes of the model.

    Args:
        card: Card of the model. It is not checked without a task or labels, or if no shape holds the
            decoder's classes.

    Raises:
        CardError: the numbers differ; both are named.
    """
    task, count = card.task, class_count(card, outputs)
    if task is None or not task.labels or count is None:
        return
    if count != len(task.labels):
        spec = _class_output(card, outputs)
        raise CardError(
            f"{card.title}: task.labels has {len(task.labels)} names, but {task.decode} finds {count} "
            f"classes in output {spec}; correct the labels or the decoding"
        )


def class_count(card: Card, outputs: Sequence[TensorSpec]) -> int | None:
    """Return the number of classes of the model; None if no shape holds the decoder's classes."""
    task, spec = card.task, _class_output(card, outputs)
    classes = find_decoder(task.kind, task.decode).classes if task is not None else None
    if task is None or spec is None or spec.is_open or classes is None:
        return None
    return classes[1](spec.shape, task.options)


def _class_output(card: Card, outputs: Sequence[TensorSpec]) -> TensorSpec | None:
    task = card.task
    classes = find_decoder(task.kind, task.decode).classes if task is not None else None
    if task is None or classes is None:
        return None
    return next(spec for spec in outputs if spec.name == task.outputs[classes[0]])


def check_decoding(card: Card, expected: Sequence[Mapping[str, Array]]) -> None:
    """Check that the model's outputs are what the card's decoder takes, and decode the first ones, for a
    picture as large as the input.

    Args:
        card: Not checked if it has no task; nothing is decoded if the task's input is not a picture.
        expected: The source model's outputs, by sample. Those with NaN or infinities are ignored.

    Raises:
        CardError: the decoder rejects the outputs, or those of all samples are not what it takes.
    """
    task = card.task
    if task is None:
        return
    refused = f"{card.title}: the model's outputs do not fit {task.kind} with decode = {task.decode!r}"
    finite = [outputs for outputs in expected if _are_finite(outputs, task)]
    misfit = find_decoder(task.kind, task.decode).misfit
    if misfit is not None:
        by_role = [{role: outputs[name] for role, name in task.outputs.items()} for outputs in finite]
        reasons = [misfit(outputs, task.options) for outputs in by_role]
        if reasons and all(reasons):
            raise CardError(f"{refused}: {reasons[0]}")
    images = [entry for entry in card.inputs.values() if isinstance(entry, ImageInput)]
    if len(images) != 1:
        return
    placed = processing.placement(card, images[0].width, images[0].height)
    for outputs in finite[:1]:
        try:
            processing.decode(card, outputs, placed)
        except EngineError as problem:
            raise CardError(f"{refused}: {problem}") from problem


def _are_finite(outputs: Mapping[str, Array], task: Task) -> bool:
    arrays = [outputs[name] for name in task.outputs.values() if name in outputs]
    return all(array.dtype.kind != "f" or is_finite(array) for array in arrays)
