"""Whether a card fits its model, found at the build instead of on the device.

The shapes of inputs and outputs are checked where the model is opened (``Card.check``). Here the labels are
counted, and the model's own outputs are decoded as the card says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.errors import CardError, EngineError
from edgekit.processing import processing
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array, TensorSpec, is_finite

if TYPE_CHECKING:
    from edgekit.processing.card import Card

Dims = tuple[int, ...]
Count = Callable[[Dims, Any], int]
"""(the output's shape, the decoder's options) -> how many classes it has."""


def check_labels(card: Card, outputs: Sequence[TensorSpec]) -> None:
    """Refuse labels that are more or fewer than a model's classes.

    Args:
        card: Without a task or labels, or of a decoder whose classes are not in a shape, nothing is checked.
        outputs: The model's.

    Raises:
        CardError: the numbers differ; both are named.
    """
    task = card.task
    if task is None or not task.labels or (task.kind, task.decode) not in CLASSES:
        return
    role, count = CLASSES[task.kind, task.decode]
    spec = next(spec for spec in outputs if spec.name == task.outputs[role])
    if spec.is_open:
        return
    wanted = count(spec.shape, task.options)
    if wanted != len(task.labels):
        raise CardError(
            f"{card.title}: task.labels has {len(task.labels)} names, and output {spec} has {wanted} classes "
            f"as {task.decode} reads it; correct the labels or the decoding"
        )


def check_decoding(card: Card, expected: Sequence[Mapping[str, Array]]) -> None:
    """Decode the model's outputs as the card says, for a picture as large as the input.

    Args:
        card: One without a task, or whose task answers about something else than a picture, is not checked.
        expected: The source model's outputs, by sample. Those with NaN or infinities say nothing of a card.

    Raises:
        CardError: the decoder refuses them.
    """
    task = card.task
    images = [entry for entry in card.inputs.values() if isinstance(entry, ImageInput)]
    if task is None or len(images) != 1:
        return
    placed = processing.placement(card, images[0].width, images[0].height)
    for outputs in expected[:1]:
        arrays = [outputs[name] for name in task.outputs.values() if name in outputs]
        if not all(array.dtype.kind != "f" or is_finite(array) for array in arrays):
            return
        try:
            processing.decode(card, outputs, placed)
        except EngineError as problem:
            raise CardError(
                f"{card.title}: the model's outputs are not what {task.kind} with decode = "
                f"{task.decode!r} reads: {problem}"
            ) from problem


def _last(less: int = 0) -> Count:
    return lambda shape, options: shape[-1] - less


def _second(less: int = 0) -> Count:
    return lambda shape, options: shape[1] - less


def _ctc(shape: Dims, options: Any) -> int:
    return shape[-1] - 1 - int(options.space)


def _channels(shape: Dims, options: Any) -> int:
    return shape[3] if options.layout == "NHWC" else shape[1]


def _all(shape: Dims, options: Any) -> int:
    return int(np.prod(shape))


CLASSES: Mapping[tuple[str, str], tuple[str, Count]] = {
    ("classify", "logits"): ("scores", _all),
    ("classify", "probabilities"): ("scores", _all),
    ("detect", "centernet"): ("heatmap", _second()),
    ("detect", "detr"): ("logits", lambda shape, o: shape[-1] - (o.activation == "softmax")),
    ("detect", "fastestdet"): ("predictions", _second(5)),
    ("detect", "nanodet"): ("predictions", lambda shape, o: shape[-1] - 4 * (o.reg_max + 1)),
    ("detect", "rtdetr"): ("predictions", _last(4)),
    ("detect", "ssd"): ("scores", lambda shape, o: shape[-1] + o.first_class),
    ("detect", "ssd-anchors"): ("scores", lambda shape, o: shape[-1] - o.background + o.first_class),
    ("detect", "yolov5"): ("predictions", _last(5)),
    ("detect", "yolov8"): ("predictions", _second(4)),
    ("detect", "yolox"): ("predictions", _last(5)),
    ("obb", "yolov8"): ("predictions", _second(5)),
    ("read-text", "ctc"): ("scores", _ctc),
    ("segment", "binary"): ("scores", lambda shape, o: 2),
    ("segment", "scores"): ("scores", _channels),
}
"""Task and decoder -> the output that holds its classes, and how many they are."""
