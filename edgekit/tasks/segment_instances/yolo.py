"""YOLO-seg (v5, v8, v9, 11, 12, 26): boxes with coefficients, and prototypes of masks.

mask = sigmoid(coefficients x prototypes) > 0.5, inside the box: Bolya et al., YOLACT, arXiv 1904.02689.
The sigmoid is above 0.5 where its argument is above 0, so it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.nms import suppress
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.tasks.detect.boxes import corners, input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, end2end_rows
from edgekit.tasks.detect.yolov5 import yolov5_candidates
from edgekit.tasks.detect.yolov8 import LikelyRows, YoloOptions, yolov8_candidates
from edgekit.tensor_spec import Array


def segment_yolov8(
    outputs: Outputs, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Instances:
    """``predictions`` [1, 4 + classes + masks, n] as the detector's, then coefficients; ``prototypes``
    [1, masks, rows, columns].
    """
    prototypes = outputs["prototypes"]
    check_prototypes(prototypes)
    likely = yolov8_candidates(outputs["predictions"], options, placed, prototypes.shape[1])
    return _instances(likely, prototypes, options, placed, labels)


def segment_yolov5(
    outputs: Outputs, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Instances:
    """``predictions`` [1, n, 5 + classes + masks] as the detector's, then coefficients; ``prototypes``
    [1, masks, rows, columns].
    """
    prototypes = outputs["prototypes"]
    check_prototypes(prototypes)
    likely = yolov5_candidates(outputs["predictions"], options, placed, prototypes.shape[1])
    return _instances(likely, prototypes, options, placed, labels)


def segment_end2end(
    outputs: Outputs, options: End2EndOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Instances:
    """``predictions`` [1, n, 6 + masks]: x1, y1, x2, y2, score, class, coefficients; ``prototypes``
    [1, masks, rows, columns].
    """
    prototypes = outputs["prototypes"]
    check_prototypes(prototypes)
    rows = end2end_rows(outputs["predictions"], options, 6 + prototypes.shape[1])
    classes = rows[:, 5].astype(np.int64)
    boxes = input_pixels(rows[:, :4], placed) if options.normalized else rows[:, :4]
    return instances(boxes, rows[:, 4], classes, rows[:, 6:], prototypes, placed, labels)


def _instances(
    rows: LikelyRows, prototypes: Array, options: YoloOptions, placed: ImagePlacement, labels: Sequence[str]
) -> Instances:
    boxes = corners(rows.boxes)
    survivors = suppress(boxes, rows.scores, options.rivals(rows.classes), options.iou, options.top)
    picked = boxes[survivors], rows.scores[survivors], rows.classes[survivors], rows.extra[survivors]
    return instances(*picked, prototypes, placed, labels)


DECODERS: Mapping[str, Decoder] = {
    "end2end": Decoder(End2EndOptions, segment_end2end, ("predictions", "prototypes")),
    "yolov5": Decoder(YoloOptions, segment_yolov5, ("predictions", "prototypes")),
    "yolov8": Decoder(YoloOptions, segment_yolov8, ("predictions", "prototypes")),
}


def check_prototypes(prototypes: Array) -> None:
    """Refuse what is not [1, masks, rows, columns].

    Raises:
        EngineError: it is of another form.
    """
    if prototypes.ndim != 4 or len(prototypes) != 1:
        raise EngineError(f"prototypes is {list(prototypes.shape)}; it must be [1, masks, rows, columns]")


def instances(
    boxes: Array,
    scores: Array,
    classes: Array,
    coefficients: Array,
    prototypes: Array,
    placed: ImagePlacement,
    labels: Sequence[str],
) -> Instances:
    """Compute the instances' masks in the frame's pixels. An instance with an empty mask is left out, as in
    Ultralytics.

    Args:
        boxes: float32 [n, 4]: x1, y1, x2, y2 in the input's pixels.
        scores: float32 [n].
        classes: int64 [n].
        coefficients: float32 [n, masks].
        prototypes: float32 [1, masks, rows, columns], which cover the whole input.
    """
    frame_boxes = placed.to_frame(boxes).astype(np.float32)
    row_shares, column_shares = _interpolation(placed, prototypes.shape[2], prototypes.shape[3])
    survivors, crops, corners = [], [], []
    for number, box in enumerate(frame_boxes):
        # The pixels whose number is from x1 or y1 to less than x2 or y2 (Ultralytics' crop_mask).
        left, top, right, bottom = np.ceil(box).astype(np.int64).tolist()
        if right <= left or bottom <= top:
            continue
        crop = _mask(coefficients[number], prototypes[0], row_shares[top:bottom], column_shares[left:right])
        if crop.any():
            survivors.append(number)
            crops.append(crop)
            corners.append((left, top))
    return Instances(
        frame_boxes[survivors],
        scores[survivors].astype(np.float32),
        classes[survivors],
        crops,
        np.array(corners, np.int64).reshape(-1, 2),
        placed.frame_width,
        placed.frame_height,
        labels,
    )


def _mask(coefficients: Array, prototypes: Array, down: Array, column_weights: Array) -> Array:
    """bool [rows, columns]: where the weighted sum is above 0.

    Args:
        coefficients: float32 [masks].
        prototypes: float32 [masks, cell rows, cell columns].
        down: float32 [rows, cell rows]: the share of each cell in each of the frame's rows.
        column_weights: float32 [columns, cell columns].
    """
    # Only the cells that the box touches are summed.
    high, wide = _touched(down), _touched(column_weights)
    window = prototypes[:, high, wide].astype(np.float32)
    cells = (coefficients @ window.reshape(len(window), -1)).reshape(window.shape[1:])
    above: Array = down[:, high] @ cells @ column_weights[:, wide].T > 0
    return above


def _touched(shares: Array) -> slice:
    """Return the cells that have a share in the first or the last pixel, and all cells between them."""
    used = np.flatnonzero(shares[[0, -1]].any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1)


@lru_cache(maxsize=8)
def _interpolation(placed: ImagePlacement, rows: int, columns: int) -> tuple[Array, Array]:
    """Compute the share of each prototype cell in each row and column of the frame. Results are float32
    [frame height, rows] and [frame width, columns], read-only. They are cached, because a camera's frames
    have one size.

    The prototypes grow to the least multiple of 1, 2 and 4 whose cells end where the frame does, only the
    frame's part of that is used, and that is brought to the frame's size, both times bilinear without
    aligned corners: Ultralytics' ``process_mask_native``.
    """
    vertical = placed.scale_y * placed.frame_height, placed.offset_y, rows / placed.input_height
    horizontal = placed.scale_x * placed.frame_width, placed.offset_x, columns / placed.input_width
    for factor in (1, 2, 4):
        edges = [
            x * cells * factor for length, pos, cells in (vertical, horizontal) for x in (pos, pos + length)
        ]
        if all(abs(edge - round(edge)) < 1e-3 for edge in edges):
            break
    shares = (
        _shares(placed.frame_height, placed.scale_y, placed.offset_y, placed.input_height, rows, factor),
        _shares(placed.frame_width, placed.scale_x, placed.offset_x, placed.input_width, columns, factor),
    )
    for array in shares:
        array.flags.writeable = False  # every frame's
    return shares


def _shares(length: int, scale: float, offset: float, size: int, cells: int, factor: int) -> Array:
    """float32 [length of the frame, cells]."""
    fine = cells * factor
    first, last = (
        max(0, round(offset * fine / size)),
        min(fine, round((offset + length * scale) * fine / size)),
    )
    middles = ((np.arange(length) + 0.5) * scale + offset) * fine / size - 0.5
    middles = np.clip(middles, first, last - 1)
    grown = np.clip((np.arange(fine) + 0.5) / factor - 0.5, 0, cells - 1)
    return _hat(middles, fine) @ _hat(grown, cells)


def _hat(positions: Array, cells: int) -> Array:
    """float32 [positions, cells]: the share of each cell in the value at each position, between two cells."""
    shares: Array = np.maximum(0, 1 - np.abs(positions[:, None] - np.arange(cells)))
    return shares.astype(np.float32)
