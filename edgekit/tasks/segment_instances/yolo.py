"""YOLO-seg (v5, v8, v9, 11, 12, 26): boxes with coefficients, and prototypes of masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.processing.nms import suppress
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.predictions.segment_instances import Instances
from edgekit.processing.task_decoder import Decoder, Outputs
from edgekit.tasks.detect.boxes import corners, input_pixels
from edgekit.tasks.detect.end2end import End2EndOptions, end2end_rows
from edgekit.tasks.detect.yolov5 import yolov5_candidates
from edgekit.tasks.detect.yolov8 import LikelyRows, YoloOptions, yolov8_candidates
from edgekit.tasks.segment_instances.prototypes import check_prototypes, instances
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
