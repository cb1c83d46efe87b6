"""Comparison of two predictions: are they the same to an app?"""

from __future__ import annotations

from typing import Any

from edgekit.errors import UsageError
from edgekit.processing.nms import overlaps
from edgekit.processing.tasks.classify.prediction import Classes
from edgekit.processing.tasks.detect.prediction import Detections

CONFIDENT_SCORE = 0.5
"""Score from which a detection must match; detections around the card's threshold may come and go."""
OVERLAP = 0.5
"""Minimum intersection over union of matching boxes."""


def same_prediction(one: Any, other: Any) -> bool:
    """Return whether the top class is the same, or every confident detection of either matches in the other.

    Args:
        one: A prediction of ``Session.predict``.
        other: Another one, of the same session.

    Raises:
        UsageError: the task has neither classes nor boxes.
    """
    if isinstance(one, Classes) and isinstance(other, Classes):
        return bool(one.indices[0] == other.indices[0])
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _all_matched(one, other) and _all_matched(other, one)
    raise UsageError(f"pass same= to compare two predictions: these are {type(one).__name__}")


def _all_matched(these: Detections, among: Detections) -> bool:
    confident = these.scores >= CONFIDENT_SCORE
    covered = overlaps(these.boxes[confident], among.boxes, OVERLAP)
    covered &= these.classes[confident][:, None] == among.classes
    return bool(covered.any(axis=1).all())
