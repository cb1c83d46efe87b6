"""Count of the float model's confident boxes that a variant keeps at the scores that apps use.

mAP depends on the order of the scores only: an int8 YOLOv8n (nudenet's 320n.onnx) on OpenVINO with a self-mAP
of .866 had lowered the scores, and 12 of 35 boxes were below the threshold of an app.

A build's samples hold too few confident boxes to count (17 in 35 photographs): 21 of 28 variants of that
model kept all 17, and .918 to .985 of 195 on other photographs. So the estimate uses the changes of score of
less confident boxes too. It applies each change to each confident box, and returns the share above the
threshold. Variants that keep more than .9 on photographs that were not in their build:

                 variants   correlation of the estimate with what they keep   mean difference
    NudeNet's    21         .82 (self-mAP: .57)                               +.017
    COCO-SSD     12         .51 (counted: .38)                                -.002
    YOLOX-nano   11         .85 (counted: .94)                                -.007
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.processing.nms import overlaps
from edgekit.processing.predictions.detect import Detections
from edgekit.tensor_spec import Array

REFERENCE_SCORE, KEPT_SCORE, KEPT_IOU = 0.3, 0.2, 0.5
"""A box of the float model above the first score (the default of ``DetectOptions``) is kept if the variant
has one of its class above the second that overlaps it by as much."""
LEAST_SCORE, MOST_BOXES = 0.05, 50
"""Changes are those of the sure boxes, and of the next ones above this score up to so many in all. More of
them are less like the sure ones: with all above .05 a COCO-SSD that keeps .99 is estimated at .94."""
CERTAIN = 1e-6
"""Scores are at least as far from 0 and 1, so that their log-odds are finite."""


class Kept(NamedTuple):
    """Number of the float model's confident predictions that a variant keeps.

    Attributes:
        matched: Number of predictions that the variant keeps.
        total: Number of the float model's predictions.
        share: Estimated share that the variant keeps, 0 to 1.
        based_on: Number of predictions whose changes of score the estimate is based on.
    """

    matched: int
    total: int
    share: float
    based_on: int

    def together(self, other: Kept) -> Kept:
        """Merge the counts of two sets of samples."""
        total = self.total + other.total
        share = (self.share * self.total + other.share * other.total) / total if total else 1.0
        return Kept(self.matched + other.matched, total, share, self.based_on + other.based_on)


def count_kept(reference: Sequence[Detections], detections: Sequence[Detections]) -> Kept:
    """Count the float model's confident boxes that a variant keeps, and estimate their share.

    Args:
        reference: The float model's boxes above LEAST_SCORE, for each sample.
        detections: The variant's boxes for each sample, down to much lower scores.
    """
    pairs = [_scores(a, b) for a, b in zip(reference, detections, strict=True)]
    scores = np.concatenate([np.zeros((0, 2)), *pairs])
    scores = scores[np.argsort(-scores[:, 0], kind="stable")]
    total = int(np.count_nonzero(scores[:, 0] > REFERENCE_SCORE))
    if not total:
        return Kept(0, 0, 1.0, 0)
    used = scores[: max(total, MOST_BOXES)]
    lost, (before, after) = used[:, 1] == 0, _log_odds(used).T
    changed = before[:total, None] + (after - before)[None]
    share = ((changed > _log_odds(np.array(KEPT_SCORE))) & ~lost).mean()
    return Kept(int(np.count_nonzero(used[:total, 1] > KEPT_SCORE)), total, float(share), len(used))


def _scores(reference: Detections, detections: Detections) -> Array:
    """Return each float box's score, and the best score of the variant's overlapping boxes of its class, 0
    if there is none: float64 [n, 2]."""
    scores = np.zeros((len(reference.scores), 2))
    scores[:, 0] = reference.scores
    if len(reference.scores) and len(detections.scores):
        same = reference.classes[:, None] == detections.classes[None]
        partners = same & overlaps(reference.boxes, detections.boxes, KEPT_IOU)
        scores[:, 1] = np.where(partners, detections.scores[None], 0).max(axis=1)
    return scores[scores[:, 0] > LEAST_SCORE]


def _log_odds(scores: Array) -> Array:
    bounded = np.clip(scores, CERTAIN, 1 - CERTAIN)
    odds: Array = np.log(bounded / (1 - bounded))
    return odds
