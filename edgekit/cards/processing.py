"""Between a frame and a model, as the card says: ``prepare`` before the engine, ``decode`` after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgekit.cards.image_preparation import place_image, prepare_image
from edgekit.cards.predictions.image_placement import ImagePlacement
from edgekit.cards.tasks import find_decoder
from edgekit.errors import CardError, EngineError, UsageError
from edgekit.target.tensor_checks import not_finite
from edgekit.tensors import Array, is_finite

if TYPE_CHECKING:
    from edgekit.cards.card import Card


def prepare(card: Card, frame: Array, order: str = "rgb") -> tuple[dict[str, Array], ImagePlacement]:
    """Turn a frame into the model's inputs.

    Args:
        card: Of its inputs one is an image; the others are constants.
        frame: uint8 [height, width, 3].
        order: Of the frame's channels. Pillow gives ``rgb``; OpenCV's cameras and files give ``bgr``.

    Returns:
        Inputs by name, and where the frame lies in the image input, which ``decode`` takes.

    Raises:
        UsageError: the frame is none, or ``order`` is unknown.
        CardError: the card's inputs are not one image.
    """
    image = card.image_input()
    feeds = {image.name: prepare_image(image, frame, order), **card.constants()}
    return feeds, place_image(image, frame.shape[1], frame.shape[0])


def placement(card: Card, width: int, height: int) -> ImagePlacement:
    """Where a frame of this size lies in the model's input.

    Raises:
        CardError: the card's inputs are not one image.
    """
    return place_image(card.image_input(), width, height)


def decode(card: Card, outputs: Mapping[str, Array], placed: Any, **options: Any) -> Any:
    """Turn the model's outputs into the task's prediction.

    Args:
        card: It has a task.
        outputs: By the model's own names.
        placed: What ``prepare`` gave.
        options: Instead of the card's, e.g. ``score=0.6``.

    Returns:
        The task's prediction, e.g. ``Classes`` or ``Detections`` (``edgekit.cards.predictions``).

    Raises:
        CardError: the card has no task.
        UsageError: an option is unknown or out of its bounds.
        EngineError: an output is missing, holds NaN or infinities, or does not fit the card's decoding.
    """
    task = card.task
    if task is None:
        raise CardError(f"{card.title}: the card has no task, so outputs stay arrays; add one, or use run()")
    settings = task.options
    if options:
        allowed = sorted(vars(settings))
        unknown = sorted(set(options) - set(allowed))
        if unknown:
            raise UsageError(f"{task.decode} has no option {unknown[0]}; it has {', '.join(allowed)}")
        try:
            settings = replace(settings, **options)
        except (TypeError, ValueError) as problem:
            raise UsageError(f"{task.decode} can't take these options: {problem}") from None
    by_role = {role: _sound(outputs, name) for role, name in task.outputs.items()}
    return find_decoder(task.kind, task.decode).function(by_role, settings, placed, task.labels)


def _sound(outputs: Mapping[str, Array], name: str) -> Array:
    """An output that exists and is finite."""
    if name not in outputs:
        raise EngineError(f"the card decodes output {name}, and the model gave {', '.join(outputs)}")
    values = outputs[name]
    if values.dtype.kind != "f":
        return values
    if not is_finite(values):
        raise not_finite(name, values)
    return values
