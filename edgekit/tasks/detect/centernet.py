"""CenterNet: a heatmap of centres for each class, with sizes and offsets; no NMS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, classes_along, within
from edgekit.tasks.detect.end2end import rank
from edgekit.tensor_spec import Array


@dataclass(frozen=True)
class CenternetOptions:
    """Options for decoding CenterNet.

    Attributes:
        score: Minimum score, 0 to 1.
        top: Maximum number of boxes.
        stride: Pixels of the input per cell of the heatmap.
        logits: Whether the heatmap is before sigmoid, as in the project's networks.
    """

    score: float = 0.3
    top: int = 100
    stride: int = 4
    logits: bool = True

    def __post_init__(self) -> None:
        at_least(1, top=self.top, stride=self.stride)
        within(0, 1, score=self.score)


def detect_centernet(
    outputs: Outputs, options: CenternetOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``heatmap`` [1, classes, h, w]; ``size`` [1, 2, h, w] as width, height in cells; ``offset`` [1, 2, h,
    w] as x, y of the centre from its cell's corner, in cells (without it: half a cell).

    A centre is a cell that none of its eight neighbours exceeds: Zhou et al., Objects as Points, arXiv
    1904.07850, and the project's ``ctdet_decode``.
    """
    heatmap, sizes = outputs["heatmap"], outputs["size"]
    if heatmap.ndim != 4 or len(heatmap) != 1 or sizes.shape != (1, 2, *heatmap.shape[2:]):
        raise EngineError(
            f"heatmap is {list(heatmap.shape)} and size {list(sizes.shape)}; centernet decodes "
            "[1, classes, rows, columns] and [1, 2, rows, columns]"
        )
    heat = heatmap[0]
    threshold = options.score
    if options.logits:
        with np.errstate(divide="ignore"):
            threshold = float(np.log(np.float64(threshold)) - np.log1p(-np.float64(threshold)))
    classes, rows, columns = np.nonzero(heat > np.float32(threshold))
    peaks = _peaks(heat, classes, rows, columns)
    classes, rows, columns = classes[peaks], rows[peaks], columns[peaks]
    scores = heat[classes, rows, columns].astype(np.float32)
    if options.logits:
        scores = 1 / (1 + np.exp(-np.maximum(scores, -88)))  # of less, float32's exp overflows
    best = rank(scores, -1, options.top)
    classes, rows, columns = classes[best], rows[best], columns[best]
    centres = np.stack([columns, rows], axis=1).astype(np.float32)
    centres += outputs["offset"][0][:, rows, columns].T if "offset" in outputs else np.float32(0.5)
    half = sizes[0][:, rows, columns].T.astype(np.float32) / 2
    boxes = np.concatenate([centres - half, centres + half], axis=1) * np.float32(options.stride)
    return Detections(placed.to_frame(boxes).astype(np.float32), scores[best], classes, labels)


def _peaks(heatmap: Array, classes: Array, rows: Array, columns: Array) -> Array:
    """Select the cells that no neighbour exceeds: int64 [peaks]. Only the given cells are checked."""
    values = heatmap[classes, rows, columns]
    highest = values
    for down in (-1, 0, 1):
        for right in (-1, 0, 1):
            # Beyond the edge the cell at the edge stands in, which is itself a neighbour or the cell.
            neighbour = (
                np.clip(rows + down, 0, heatmap.shape[1] - 1),
                np.clip(columns + right, 0, heatmap.shape[2] - 1),
            )
            highest = np.maximum(highest, heatmap[classes, neighbour[0], neighbour[1]])
    return np.flatnonzero(values == highest)


DECODERS: Mapping[str, Decoder] = {
    "centernet": Decoder(
        CenternetOptions,
        detect_centernet,
        ("heatmap", "size"),
        ("offset",),
        classes=classes_along(1, "heatmap"),
    )
}
