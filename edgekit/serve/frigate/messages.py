"""Messages of Frigate's ``zmq`` detector, and the rows of its results.

A client (REQ) sends a head in JSON and a tensor: one square crop, uint8 or float32, as NHWC, NCHW, HWNC or
HWCN. It reads exactly ``ROWS_BYTES``: float32 [20, 6] of class, score, ymin, xmin, ymax, xmax, best first,
the box as parts of the tensor. Other bytes end a process of Frigate's, e.g. NaN or a class without a name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.predictions.detect import Detections
from edgekit.tensor_spec import Array

ROWS, VALUES = 20, 6
ROWS_BYTES = ROWS * VALUES * 4
ZEROS = bytes(ROWS_BYTES)
"""No object."""
TENSOR_BYTES = 8 << 20
"""Maximum size of a tensor; float32 of 640 x 640 has 4.9 MB."""
HEAD_BYTES = 1024
KNOWN_CLASSES = 91
"""Classes that every label map of Frigate has: it names those that a file lacks ``unknown``."""
DTYPES = ("uint8", "float32")
MODEL_ANSWER = json.dumps({"model_available": True, "model_loaded": True}).encode()
"""Response to any request for a model: without it, Frigate detects nothing until it is restarted."""
TRANSFER_ANSWER = json.dumps({"model_saved": False, "model_loaded": False}).encode()
"""Response to a transfer of a model: it is refused."""


class FrameTensor(NamedTuple):
    """Checked tensor of a request: its shape, its dtype (one of DTYPES) and its bytes."""

    shape: tuple[int, ...]
    dtype: str
    content: memoryview


def read_request(parts: Sequence[memoryview]) -> FrameTensor | bytes:
    """Return the tensor of a message, or the response to a message without one.

    Args:
        parts: Frames of the message after the client's address.

    Raises:
        ValueError: it is malformed.
    """
    if not 1 <= len(parts) <= 2 or len(parts[0]) > HEAD_BYTES:
        raise ValueError("a message has a head of at most 1024 bytes and a tensor")
    try:
        head = json.loads(bytes(parts[0]))
    except RecursionError:
        raise ValueError("the head is nested too deeply") from None
    if not isinstance(head, dict):
        raise ValueError("the head is not a JSON object")
    if "model_request" in head:
        return MODEL_ANSWER
    if "model_data" in head:
        return TRANSFER_ANSWER
    shape, dtype = head.get("shape"), head.get("dtype")
    if not isinstance(shape, list) or any(type(size) is not int or size < 1 for size in shape):
        raise ValueError("shape is not a list of sizes")
    if dtype not in DTYPES or len(parts) != 2 or _batch_axis(shape) is None:
        raise ValueError(f"the tensor must be one image of 3 channels, {' or '.join(DTYPES)}")
    if len(parts[1]) != math.prod(shape) * np.dtype(dtype).itemsize or len(parts[1]) > TENSOR_BYTES:
        raise ValueError("the tensor has another size than its head says")
    return FrameTensor(tuple(shape), dtype, parts[1])


def _batch_axis(shape: Sequence[int]) -> tuple[int, int] | None:
    """Return the axes of the batch and of the channels."""
    layouts = ((0, 3), (0, 1), (2, 3), (3, 2))
    return next(
        (axes for axes in layouts if len(shape) == 4 and [shape[axis] for axis in axes] == [1, 3]), None
    )


def image_of(tensor: Array) -> Array:
    """Return a tensor as an image: uint8 [height, width, 3].

    >>> image_of(np.full((1, 3, 4, 5), 0.5, np.float32))[0, 0].tolist()
    [128, 128, 128]
    """
    axes = _batch_axis(tensor.shape)
    assert axes is not None
    batch, channels = axes
    image = np.moveaxis(tensor, (batch, channels), (0, 3))[0]
    if image.dtype == np.float32:
        with np.errstate(invalid="ignore"):
            image = (
                np.nan_to_num(image * np.float32(255 if image.max(initial=0) <= 1 else 1))
                .clip(0, 255)
                .round()
            )
    return np.ascontiguousarray(image, np.uint8)


def rows_of(detections: Detections, width: int, height: int, classes: Mapping[int, int]) -> bytes:
    """Return the rows of detections in an image of this size.

    Args:
        classes: Class of the model -> class of Frigate's label map. Others are dropped.
    """
    rows = np.zeros((ROWS, VALUES), np.float32)
    count = 0
    size = np.array([width, height, width, height], np.float32)
    for number, score, box in zip(
        detections.classes, detections.scores, detections.boxes / size, strict=True
    ):
        if count == ROWS:
            break
        if int(number) in classes and np.isfinite(score) and np.isfinite(box).all():
            x1, y1, x2, y2 = box.clip(0, 1)
            rows[count] = classes[int(number)], score, y1, x1, y2, x2
            count += 1
    return rows.tobytes()


def is_valid(rows: bytes) -> bool:
    """Return whether these are rows that Frigate can read."""
    return len(rows) == ROWS_BYTES and bool(np.isfinite(np.frombuffer(rows, np.float32)).all())


def classes_of(labels: Sequence[str], labelmap: Path | None) -> dict[int, int]:
    """Return the class of Frigate's label map for each class of a model.

    Args:
        labels: The card's labels, or none.
        labelmap: File that Frigate reads (``labelmap_path``); its names are compared with the labels. None
            means that its classes have the model's numbers; those that a map may lack are dropped.

    Raises:
        UsageError: the file can't be read, or has none of the labels.
    """
    if labelmap is None:
        return {number: number for number in range(min(len(labels) or KNOWN_CLASSES, KNOWN_CLASSES))}
    try:
        lines = labelmap.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"--labelmap {labelmap} can't be read: {problem}") from None
    pairs: list[Any] = list(enumerate(lines))
    if lines and lines[0].split(" ", 1)[0].isdigit():  # with numbers, as Frigate reads it
        pairs = [(int(line.split(" ", 1)[0]), line.split(" ", 1)[-1]) for line in lines if line[:1].isdigit()]
    numbers = {name.strip(): number for number, name in reversed(pairs)}
    classes = {number: numbers[label] for number, label in enumerate(labels) if label in numbers}
    if not classes:
        raise UsageError(
            f"--labelmap {labelmap} has none of the model's labels, e.g. {', '.join(labels[:3])}"
        )
    return classes
