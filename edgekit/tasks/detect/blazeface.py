"""BlazeFace and MediaPipe's other detectors (palms, persons): boxes and keypoints relative to anchors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.nms import CANDIDATES, overlaps
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, rows_of
from edgekit.tasks.detect.anchors import anchor_centres, check_count
from edgekit.tasks.detect.boxes import DetectOptions, check_strides
from edgekit.tensor_spec import Array

SCORE_LIMIT = 100.0
"""Logits are held within this before sigmoid (score_clipping_thresh of MediaPipe's graphs)."""


@dataclass(frozen=True)
class BlazefaceOptions(DetectOptions):
    """Options for decoding MediaPipe's faces, palms and persons; the defaults are BlazeFace's short range.

    Attributes:
        iou: Boxes whose intersection over union with the best box is larger are averaged with it.
        strides: Pixels of the input per cell of each layer. Full range: [4]; persons: [8, 16, 32, 32, 32].
        anchors: Anchors per cell and layer. Full range: 1.
    """

    score: float = 0.5
    iou: float = 0.3
    strides: tuple[int, ...] = (8, 16, 16, 16)
    anchors: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_strides(self.strides)
        at_least(1, anchors=self.anchors)


def detect_blazeface(
    outputs: Outputs, options: BlazefaceOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``boxes`` [1, n, 4 + 2 keypoints]: x, y, width, height, then x, y of the keypoints, in pixels of the
    input from the anchor's centre; ``scores`` [1, n, 1] before sigmoid.

    Boxes that cover each other become their mean, weighted by their scores: Bazarevsky et al., BlazeFace,
    arXiv 1907.05047, and MediaPipe's weighted NonMaxSuppression.
    """
    values = rows_of(outputs, "boxes")
    logits = outputs["scores"].reshape(-1)
    if len(values) != len(logits) or values.shape[1] < 4 or values.shape[1] % 2:
        raise EngineError(
            f"boxes is {list(outputs['boxes'].shape)} and scores {list(outputs['scores'].shape)}; blazeface "
            "decodes [1, boxes, 4 + 2 keypoints] and [1, boxes, 1]"
        )
    width, height = placed.input_width, placed.input_height
    anchors = anchor_centres(tuple(options.strides), options.anchors, width, height)
    check_count(len(values), len(anchors), width, height, "strides or anchors")
    scores = 1 / (1 + np.exp(-np.clip(logits.astype(np.float32), -88, SCORE_LIMIT)))
    likely = np.flatnonzero(scores >= np.float32(options.score))
    likely = likely[np.argsort(-scores[likely], kind="stable")[:CANDIDATES]]
    picked = values[likely].astype(np.float32)
    size = np.array([width, height], np.float32)
    # All as points: two corners of the box, then the keypoints, from the anchor's centre.
    points = picked.reshape(len(picked), picked.shape[1] // 2, 2)
    centre, half = points[:, :1], points[:, 1:2] / 2
    points = np.concatenate([centre - half, centre + half, points[:, 2:]], axis=1)
    points += (anchors[likely] * size)[:, None]
    points, survivors = _averaged(points, scores[likely], options.iou, options.top)
    mapped = placed.to_frame(points).astype(np.float32)
    landmarks = mapped[:, 2:] if mapped.shape[1] > 2 else None
    classes = np.zeros(len(mapped), np.int64)
    return Detections(mapped[:, :2].reshape(-1, 4), scores[likely][survivors], classes, labels, landmarks)


def _averaged(points: Array, scores: Array, iou: float, top: int) -> tuple[Array, list[int]]:
    """Merge the best box and all boxes that overlap it into their weighted mean, with the best score. Repeat
    with the remaining boxes.

    Args:
        points: float32 [n, 2 + keypoints, 2], the best first.
        scores: float32 [n].
        iou: Boxes that overlap by more become one.
        top: At most so many.

    Returns:
        Points of each group, and the number of each group's best.
    """
    boxes = points[:, :2].reshape(-1, 4)
    alike = overlaps(boxes, boxes, iou)
    alive = np.ones(len(points), np.bool_)
    survivors: list[int] = []
    means = []
    for index in range(len(points)):
        if alive[index] and len(survivors) < top:
            group = alive & alike[index]
            group[index] = True  # one without area overlaps nothing, not even itself
            weights = scores[group]
            means.append(np.tensordot(weights, points[group], 1) / weights.sum())
            survivors.append(index)
            alive &= ~group
    return np.array(means, np.float32).reshape(len(means), *points.shape[1:]), survivors


DECODERS: Mapping[str, Decoder] = {
    "blazeface": Decoder(
        BlazefaceOptions, detect_blazeface, ("boxes", "scores"), classes=("scores", lambda shape, options: 1)
    )
}
