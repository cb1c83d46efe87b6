"""mAP of keypoints on labelled ones, by COCO's object keypoint similarity (OKS)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.label_files.boxes import LabelledBoxes, read_boxes
from edgekit.compiler.evaluate.label_metric import LabelledSamples, LabelMetric
from edgekit.errors import SampleError
from edgekit.processing.card import Card
from edgekit.processing.predictions.pose import Keypoints
from edgekit.tasks.detect.accuracy import Measured, Objects, score
from edgekit.tasks.detect.metric import VARIANT_SCORE_THRESHOLD
from edgekit.tasks.pose.metric import similarity_of
from edgekit.tensor_spec import Array

MOST = 20
"""Maximum number of poses in a photograph that count, as in COCO's evaluation."""


def read_keypoints(folder: Path, card: Card) -> LabelledSamples:
    """Read labelled objects with keypoints.

    Raises:
        SampleError: there are none.
    """
    labelled = read_boxes(folder, card)
    if not any(points for sample in labelled.samples for points in sample.label.keypoints):
        raise SampleError(
            f"{folder}: the {labelled.form} have no keypoints; use COCO's person_keypoints JSON, or YOLO "
            "text files of lines 'class cx cy w h x y v ...'"
        )
    return labelled


def measure(truth: LabelledBoxes, prediction: Keypoints, card: Card) -> Measured:
    """Compare labelled and predicted poses. An object without labelled keypoints does not count.

    Raises:
        SampleError: the labels have another number of keypoints than the model.
    """
    best = np.argsort(-prediction.scores, kind="stable")[:MOST]
    ours = prediction.points[best].astype(np.float64)
    count = ours.shape[1]
    labels = np.zeros((len(truth.keypoints), count, 3))
    for row, points in enumerate(truth.keypoints):
        if len(points) not in (0, 3 * count):
            raise SampleError(
                f"an object has {len(points) // 3} labelled keypoints, but the model has {count}; use labels "
                "with the keypoints of the card"
            )
        labels[row] = np.reshape(points, (-1, 3)) if points else 0
    counted = labels[:, :, 2] > 0
    unlabelled = ~counted.any(axis=1)
    apart = ours[:, None] - labels[None, :, :, :2]
    apart[:, unlabelled] = _outside(ours, truth.objects.boxes[unlabelled].astype(np.float64))
    overlaps = similarity_of(apart, np.maximum(truth.areas, 1e-9), counted | unlabelled[:, None])
    classes = np.zeros(len(best), np.int64) if prediction.classes is None else prediction.classes[best]
    extents = (ours.max(axis=1) - ours.min(axis=1)).prod(axis=1) if len(ours) else np.zeros(0)
    objects = Objects(truth.objects.scores, truth.objects.classes, truth.areas)
    found = Objects(prediction.scores[best], classes, extents)
    return Measured(objects, truth.crowds | unlabelled, truth.crowds, found, overlaps)


def _outside(points: Array, boxes: Array) -> Array:
    """Return how far points [n, k, 2] are outside of boxes [m, 4] that are grown by their size on each side,
    as in COCO's evaluation: float64 [n, m, k, 2]."""
    sides = boxes[:, 2:] - boxes[:, :2]
    low, high = boxes[None, :, None, :2] - sides[:, None], boxes[None, :, None, 2:] + sides[:, None]
    outside: Array = np.maximum(low - points[:, None], 0) + np.maximum(points[:, None] - high, 0)
    return outside


ACCURACY = LabelMetric(
    "OKS mAP", "objects", read_keypoints, measure, score, options={"score": VARIANT_SCORE_THRESHOLD}
)
