"""Export of the .tflite file for Android apps without our runtime, with the card's contents as metadata.

Android Studio then shows the inputs, the outputs and the labels, and its tools prepare images with the same
numbers as a Session. The labels are a zip after the model, as those tools expect.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing import Card
from edgekit.processing.inputs.image import ImageInput
from edgekit.tensor_spec import Array, Json, TensorSpec
from edgekit_tflite import metadata
from edgekit_tflite.assembly import IDENTIFIER, TABLES_BYTES, assembled, empty_buffer, is_outside
from edgekit_tflite.input_layout import transpose_input
from edgekit_tflite.layout import channels_last, identity
from edgekit_tflite.records import Record, packed, unpacked

FILE = "model.tflite"
LABELS = "labels.txt"
COLOURS = {"RGB": metadata.RGB, "GREY": metadata.GREY}
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can say: the same labels give the same bytes."""


def app_files(
    files: Mapping[str, bytes], options: Mapping[str, Json], card: Card, outputs: Sequence[TensorSpec]
) -> dict[str, bytes]:
    """Return the file with the card's contents as metadata; its outputs do not change.

    Images become inputs with their channels last, as Android's tools give them.

    Raises:
        UsageError: the metadata cannot express something that the card needs.
    """
    model: Any = unpacked(files[FILE], "Model")  # its buffers are views of the file
    subgraph = model.subgraphs[0]
    for index, entry in enumerate(options["inputs"]):
        _store_channels_last(model, index, entry, card, files[FILE])
    inputs = [
        _input(card, entry, subgraph.tensors[index])
        for entry, index in zip(options["inputs"], subgraph.inputs, strict=True)
    ]
    labels, scores = _labels(card, outputs)
    of_scores = metadata.associated_file(LABELS, "Names of the classes, in order.", metadata.LABELS_OF_AXIS)
    tensors = []
    for entry in options["outputs"]:
        name = entry["name"]
        tensor_files = [of_scores] if labels and name == scores else []
        tensors.append(metadata.tensor(name, _meaning(card, name), metadata.feature(), files=tensor_files))
    apart = metadata.associated_file(LABELS, "Names of the classes, by number.")
    content = metadata.model(
        card.title,
        card.about.get("description", ""),
        inputs,
        tensors,
        version=card.about.get("version", ""),
        author=card.about.get("author", ""),
        licence=card.about.get("license", ""),
        files=[apart] if labels and not scores else [],
    )
    written = _with_metadata(files[FILE], model, content)
    return {**files, FILE: _with_labels(written, labels) if labels else written}


def _input(card: Card, entry: Mapping[str, Json], tensor: Any) -> Record:
    image, name = card.inputs.get(entry["name"]), str(entry["name"])
    if not isinstance(image, ImageInput):
        return metadata.tensor(name, "", metadata.feature())
    if image.colour not in COLOURS:
        raise UsageError(
            f"{card.title}: input {name} is {image.colour}, and Android's tools give RGB or grey; "
            "export it without --metadata, and prepare the picture yourself"
        )
    height, width = (image.shape[image.layout.index(axis)] for axis in "HW")
    mean, std = np.array(image.mean), np.array(image.std)
    # The metadata's numbers are those of the float that the integer input represents.
    quantization = tensor.quantization
    if quantization is not None and quantization.scale is not None and len(quantization.scale):
        scale, zero_point = float(quantization.scale[0]), int(quantization.zeroPoint[0])
        mean, std = mean + std * zero_point, std / scale
    return metadata.tensor(
        name,
        _preparation(image),
        metadata.image(COLOURS[image.colour], width, height),
        [metadata.normalization(mean, std)],
        metadata.stats((0 - mean) / std, (255 - mean) / std),
    )


def _store_channels_last(model: Any, index: int, entry: Mapping[str, Json], card: Card, file: bytes) -> None:
    """Let the model take an image with its channels last, if it was not built with ``--io nhwc``."""
    image = card.inputs.get(entry["name"])
    if not isinstance(image, ImageInput):
        return
    rows_first = channels_last(4) if image.layout == "NCHW" else identity(4)
    stored = tuple(entry.get("order", identity(4)))
    if stored != rows_first:
        order = [stored.index(axis) for axis in rows_first]
        transpose_input(model, index, order, lambda buffer: _content(file, model.buffers[buffer]))


def _preparation(image: ImageInput) -> str:
    resized = {
        "stretch": "stretched to size",
        "letterbox": f"fitted at its proportions, {image.place}, the rest {image.pad}",
        "center-crop": f"{image.crop:.3g} of the largest part of these proportions, from the middle",
        "resize-crop": f"scaled to a shorter side of {image.shorter_side}, then the middle",
        "fit-height": f"at full height from the left, the rest {image.pad}",
    }[image.resize]
    return f"A picture, {resized}; {image.interpolation} interpolation."


def _meaning(card: Card, name: str) -> str:
    task = card.task
    role = next((r for r, n in task.outputs.items() if n == name), "") if task is not None else ""
    return f"{role}, to be decoded as {task.decode}" if task is not None and role else ""


def _labels(card: Card, outputs: Sequence[TensorSpec]) -> tuple[list[str], str]:
    task = card.task
    if task is None or not task.labels:
        return [], ""
    scores = task.outputs.get("scores", "")
    if not scores:
        return list(task.labels), ""
    first = int(getattr(task.options, "first_class", 0))
    width = next(spec.shape[-1] for spec in outputs if spec.name == scores)
    named = [*task.labels[first : first + width]]
    return named + [""] * (width - len(named)), scores


def _with_metadata(file: bytes, model: Any, content: bytes) -> bytes:
    contents = [_content(file, buffer) for buffer in model.buffers[1:]]
    outside_of_tables = is_outside(contents)
    entry = Record("Metadata", name=metadata.NAME, buffer=len(model.buffers))
    holder = Record("Buffer", data=np.frombuffer(content, np.uint8))  # in the tables: readers look there
    model.buffers = [model.buffers[0], *(empty_buffer(outside_of_tables) for _ in contents), holder]
    model.metadata = [*(model.metadata or []), entry]
    return bytes(assembled(packed(model, IDENTIFIER, TABLES_BYTES), contents))


def _content(file: bytes, buffer: Any) -> Array:
    if buffer.offset > 1:
        return np.frombuffer(file, np.uint8, buffer.size, buffer.offset)
    content: Array = buffer.data if buffer.data is not None else np.zeros(0, np.uint8)
    return content


def _with_labels(file: bytes, labels: Sequence[str]) -> bytes:
    buffer = io.BytesIO(file)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr(zipfile.ZipInfo(LABELS, LONG_AGO), "".join(f"{label}\n" for label in labels))
    return buffer.getvalue()
