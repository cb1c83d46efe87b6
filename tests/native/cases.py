"""Random cards, pictures and outputs for both implementations: Python's and libedgekit's.

``make_case(number)`` depends on nothing but its number, so that one can be run again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from edgekit.tensor_spec import Array, Json

IMAGE_DTYPES = ("float32", "float16", "uint8", "int8", "uint16", "int16", "int32", "int64")
DECODERS = (
    ("classify", "logits"),
    ("classify", "probabilities"),
    ("detect", "yolox"),
    ("detect", "yolov5"),
    ("detect", "yolov8"),
    ("detect", "end2end"),
)
EXACT = frozenset(DECODERS) - {("classify", "logits"), ("detect", "yolox")}
"""Decoders without an exponential: their answers are equal bit for bit."""


class Case(NamedTuple):
    """One card with a picture and outputs.

    Attributes:
        card: The card, as JSON.
        frame: uint8 [height, width, 3].
        order: Order of the frame's channels.
        output: The model's output "y".
    """

    card: dict[str, Json]
    frame: Array
    order: str
    output: Array


def make_case(number: int) -> Case:
    """Return a case by its number."""
    rng = np.random.default_rng(number)
    image = _image(rng)
    at = 1 if image["layout"] == "NCHW" else 0
    height, width = image["shape"][1 + at], image["shape"][2 + at]
    task, output = _task(rng, width, height)
    frame_width, frame_height = (int(side) for side in rng.integers(1, 90, 2))
    if rng.random() < 0.1:  # nothing to resize
        frame_width, frame_height = width, height
    frame = rng.integers(0, 256, (frame_height, frame_width, 3)).astype(np.uint8)
    card = {"title": "case", "inputs": {"x": image}, "task": task}
    return Case(card, frame, str(rng.choice(["rgb", "bgr"])), output)


def _image(rng: np.random.Generator) -> dict[str, Any]:
    layout, colour = str(rng.choice(["NCHW", "NHWC"])), str(rng.choice(["RGB", "BGR", "GREY"]))
    channels = 1 if colour == "GREY" else 3
    height, width = (int(side) for side in rng.integers(1, 70, 2))
    shape = [1, channels, height, width] if layout == "NCHW" else [1, height, width, channels]
    resize = str(rng.choice(["stretch", "letterbox", "center-crop", "resize-crop", "fit-height"]))
    image: dict[str, Any] = {
        "kind": "image", "shape": shape, "layout": layout, "colour": colour, "resize": resize,
        "interpolation": str(rng.choice(["linear", "cubic"])), "antialias": bool(rng.random() < 0.5),
        "dtype": str(rng.choice(IMAGE_DTYPES)),
    }  # fmt: skip
    if resize == "letterbox":
        image["place"] = str(rng.choice(["top-left", "center"]))
        image["rounding"] = str(rng.choice(["down", "nearest"]))
    if resize == "resize-crop":
        image["rounding"] = str(rng.choice(["down", "nearest"]))
        image["crop"] = float(rng.uniform(0.3, 0.95)) * min(height, width) / max(height, width)
    if resize in ("letterbox", "fit-height"):
        image["pad"] = int(rng.integers(0, 256))
    if resize == "center-crop":
        image["crop"] = float(rng.choice([1.0, 0.875, round(float(rng.uniform(0.05, 1)), 3)]))
    if rng.random() < 0.6:
        image["mean"] = [round(float(mean), 3) for mean in rng.uniform(2, 200, channels)]
        image["std"] = [round(float(std), 3) for std in rng.uniform(1.5, 200, channels)]
    return image


def _task(rng: np.random.Generator, width: int, height: int) -> tuple[dict[str, Any], Array]:
    kind, decode = DECODERS[int(rng.integers(len(DECODERS)))]
    role = "scores" if kind == "classify" else "predictions"
    task: dict[str, Any] = {"kind": kind, "decode": decode, "outputs": {role: "y"}}
    if rng.random() < 0.5:
        task["labels"] = ["cat", "dog", "", "Größe"]
    if rng.random() < 0.7:
        task["top"] = int(rng.integers(1, 400))
    if kind == "classify":
        return task, _scores(rng, task)
    if rng.random() < 0.8:
        task["score"] = round(float(rng.uniform(0, 0.9)), 2)
    if decode != "end2end" and rng.random() < 0.8:
        task["iou"] = round(float(rng.uniform(0, 1)), 2)
        task["class_agnostic"] = bool(rng.random() < 0.3)
    if decode != "yolox":
        task["normalized"] = bool(rng.random() < 0.3)
    return task, _boxes(rng, task, width, height)


def _scores(rng: np.random.Generator, task: dict[str, Any]) -> Array:
    shape = (1, int(rng.choice([1, 2, 5, 10, 100, 129, 1000, 1001])))
    dtype = str(rng.choice(["float32", "float32", "float16", "uint8", "int8"]))
    if dtype in ("uint8", "int8"):
        task |= {
            "scale": round(float(rng.uniform(0.001, 0.3)), 5),
            "zero_point": int(rng.integers(-100, 100)),
        }
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max + 1, shape).astype(dtype)
    values = (
        rng.random(shape)
        if task["decode"] == "probabilities"
        else rng.normal(0, rng.choice([1, 5, 40]), shape)
    )
    return np.asarray(values).astype(dtype)


def _boxes(rng: np.random.Generator, task: dict[str, Any], width: int, height: int) -> Array:
    """Boxes in clusters, so that some cover others; scores with many equal ones."""
    classes, count = int(rng.integers(1, 7)), int(rng.integers(0, 200))
    if task["decode"] == "yolox":
        task["strides"] = strides = [int(stride) for stride in rng.integers(2, 40, rng.integers(1, 4))]
        count = sum(-(-width // stride) * -(-height // stride) for stride in strides)
    size = np.array([width, height, width, height], np.float32)
    clusters = rng.random((6, 4)) * 0.7 + 0.1
    boxes = clusters[rng.integers(0, 6, count)] + rng.normal(0, 0.03, (count, 4))
    scores = np.round(rng.random((count, classes)) ** 2, int(rng.choice([2, 7])))
    if task["decode"] == "end2end":
        task["boxes"] = str(rng.choice(["x1y1x2y2", "y1x1y2x2", "xywh"]))
        rows = np.concatenate([boxes, scores[:, :1], rng.integers(0, 7, (count, 1))], axis=1)
    elif task["decode"] == "yolov8":
        rows = np.concatenate([boxes, scores], axis=1)
    else:
        rows = np.concatenate([boxes, np.sqrt(rng.random((count, 1))), scores], axis=1)
    rows = rows.astype(np.float32)
    if task["decode"] == "yolox":
        rows[:, :4] = rng.normal(0.5, 1.5, (count, 4))
    elif not task["normalized"]:
        rows[:, :4] *= size
    if task["decode"] == "yolov8":
        rows = rows.T
    return np.ascontiguousarray(rows[None])
