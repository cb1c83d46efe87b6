"""CenterFace: a heatmap of centres, with sizes and landmarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.errors import EngineError
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.predictions.image_placement import ImagePlacement
from edgekit.processing.task_decoder import Decoder, Outputs, at_least, classes_along
from edgekit.tasks.detect.boxes import DetectOptions, keep_best


@dataclass(frozen=True)
class CenterfaceOptions(DetectOptions):
    """Options for decoding CenterFace.

    Attributes:
        stride: Pixels of the input per cell of the heatmap.
    """

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
    shapes = [outputs[role].shape for role in ("heatmap", "scale", "offset", "landmarks")]
    heatmap = shapes[0]
    points = shapes[3][1] if len(shapes[3]) == 4 else 0
    if len(heatmap) != 4 or points % 2 or shapes != [(1, n, *heatmap[2:]) for n in (1, 2, 2, points)]:
        raise EngineError(
            f"heatmap, scale, offset and landmarks are {', '.join(str(list(shape)) for shape in shapes)}; "
            "centerface decodes [1, 1, h, w], [1, 2, h, w], [1, 2, h, w] and [1, 2 points, h, w]"
        )
    heat = outputs["heatmap"][0, 0]
    rows, columns = np.nonzero(heat > options.score)
    cells = np.stack([columns, rows], axis=1).astype(np.float32)
    picked = {
        role: outputs[role][0][:, rows, columns].T.astype(np.float32)
        for role in ("scale", "offset", "landmarks")
    }
    size = np.exp(np.minimum(picked["scale"][:, ::-1], 20)) * options.stride
    corner = (cells + picked["offset"][:, ::-1] + 0.5) * options.stride - size / 2
    places = picked["landmarks"].reshape(len(rows), points // 2, 2)[:, :, ::-1]
    landmarks = places * size[:, None, :] + corner[:, None, :]
    boxes = np.concatenate([corner, corner + size], axis=1)
    return keep_best(
        boxes, heat[rows, columns], np.zeros(len(rows), np.int64), options, placed, labels, landmarks
    )


DECODERS: Mapping[str, Decoder] = {
    "centerface": Decoder(
        CenterfaceOptions,
        detect_centerface,
        ("heatmap", "scale", "offset", "landmarks"),
        classes=classes_along(1, "heatmap"),
    )
}
