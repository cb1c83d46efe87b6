"""What tasks answer. The kinds that most cards have are here; each other one is in its own module."""

from __future__ import annotations

from typing import Protocol

from edgekit.processing.predictions.classes import Class, Classes, label_of
from edgekit.processing.predictions.detections import Detection, Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.tensor_spec import Json

__all__ = ["Class", "Classes", "Detection", "Detections", "ImagePlacement", "Prediction", "label_of"]


class Prediction(Protocol):
    """What every task's prediction can do."""

    def __str__(self) -> str:
        """For people: a line for each thing."""

    def as_json(self) -> Json:
        """For programs."""
