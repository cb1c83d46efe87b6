"""Between a frame and a model, as the card says: ``prepare`` before the engine, ``decode`` after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.cards.decoders import DECODERS
from edgekit.cards.predictions import Classes, Detections, ImagePlacement
from edgekit.cards.resize import Box, grey_picture, resize_planes
from edgekit.errors import CardError, EngineError, UsageError
from edgekit.target.tensor_checks import not_finite
from edgekit.tensors import Array, is_finite

if TYPE_CHECKING:
    from edgekit.cards.card import Card, ImageInput


def prepare(card: Card, frame: Array, order: str = "rgb") -> tuple[dict[str, Array], ImagePlacement]:
    """Turn a frame into the model's input.

    Args:
        card: It has one input, an image.
        frame: uint8 [height, width, 3].
        order: Of the frame's channels. Pillow gives ``rgb``; OpenCV's cameras and files give ``bgr``.

    Returns:
        Inputs by name, and where the frame lies in them, which ``decode`` takes.

    Raises:
        UsageError: the frame is none, or ``order`` is unknown.
        CardError: the card's inputs are not one image.
    """
    image = card.image_input()
    _check_frame(frame, order)
    height, width = frame.shape[:2]
    channels: tuple[int, ...]
    if image.colour == "GREY":
        frame, channels = grey_picture(frame, order), (0,)
    else:
        channels = (0, 1, 2) if order == image.colour.lower() else (2, 1, 0)
    used, target = _layout(image, width, height)
    planes = resize_planes(
        frame,
        used,
        target.width,
        target.height,
        channels=channels,
        interpolation=image.interpolation,
        antialias=image.antialias,
    )
    return {image.name: _normalised(image, planes, target)}, placement(card, width, height)


def placement(card: Card, width: int, height: int) -> ImagePlacement:
    """Where a frame of this size lies in the model's input.

    Raises:
        CardError: the card's inputs are not one image.
    """
    image = card.image_input()
    used, target = _layout(image, width, height)
    scale_x, scale_y = target.width / used.width, target.height / used.height
    return ImagePlacement(
        width,
        height,
        image.width,
        image.height,
        scale_x,
        scale_y,
        target.left - used.left * scale_x,
        target.top - used.top * scale_y,
    )


def decode(
    card: Card, outputs: Mapping[str, Array], placed: ImagePlacement, **options: Any
) -> Classes | Detections:
    """Turn the model's outputs into the task's answer.

    Args:
        card: It has a task.
        outputs: By the model's own names.
        placed: What ``prepare`` gave.
        options: Instead of the card's, e.g. ``score=0.6``.

    Raises:
        CardError: the card has no task.
        UsageError: an option is unknown or out of its bounds.
        EngineError: an output is missing, holds NaN or infinities, or does not fit the card's decoding.
    """
    task = card.task
    if task is None:
        raise CardError(f"{card.title}: the card has no task, so outputs stay arrays; add one, or use run()")
    decoder = DECODERS[task.kind][task.decode]
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
    by_role = {role: _sound(outputs, task.outputs[role]) for role in decoder.roles}
    return replace(decoder.function(by_role, settings, placed), labels=task.labels)


def _check_frame(frame: Array, order: str) -> None:
    if order not in ("rgb", "bgr"):
        raise UsageError(f"order is {order!r}; it must be 'rgb' or 'bgr' (OpenCV gives 'bgr')")
    if not isinstance(frame, np.ndarray):
        raise UsageError(f"a frame is a numpy array uint8 [height, width, 3], not a {type(frame).__name__}")
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or not frame.size:
        raise UsageError(f"a frame is uint8 [height, width, 3], not {frame.dtype} {list(frame.shape)}")


def _layout(image: ImageInput, width: int, height: int) -> tuple[Box, Box]:
    """The part of a frame that is used, and where in the input it goes."""
    whole, full = Box(0, 0, width, height), Box(0, 0, image.width, image.height)
    if image.resize == "stretch":
        return whole, full
    if image.resize == "center-crop":
        # The largest part of the input's proportions, times ``crop``; whole pixels, rounded down.
        used_width = max(1, int(image.crop * min(width, height * image.width / image.height)))
        used_height = max(1, int(image.crop * min(height, width * image.height / image.width)))
        left, top = (width - used_width) // 2, (height - used_height) // 2
        return Box(left, top, used_width, used_height), full
    # Letterbox: the whole frame at its own proportions, in whole numbers so that one side always fits.
    if image.width * height <= image.height * width:
        fit_width, fit_height = image.width, max(1, height * image.width // width)
    else:
        fit_width, fit_height = max(1, width * image.height // height), image.height
    centred = image.place == "center"
    left = (image.width - fit_width) // 2 if centred else 0
    top = (image.height - fit_height) // 2 if centred else 0
    return whole, Box(left, top, fit_width, fit_height)


def _normalised(image: ImageInput, planes: Array, target: Box) -> Array:
    """(pixel - mean) / std in float32, in the input's dtype, layout and shape; ``pad`` around ``target``.

    Args:
        image: The input.
        planes: uint8 [channels, target.height, target.width].
        target: Where the planes go in the input.
    """
    dtype = np.dtype(image.dtype)
    feed = np.empty(image.shape, dtype)
    whole = feed[0] if image.layout == "NCHW" else feed[0].transpose(2, 0, 1)
    bottom, right = target.top + target.height, target.left + target.width
    if (target.width, target.height) != (image.width, image.height):
        margin = _values(image, np.full((len(planes), 1, 1), image.pad, np.uint8))
        whole[:, : target.top] = whole[:, bottom:] = margin
        whole[:, target.top : bottom, : target.left] = whole[:, target.top : bottom, right:] = margin
    whole[:, target.top : bottom, target.left : right] = _values(image, planes)
    return feed


def _values(image: ImageInput, planes: Array) -> Array:
    """Pixels [channels, rows, columns] as the model's numbers."""
    if image.plain:
        return planes
    mean = np.asarray(image.mean, np.float32)[:, None, None]
    std = np.asarray(image.std, np.float32)[:, None, None]
    values: Array = np.subtract(planes, mean, dtype=np.float32)
    values /= std
    if image.dtype in ("uint8", "int8"):
        info = np.iinfo(image.dtype)
        values = np.clip(np.rint(values), info.min, info.max)
    return values


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
