"""TFLite Model Metadata as bytes: what Android Studio and MediaPipe show of a model, and prepare pictures by.

A table is a tuple of its fields in the schema's order, None for one that is left out; numpy's scalars say how
wide a number is.

Schema: https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np

from edgekit.tensor_spec import Array

NAME = "TFLITE_METADATA"
"""Of the model's metadata entry whose buffer holds it."""
IDENTIFIER = b"M001"
PARSER = "1.0.0"
"""The oldest reader that knows every field here."""

LABELS_OF_AXIS = np.int8(2)  # AssociatedFileType
RGB, GREY = np.int8(1), np.int8(2)  # ColorSpaceType
FEATURE, IMAGE = np.int8(1), np.int8(2)  # ContentProperties
NORMALIZATION = np.int8(1)  # ProcessUnitOptions

Table = tuple[Any, ...]


def associated_file(name: str, description: str, kind: np.int8 | None = None) -> Table:
    """A file in the zip that follows the model."""
    return (name, description, kind)


def image(colour: np.int8, width: int, height: int) -> Table:
    """Content of an input that is a picture, N, H, W, C."""
    return (IMAGE, (colour, (np.uint32(width), np.uint32(height))))


def feature() -> Table:
    """Content of anything else."""
    return (FEATURE, ())


def normalization(mean: Array, std: Array) -> Table:
    """(x - mean) / std, by channel; what an integer input holds is quantized after it."""
    return (NORMALIZATION, (mean.astype(np.float32), std.astype(np.float32)))


def stats(least: Array, greatest: Array) -> Table:
    """Range of the values, by channel."""
    return (greatest.astype(np.float32), least.astype(np.float32))


def tensor(
    name: str,
    description: str,
    content: Table,
    steps: Sequence[Table] = (),
    values: Table | None = None,
    files: Sequence[Table] = (),
) -> Table:
    """An input or output; ``steps`` are of ``normalization``, ``values`` of ``stats``."""
    return (name, description, None, content, list(steps) or None, values, list(files) or None)


def model(
    name: str,
    description: str,
    inputs: Sequence[Table],
    outputs: Sequence[Table],
    *,
    version: str = "",
    author: str = "",
    licence: str = "",
    files: Sequence[Table] = (),
) -> bytes:
    """The metadata of a file with one subgraph; inputs and outputs in its order, "" for what nobody said."""
    subgraph = (None, None, list(inputs), list(outputs))
    texts = [text or None for text in (version, author, licence)]
    root = (name, description or None, texts[0], [subgraph], *texts[1:], list(files) or None, PARSER)
    builder = flatbuffers.Builder(1024)
    builder.Finish(_written(builder, root), IDENTIFIER)
    return bytes(builder.Output())


def _written(builder: Any, value: Any) -> int:
    """Where a text, an array, a list of tables or a table is, counted from the end as the builder does."""
    if isinstance(value, str):
        return int(builder.CreateString(value))
    if isinstance(value, np.ndarray):
        return int(builder.CreateNumpyVector(value))
    if isinstance(value, list):
        offsets = [_written(builder, each) for each in value]
        builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())
    numbers = (type(None), np.int8, np.uint32)
    held = [0 if isinstance(x, numbers) else _written(builder, x) for x in value]
    builder.StartObject(len(value))
    for slot, (field, offset) in enumerate(zip(value, held, strict=True)):
        if isinstance(field, np.int8):
            builder.PrependInt8Slot(slot, int(field), 0)
        elif isinstance(field, np.uint32):
            builder.PrependUint32Slot(slot, int(field), 0)
        elif field is not None:
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    return int(builder.EndObject())
