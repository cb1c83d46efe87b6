"""Whether two answers are the same to an app."""

from __future__ import annotations

from typing import Any

from edgekit.cards.nms import overlaps
from edgekit.cards.predictions import Classes, Detections
from edgekit.errors import UsageError

SURE = 0.5
"""Score from which on a detection must be found again; what flickers around the card's limit need not."""
OVERLAP = 0.5
"""Intersection over union of two boxes of one thing."""


def same_prediction(one: Any, other: Any) -> bool:
    """The same best class; or everything surely found in either, found in the other.

    Args:
        one: As ``Session.predict`` gives it.
        other: Of the same session.

    Raises:
        UsageError: the task has neither classes nor boxes.
    """
    if isinstance(one, Classes) and isinstance(other, Classes):
        return bool(one.indices[0] == other.indices[0])
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _found_again(one, other) and _found_again(other, one)
    raise UsageError(f"give same=, which says when two answers are the same: these are {type(one).__name__}")


def _found_again(these: Detections, among: Detections) -> bool:
    sure = these.scores >= SURE
    covered = overlaps(these.boxes[sure], among.boxes, OVERLAP)
    covered &= these.classes[sure][:, None] == among.classes
    return bool(covered.any(axis=1).all())
