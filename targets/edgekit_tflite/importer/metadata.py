"""Conversion of a .tflite file's metadata to ``metadata_props`` of the ONNX model.

TFLite Model Metadata (written by metadata.py) describes how inputs are prepared and what outputs mean; label
files are in a zip archive at the file's end. It is optional and untrusted: damaged or too large parts are
left out, with a note.

Keys, each with JSON:
    tflite.tensors: ``inputs`` and ``outputs`` by name, with ``signature_name``, and ``scale`` and
        ``zero_point`` of integers.
    tflite.metadata: ``name``, ``description``, ``version``, ``author``, ``license``, ``files``,
        ``graph_files``, and ``inputs`` and ``outputs`` by name. Each of these has, as far as the file has
        them, ``name``, ``description``, ``dimensions``; ``min`` and ``max``, one for all channels or one per
        channel; ``content`` with ``type`` and its fields: ``image`` (``color_space``, ``default_size``),
        ``audio`` (``sample_rate``, ``channels``), ``bounding_box`` (``index``, ``box``, ``coordinates``),
        ``feature``; ``steps``: ``normalization`` with ``mean`` and ``std`` (the model takes (x - mean) / std
        of pixels 0 to 255), ``score_thresholding`` with ``threshold``, others by name; ``files`` with
        ``name`` and ``type``.
    tflite.file/NAME: text of an associated file, for example labels; binary files and files over 1 MB are
        left out.

Schema:
https://github.com/tensorflow/tflite-support/blob/master/tensorflow_lite_support/metadata/metadata_schema.fbs
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.errors import ModelError
from edgekit.tensor_spec import Json
from edgekit_tflite.importer.element_types import SCALED
from edgekit_tflite.importer.file import TfliteFile, end_names
from edgekit_tflite.metadata import IDENTIFIER
from edgekit_tflite.tables import Table, root_table

TENSORS_KEY = "tflite.tensors"
METADATA_KEY = "tflite.metadata"
FILE_KEY = "tflite.file/"
"""And the name of the file."""

MAX_ENTRIES = 256
MAX_FILES = 32
MAX_FILE_BYTES = 1 << 20
"""Of one label file or vocabulary."""
MAX_CHANNELS = 4096

# The schema's tables: the fields that are read, by their slots.
MODEL_NAME, MODEL_DESCRIPTION, MODEL_VERSION, MODEL_SUBGRAPHS, MODEL_AUTHOR, MODEL_LICENCE = 0, 1, 2, 3, 4, 5
MODEL_FILES = 6
GRAPH_INPUTS, GRAPH_OUTPUTS, GRAPH_FILES = 2, 3, 4
TENSOR_NAME, TENSOR_DESCRIPTION, TENSOR_DIMENSIONS, TENSOR_CONTENT = 0, 1, 2, 3
TENSOR_STEPS, TENSOR_STATS, TENSOR_FILES = 4, 5, 6
CONTENT_TYPE, CONTENT = 0, 1
UNION_TYPE, UNION = 0, 1
STATS_MAX, STATS_MIN = 0, 1
FILE_NAME, FILE_DESCRIPTION, FILE_TYPE, FILE_LOCALE = 0, 1, 2, 3

CONTENTS: Mapping[int, str] = {1: "feature", 2: "image", 3: "bounding_box", 4: "audio"}
COLOURS: Mapping[int, str] = {1: "RGB", 2: "GRAYSCALE"}
BOX_TYPES: Mapping[int, str] = {1: "BOUNDARIES", 2: "UPPER_LEFT", 3: "CENTER"}
COORDINATES: Mapping[int, str] = {0: "RATIO", 1: "PIXEL"}
FILE_TYPES: Mapping[int, str] = {
    1: "DESCRIPTIONS",
    2: "TENSOR_AXIS_LABELS",
    3: "TENSOR_VALUE_LABELS",
    4: "TENSOR_AXIS_SCORE_CALIBRATION",
    5: "VOCABULARY",
}
STEPS: Mapping[int, str] = {
    1: "normalization",
    2: "score_calibration",
    3: "score_thresholding",
    4: "bert_tokenizer",
    5: "sentence_piece_tokenizer",
    6: "regex_tokenizer",
}


def metadata_props(file: TfliteFile, data: bytes) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the properties, and notes on parts that could not be read."""
    props = {TENSORS_KEY: _as_text(_tensors(file))}
    notes = []
    if file.metadata:
        try:
            props[METADATA_KEY] = _as_text(_model(file.metadata, file))
        except ModelError as problem:
            notes.append(f"its metadata could not be read: {problem}")
    if zipfile.is_zipfile(io.BytesIO(data)):
        files, problem_text = _files(data)
        props |= {f"{FILE_KEY}{name}": text for name, text in files.items()}
        notes += [problem_text] if problem_text else []
    return props, tuple(notes)


def _as_text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=True)


def _tensors(file: TfliteFile) -> Json:
    """Return signature name, scale and zero point of inputs and outputs, by their names in ONNX."""
    entries: dict[str, Json] = {}
    for key, ends, names in zip(
        ("inputs", "outputs"), (file.graph.inputs, file.graph.outputs), end_names(file.graph), strict=True
    ):
        entries[key] = {}
        for i, name in zip(ends, names, strict=True):
            tensor = file.graph.tensors[i]
            entry: dict[str, Json] = {}
            if i in file.signature:
                entry["signature_name"] = file.signature[i]
            if tensor.quantization is not None and tensor.dtype in SCALED:
                entry["scale"] = tensor.quantization.scale[0]
                entry["zero_point"] = tensor.quantization.zero_point[0]
            entries[key][name] = entry
    return entries


