"""What bench_decoders.py compares: an ONNX model, its card, and its own project's answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Answer:
    """What a project found in a photograph, in the photograph's pixels.

    Attributes:
        places: float [n, m]: corners of boxes, and keypoints, as x, y, x, y ...
        scores: float [n].
        classes: int [n].
        more_scores: float [n, k], e.g. of keypoints.
        masks: bool [n, height, width].
    """

    places: Array
    scores: Array
    classes: Array
    more_scores: Array | None = None
    masks: Array | None = None


@dataclass(frozen=True)
class Origin:
    """A model with its project's own processing.

    Attributes:
        name: As the table shows it.
        package: The project and its version.
        model: The ONNX or TFLite file.
        card: EdgeKit's card for it.
        answer: A photograph uint8 [height, width, 3] in BGR -> what the project finds in it.
        square: Side to which photographs are brought before either sees them; 0: as they are.
    """

    name: str
    package: str
    model: Path
    card: dict[str, Any]
    answer: Callable[[Array], Answer]
    square: int = 0


def boxes_as_places(boxes: Any) -> Array:
    """[n, ...] as [n, m]."""
    array = np.asarray(boxes, np.float64)
    return array.reshape(len(array), int(np.prod(array.shape[1:])))
