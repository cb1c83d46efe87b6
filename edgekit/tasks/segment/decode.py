"""Semantic segmentation: the class of each pixel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.frame_sampling import frame_taps, linear_to_frame, nearest_to_frame, planes_of
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.segment import ClassMap
from edgekit.processing.task_decoder import Decoder, Outputs, one_of, within
from edgekit.tensor_spec import Array

BLOCK_VALUES = 1 << 20
"""Scores that are interpolated at a time: 4 MB."""


@dataclass(frozen=True)
class SegmentOptions:
    """Options for decoding class scores.

    Attributes:
        layout: Layout of the scores: ``NCHW`` or ``NHWC``.
        resize: Array that is resized to the frame. ``scores`` interpolates before the best class is taken, as
            in MMSegmentation, SegFormer and torchvision's references. ``classes`` takes the best class first,
            then the nearest cell, as in DeepLab's and TFLite's examples.
    """

    layout: str = "NCHW"
    resize: str = "scores"

    def __post_init__(self) -> None:
        one_of(("NCHW", "NHWC"), layout=self.layout)
        one_of(("scores", "classes"), resize=self.resize)


@dataclass(frozen=True)
class NoOptions:
    """Options of a decoder without options."""


@dataclass(frozen=True)
class BinaryOptions:
    """Options for decoding a foreground mask.

    Attributes:
        threshold: Minimum probability of the foreground.
        logits: Whether the output is before sigmoid.
    """

    threshold: float = 0.5
    logits: bool = False

    def __post_init__(self) -> None:
        within(0, 1, threshold=self.threshold)


def segment_scores(
    outputs: Outputs, options: SegmentOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> ClassMap:
    """``scores`` [1, classes, h, w] or [1, h, w, classes], before or after softmax."""
    scores = planes_of(outputs["scores"], options.layout, "a map of scores")
    best = _narrow(scores.argmax(axis=0), len(scores))
    if options.resize == "classes":
        return ClassMap(nearest_to_frame(best, placed), labels)
    return ClassMap(_best_at_frame(scores, best, placed), labels)


def _best_at_frame(scores: Array, best: Array, placed: ImagePlacement) -> Array:
    """Compute the best class of the scores interpolated to each pixel of the frame.

    Where the four cells around a pixel have one class, it is the pixel's: a mean of scores keeps the order
    that all of them have. So only pixels between cells of different classes need interpolation.
    """
    y_taps, x_taps = frame_taps(placed, best.shape)
    result = best[y_taps.first[:, None], x_taps.first]
    # Pairs of cells side by side differ; and what differs between a row and the next.
    sideways = best[:, x_taps.first] != best[:, x_taps.second]
    downwards = (best[y_taps.first] != best[y_taps.second])[:, x_taps.first]
    edge = sideways[y_taps.first] | sideways[y_taps.second] | downwards
    rows, columns = np.nonzero(edge)
    scores = np.ascontiguousarray(scores.transpose(1, 2, 0), dtype=np.float32)  # a pixel's scores together
    step = max(1, BLOCK_VALUES // scores.shape[2])
    for start in range(0, len(rows), step):
        y, x = rows[start : start + step], columns[start : start + step]
        top, bottom, left, right = y_taps.first[y], y_taps.second[y], x_taps.first[x], x_taps.second[x]
        x_weights, y_weights = x_taps.weight[x, None], y_taps.weight[y, None]
        above = scores[top, left]
        above += (scores[top, right] - above) * x_weights
        under = scores[bottom, left]
        under += (scores[bottom, right] - under) * x_weights
        under -= above
        under *= y_weights
        above += under
        result[y, x] = above.argmax(axis=1)
    return result


def segment_classes(
    outputs: Outputs, options: NoOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> ClassMap:
    """``classes`` [1, h, w], [1, 1, h, w] or [1, h, w, 1]: the class of each cell, argmax done."""
    output = outputs["classes"]
    planes = planes_of(output, "NHWC" if output.ndim == 4 and output.shape[3] == 1 else "NCHW", "a class map")
    if len(planes) != 1:
        raise EngineError(f"a class map has one plane, but the output is {list(output.shape)}")
    numbers = np.rint(planes[0]).astype(np.int32)
    if numbers.min() < 0:
        raise EngineError(f"a class map has numbers from 0, but the output has {int(numbers.min())}")
    return ClassMap(nearest_to_frame(_narrow(numbers, int(numbers.max()) + 1), placed), labels)


def segment_binary(
    outputs: Outputs, options: BinaryOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> ClassMap:
    """``scores`` [1, 1, h, w] or [1, h, w, 1]: how likely each pixel is foreground, class 1 of two."""
    output = outputs["scores"]
    planes = planes_of(output, "NHWC" if output.ndim == 4 and output.shape[3] == 1 else "NCHW", "a mask")
    if len(planes) != 1:
        raise EngineError(f"a mask has one plane, but the output is {list(output.shape)}")
    values = planes[0].astype(np.float32, copy=False)
    if options.logits:  # probabilities are interpolated, not logits
        values = 1 / (1 + np.exp(-np.clip(values, -80, 80)))
    foreground = linear_to_frame(values[None], placed)[0] >= options.threshold
    return ClassMap(foreground.astype(np.uint8), labels)


def _narrow(classes: Array, count: int) -> Array:
    return classes.astype(np.uint8 if count <= 256 else np.int32)


def _classes(shape: tuple[int, ...], options: SegmentOptions) -> int:
    return shape[3] if options.layout == "NHWC" else shape[1]


DECODERS: Mapping[str, Decoder] = {
    "scores": Decoder(SegmentOptions, segment_scores, ("scores",), classes=("scores", _classes)),
    "classes": Decoder(NoOptions, segment_classes, ("classes",)),
    "binary": Decoder(
        BinaryOptions, segment_binary, ("scores",), classes=("scores", lambda shape, options: 2)
    ),
}
