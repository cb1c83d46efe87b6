"""Share of each pixel of a frame that belongs to the foreground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas

CLEAR, OPAQUE = 0.05, 0.95
"""Alpha below the first is background, above the second foreground. Soft edges are between."""
GREEN = (0, 177, 64)
"""Behind the foreground of a drawn matte: the green of studios."""


@dataclass(frozen=True, eq=False, repr=False)
class Matte(Prediction):
    """An alpha matte.

    Attributes:
        alpha: float32 [height, width] of the frame, 0 (background) to 1 (foreground).
        foreground: uint8 [height, width, 3] RGB: the foreground's colours, of which pixels are
            alpha x foreground + (1 - alpha) x background; None if the model gives none.
    """

    alpha: Array
    foreground: Array | None = None

    def over(self, frame: Array, background: Array) -> Array:
        """Composite the foreground over another background.

        Args:
            frame: uint8 [height, width, 3] that the matte is of, RGB if there is a ``foreground``.
            background: uint8 [height, width, 3], or one colour [3].

        Returns:
            uint8 [height, width, 3].
        """
        front = (frame if self.foreground is None else self.foreground).astype(np.float32)
        mixed = background + (front - background) * self.alpha[:, :, None]
        return np.rint(mixed).astype(np.uint8)

    def _shares(self) -> tuple[float, float]:
        return float((self.alpha > OPAQUE).mean()), float((self.alpha < CLEAR).mean())

    def draw_on(self, canvas: Canvas) -> None:
        """Draw the foreground alone, on a green background."""
        canvas.show(self.over(np.asarray(canvas.image), np.array(GREEN, np.float32)))

    def __str__(self) -> str:
        opaque, clear = self._shares()
        soft = 1 - opaque - clear
        return f"foreground  {opaque:6.1%}\nedges       {soft:6.1%}\nbackground  {clear:6.1%}"

    def as_json(self) -> dict[str, Json]:
        (height, width), (opaque, clear) = self.alpha.shape, self._shares()
        return {
            "width": width,
            "height": height,
            "foreground": round(opaque, 6),
            "background": round(clear, 6),
            "mean_alpha": round(float(self.alpha.mean()), 6),
        }
