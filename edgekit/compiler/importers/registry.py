"""The installed importers, found by entry point, and the one that a model is for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import cast

from edgekit.compiler.importers.contract import HEAD_BYTES, Importer, Source
from edgekit.errors import ModelError, UsageError

ONNX_SUFFIXES = (".onnx", ".ort")
FIRST_FIELD = 8
"""A ModelProto starts with its field ``ir_version`` (1, varint); serializers write fields in their order."""


@cache
def importers() -> Mapping[str, Importer]:
    """Return the importers by the names of their entry points, sorted by name."""
    from importlib.metadata import entry_points  # here: it costs 15 ms, and an ONNX file needs none

    points = sorted(entry_points(group="edgekit.importers"), key=lambda point: point.name)
    return {point.name: cast(Importer, point.load().IMPORTER) for point in points}


def find_importer(source: Source) -> str | None:
    """Return the name of a model's importer, by content, else by suffix; None for an ONNX model.

    Raises:
        UsageError: an object that is of no framework.
        ModelError: the file can't be read.
    """
    if not isinstance(source, Path):
        name = next((name for name, entry in importers().items() if entry.recognize_object(source)), None)
        if name is None:
            kinds = ", ".join(sorted({entry.source_format for entry in importers().values()}))
            raise UsageError(
                f"EdgeKit cannot import a {type(source).__module__}.{type(source).__qualname__}; pass the "
                f"path of a file, or an object from one of: {kinds}"
            )
        return name
    head = _head(source)
    if is_onnx(head):
        return None
    registered = importers()
    name = next((name for name, entry in registered.items() if entry.recognize(head, source)), None)
    if name is None and source.suffix.lower() not in ONNX_SUFFIXES and source.exists():
        suffix = source.suffix.lower()
        name = next((name for name, entry in registered.items() if suffix in entry.suffixes), None)
    return name


def is_onnx(head: bytes) -> bool:
    """Return whether a file starts like an ONNX file.

    The second byte distinguishes it from a flatbuffer whose root is at offset 8: an IR version is not 0.
    """
    return len(head) > 1 and head[0] == FIRST_FIELD and 0 < head[1] < 128


def _head(path: Path) -> bytes:
    """Return the start of a file, or b"" if there is none: opening it later raises the error."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
