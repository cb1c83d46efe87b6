"""Predictions for the windows of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgekit.processing.predictions.prediction import Prediction
from edgekit.tensor_spec import Json


@dataclass(frozen=True, eq=False, repr=False)
class WindowPrediction(Prediction):
    """Prediction for a window from ``start_s`` to ``end_s``, in seconds from the recording's start."""

    start_s: float
    end_s: float
    prediction: Any

    def __str__(self) -> str:
        lines = str(self.prediction).splitlines() or [""]
        time = f"{self.start_s:6.2f} to {self.end_s:6.2f} s"
        return "\n".join(f"{time if not i else ' ' * len(time)}  {line}" for i, line in enumerate(lines))

    def as_json(self) -> dict[str, Json]:
        return {
            "start_s": round(self.start_s, 4),
            "end_s": round(self.end_s, 4),
            "prediction": self.prediction.as_json(),
        }


@dataclass(frozen=True, eq=False, repr=False)
class WindowPredictions(Prediction):
    """Predictions for all windows of a recording, in order."""

    windows: Sequence[WindowPrediction]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int) -> WindowPrediction:
        return self.windows[index]

    def __iter__(self) -> Iterator[WindowPrediction]:
        return iter(self.windows)

    def __str__(self) -> str:
        return "\n".join(str(window) for window in self.windows)

    def as_json(self) -> list[dict[str, Json]]:
        return [window.as_json() for window in self.windows]