def _model(content: bytes, file: TfliteFile) -> Json:
    if content[4:8] != IDENTIFIER:
        raise ModelError(f"it does not say {IDENTIFIER.decode()} in bytes 4 to 8")
    model = root_table(memoryview(content), "the metadata")
    texts = {
        "name": model.text(MODEL_NAME),
        "description": model.text(MODEL_DESCRIPTION),
        "version": model.text(MODEL_VERSION),
        "author": model.text(MODEL_AUTHOR),
        "license": model.text(MODEL_LICENCE),
    }
    entry: dict[str, Json] = _without_empty(texts)
    entry |= _without_empty({"files": _associated(model, MODEL_FILES)})
    for graph in model.tables(MODEL_SUBGRAPHS, "subgraph's metadata", MAX_ENTRIES)[:1]:
        names = end_names(file.graph)
        for key, slot, ends in zip(("inputs", "outputs"), (GRAPH_INPUTS, GRAPH_OUTPUTS), names, strict=True):
            tensors = graph.tables(slot, f"metadata of {key}", MAX_ENTRIES)
            entry[key] = {name: _tensor(tensor) for name, tensor in zip(ends, tensors, strict=False)}
        entry |= _without_empty({"graph_files": _associated(graph, GRAPH_FILES)})
    return entry


def _tensor(tensor: Table) -> Json:
    entry: dict[str, Json] = {
        "name": tensor.text(TENSOR_NAME),
        "description": tensor.text(TENSOR_DESCRIPTION),
        "dimensions": tensor.texts(TENSOR_DIMENSIONS, MAX_ENTRIES),
        "files": _associated(tensor, TENSOR_FILES),
        "steps": [_step(step) for step in tensor.tables(TENSOR_STEPS, "process unit", MAX_ENTRIES)],
    }
    content = tensor.table(TENSOR_CONTENT, "content")
    if content is not None:
        entry["content"] = _content(content)
    stats = tensor.table(TENSOR_STATS, "stats")
    if stats is not None:
        entry |= {"min": _numbers(stats, STATS_MIN), "max": _numbers(stats, STATS_MAX)}
    return _without_empty(entry)


def _content(content: Table) -> Json:
    kind = CONTENTS.get(content.number(CONTENT_TYPE, "B"), "")
    properties = content.table(CONTENT, "content's properties")
    entry: dict[str, Json] = {"type": kind}
    if properties is None:
        return entry
    if kind == "image":
        entry["color_space"] = COLOURS.get(properties.number(0, "b"), "")
        size = properties.table(1, "image's size")
        if size is not None:
            entry["default_size"] = [size.number(0, "I"), size.number(1, "I")]
    elif kind == "bounding_box":
        entry["index"] = properties.array(0, "uint32")[:MAX_ENTRIES].tolist()
        entry["box"] = BOX_TYPES.get(properties.number(1, "b"), "")
        entry["coordinates"] = COORDINATES.get(properties.number(2, "b"), "")
    elif kind == "audio":
        entry |= {"sample_rate": properties.number(0, "I"), "channels": properties.number(1, "I")}
    return _without_empty(entry)


def _step(step: Table) -> Json:
    kind = STEPS.get(step.number(UNION_TYPE, "B"), "")
    options = step.table(UNION, "process unit's options")
    entry: dict[str, Json] = {"type": kind}
    if options is None:
        return entry
    if kind == "normalization":
        entry |= {"mean": _numbers(options, 0), "std": _numbers(options, 1)}
    elif kind == "score_thresholding":
        entry["threshold"] = float(options.number(0, "f"))
    elif kind == "bert_tokenizer":
        entry["vocabulary"] = _associated(options, 0)
    elif kind == "regex_tokenizer":
        entry |= {"delimiter": options.text(0), "vocabulary": _associated(options, 1)}
    return entry


def _associated(table: Table, slot: int) -> list[Json]:
    return [
        _without_empty(
            {
                "name": file.text(FILE_NAME),
                "description": file.text(FILE_DESCRIPTION),
                "type": FILE_TYPES.get(file.number(FILE_TYPE, "b"), ""),
                "locale": file.text(FILE_LOCALE),
            }
        )
        for file in table.tables(slot, "associated file", MAX_ENTRIES)
    ]


def _numbers(table: Table, slot: int) -> Sequence[float]:
    return [float(n) for n in table.array(slot, "float32")[:MAX_CHANNELS]]


def _without_empty(entries: Mapping[str, Json]) -> dict[str, Any]:
    return {key: value for key, value in entries.items() if value not in ("", [], {}, None)}


def _files(data: bytes) -> tuple[dict[str, str], str]:
    try:
        return dict(_unpacked(data)), ""
    except (
        zipfile.BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        ValueError,
    ) as error:
        return {}, f"the files that come with it could not be read: {error}"


def _unpacked(data: bytes) -> Iterator[tuple[str, str]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist()[:MAX_FILES]:
            if entry.file_size > MAX_FILE_BYTES or entry.is_dir():
                continue
            with archive.open(entry) as file:
                content = file.read(MAX_FILE_BYTES + 1)
            if len(content) <= MAX_FILE_BYTES and b"\0" not in content:
                yield entry.filename, content.decode("utf-8", "replace")
