"""Depth of each pixel of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.processing.drawing import Canvas

DepthKind = Literal["metric", "relative", "inverse"]


@dataclass(frozen=True, eq=False, repr=False)
class DepthMap(Prediction):
    """Depth, or its inverse.

    Attributes:
        values: float32 [height, width].
        kind: ``metric``: metres. ``relative``: more is farther, without a unit. ``inverse``: more is nearer,
            1 / depth up to an unknown factor and offset, as MiDaS and Depth Anything give it.
    """

    values: Array
    kind: DepthKind

    def picture(self) -> Array:
        """uint8 [height, width] to look at: near is bright, from the 1st to the 99th percentile."""
        low, high = np.percentile(self.values, (1, 99))
        scaled = np.clip((self.values - low) / max(float(high - low), 1e-12), 0, 1)
        levels: Array = np.rint((scaled if self.kind == "inverse" else 1 - scaled) * 255)
        return levels.astype(np.uint8)

    def _value(self, index: int) -> tuple[int, int]:
        row, column = divmod(index, self.values.shape[1])
        return column, row

    def _ends(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """x, y of the nearest pixel and of the farthest."""
        low, high = self._value(int(self.values.argmin())), self._value(int(self.values.argmax()))
        return (high, low) if self.kind == "inverse" else (low, high)

    def draw_on(self, canvas: Canvas) -> None:
        """Draw the depth map alone. Near is bright."""
        canvas.show(self.picture())
        for row, line in enumerate(str(self).splitlines()):
            corner = (0, row * (canvas.text_height + 1))
            canvas.text(" ".join(line.split()), corner, canvas.colour_of(row))

    def __str__(self) -> str:
        unit = " m" if self.kind == "metric" else ""
        lines = []
        for name, (x, y) in zip(("nearest", "farthest"), self._ends(), strict=True):
            lines.append(f"{name:8}  {self.values[y, x]:.3g}{unit} at {x},{y}")
        return "\n".join([*lines, f"median    {np.median(self.values):.3g}{unit}"])

    def as_json(self) -> dict[str, Json]:
        height, width = self.values.shape
        table: dict[str, Json] = {"width": width, "height": height, "kind": self.kind}
        for name, (x, y) in zip(("nearest", "farthest"), self._ends(), strict=True):
            table[name] = {"value": round(float(self.values[y, x]), 6), "x": x, "y": y}
        return {**table, "median": round(float(np.median(self.values)), 6)}
