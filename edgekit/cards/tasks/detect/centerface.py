"""CenterFace: a heatmap of centres, with sizes and landmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.cards.predictions import Detections, ImagePlacement
from edgekit.cards.tasks.decoder import Decoder, Outputs, at_least
from edgekit.cards.tasks.detect.boxes import DetectOptions, keep_best


@dataclass(frozen=True)
class CenterfaceOptions(DetectOptions):
    """``stride``: pixels of the input per cell of the heatmap."""

    stride: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, stride=self.stride)


def detect_centerface(
    outputs: Outputs, options: CenterfaceOptions, placed: ImagePlacement, labels: Sequence[str] = ()
) -> Detections:
    """``heatmap`` [1, 1, h, w], ``scale`` and ``offset`` [1, 2, h, w] as y, x; ``landmarks`` [1, 10, h, w].

    size = exp(scale) stride, centre = (cell + offset + 0.5) stride, landmark = box corner + size x value,
    five of them, each as y, x: Xu et al., CenterFace, arXiv 1911.03599, and its ONNX file's planes.
    """
    heat = outputs["heatmap"][0, 0]
    rows, columns = np.nonzero(heat > options.score)
    cells = np.stack([columns, rows], axis=1).astype(np.float32)
    picked = {role: outputs[role][0][:, rows, columns].T for role in ("scale", "offset", "landmarks")}
    size = np.exp(np.minimum(picked["scale"][:, ::-1], 20)) * options.stride
    corner = (cells + picked["offset"][:, ::-1] + 0.5) * options.stride - size / 2
    points = picked["landmarks"].reshape(len(rows), outputs["landmarks"].shape[1] // 2, 2)[:, :, ::-1]
    landmarks = points * size[:, None, :] + corner[:, None, :]
    boxes = np.concatenate([corner, corner + size], axis=1)
    return keep_best(
        boxes, heat[rows, columns], np.zeros(len(rows), np.int64), options, placed, labels, landmarks
    )


DECODERS: Mapping[str, Decoder] = {
    "centerface": Decoder(CenterfaceOptions, detect_centerface, ("heatmap", "scale", "offset", "landmarks"))
}
