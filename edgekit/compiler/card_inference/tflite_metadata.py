"""TFLite metadata of pictures and classes, copied to the ONNX model by the importer (docs/importing.md)."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

METADATA, FILE = "tflite.metadata", "tflite.file/"
"""Keys in ``metadata_props``: TFLite's ModelMetadata as JSON, and its associated files that are text."""


ULTRALYTICS_LIMIT_CHARS = 1 << 17
"""Longest metadata of Ultralytics that is read; 1000 class names have 20,000 characters."""


class InputMetadata(NamedTuple):
    """Preprocessing of a picture; fields are None where the metadata lacks them.

    Attributes:
        mean, std: Mean and standard deviation in units of pixels from 0 to 255.
        colour: ``RGB`` or ``GREY``.
    """

    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    colour: str | None


def input_metadata(metadata: Mapping[str, str], name: str) -> InputMetadata:
    entry = _entry(metadata, "inputs", name)
    mean = std = None
    for step in _list(entry.get("steps")):
        if isinstance(step, dict) and step.get("type") == "normalization":
            mean, std = _numbers(step.get("mean")), _numbers(step.get("std"))
    content = entry.get("content")
    space = content.get("color_space") if isinstance(content, dict) else None
    colour = {"RGB": "RGB", "GRAYSCALE": "GREY"}.get(space) if isinstance(space, str) else None
    usable = mean and std and min(std) > 0
    return InputMetadata(mean if usable else None, std if usable else None, colour)


def output_labels(metadata: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Return an output's labels: an associated file of axis or value labels, without its empty last line."""
    for file in _list(_entry(metadata, "outputs", name).get("files")):
        if not isinstance(file, dict) or file.get("type") not in (
            "TENSOR_AXIS_LABELS",
            "TENSOR_VALUE_LABELS",
        ):
            continue
        text = metadata.get(f"{FILE}{file.get('name')}", "")
        if text:
            return tuple(line.strip() for line in text.removesuffix("\n").split("\n"))
    return ()


def ultralytics_in(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return Ultralytics' metadata in a TFLite file, the same as in ONNX: texts by key; {} if absent.

    Older exports have a file with a Python dict, newer ones ``metadata.json``.
    """
    for key, text in metadata.items():
        if not key.startswith(FILE) or "meta" not in key or len(text) > ULTRALYTICS_LIMIT_CHARS:
            continue
        try:
            parsed = json.loads(text) if key.endswith(".json") else ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(parsed, dict) and parsed.get("author") == "Ultralytics":
            return {str(name): str(value) for name, value in parsed.items()}
    return {}


def _entry(metadata: Mapping[str, str], side: str, name: str) -> dict[str, Any]:
    try:
        entry = json.loads(metadata.get(METADATA, "{}"))[side][name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _numbers(value: Any) -> tuple[float, ...] | None:
    numbers = _list(value)
    return (
        tuple(map(float, numbers)) if numbers and all(isinstance(n, int | float) for n in numbers) else None
    )
