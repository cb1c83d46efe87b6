"""Prediction of a cascade: objects of the first stage, and the later stages' predictions for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.pose import Keypoints
from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True, eq=False, repr=False)
class Cascaded(Prediction):
    """Predictions of a cascade.

    Attributes:
        found: Prediction of the first stage.
        details: Predictions of the later stages for each object, by stage name.
    """

    found: Any
    details: Sequence[Mapping[str, Any]]

    def __len__(self) -> int:
        return len(self.found)

    def __iter__(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Iterate over the objects with their details."""
        return zip(self.found, self.details, strict=True)

    def draw_on(self, canvas: Canvas) -> None:
        """Draw the first stage's objects, each with the best result of the other stages."""
        from edgekit.processing.crops import boxes_of  # here: it knows each kind of prediction

        self.found.draw_on(canvas)
        places = boxes_of(self.found, "drawing")
        for number, (place, details) in enumerate(zip(places, self.details, strict=True)):
            for row, detail in enumerate(details.values()):
                if isinstance(detail, Detections | Keypoints):
                    detail.draw_on(canvas)
                    continue
                corner = (float(place[0]), float(place[3]) + row * canvas.text_height)
                canvas.text(_short(detail), corner, canvas.colour_of(number))

    def __str__(self) -> str:
        if not len(self):
            return str(self.found)
        lines = []
        for line, details in zip(str(self.found).splitlines(), self.details, strict=True):
            parts = [f"{name}: {_short(prediction)}" for name, prediction in details.items()]
            lines.append("  ".join([line, *parts]))
        return "\n".join(lines)

    def as_json(self) -> list[dict[str, Json]]:
        """Return the first stage's rows, each with ``details``: stage -> its prediction."""
        return [
            {**row, "details": {name: prediction.as_json() for name, prediction in details.items()}}
            for row, details in zip(self.found.as_json(), self.details, strict=True)
        ]


def _short(prediction: Any) -> str:
    """Return the best of a prediction: its first line."""
    text = str(prediction)
    return " ".join(text.splitlines()[0].split()) if text else "nothing"
