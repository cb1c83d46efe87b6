"""An image that a model made of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas


@dataclass(frozen=True, eq=False, repr=False)
class Picture(Prediction):
    """An image.

    Attributes:
        pixels: uint8 [height, width, 3] in RGB, or [height, width, 1] in grey.
    """

    pixels: Array

    def draw_on(self, canvas: Canvas) -> None:
        canvas.show(self.pixels)

    def __str__(self) -> str:
        height, width, channels = self.pixels.shape
        return f"picture {width}x{height}, {'grey' if channels == 1 else 'RGB'}"

    def as_json(self) -> dict[str, Json]:
        height, width, channels = self.pixels.shape
        return {"width": width, "height": height, "channels": channels}
