"""A model of any framework -> an opened ONNX model, and where it came from."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import cast

import onnx_ir as ir

from edgekit.compiler.importers.contract import HEAD_BYTES, FrameworkOutputs, Importer, ImportOptions, Source
from edgekit.compiler.importers.original import package_version
from edgekit.compiler.model.hugging_face_folder import onnx_in_folder
from edgekit.compiler.model.model_bytes import file_digest
from edgekit.compiler.model.onnx_file import open_bytes, open_model
from edgekit.errors import ModelError, UsageError, printable
from edgekit.tensor_spec import Array, Json


@dataclass(frozen=True, eq=False)
class Imported:
    """Model that an importer converted to ONNX.

    Attributes:
        name: File name of the source, or the class of an object.
        source_sha256: SHA-256 of the source file, hexadecimal; "" for an object or a folder.
        tools: Versions of the packages that determine the result.
        precision: Precision of the original if the ONNX model's differs.
        example: The user's example inputs, by the names of the ONNX model's inputs.
    """

    onnx: bytes
    name: str
    source: Source
    source_sha256: str
    importer: Importer
    importer_name: str
    tools: Mapping[str, str]
    notes: tuple[str, ...]
    precision: str = ""
    answers: Callable[[Sequence[Mapping[str, Array]]], FrameworkOutputs] | None = None
    example: Mapping[str, Array] | None = None

    @property
    def onnx_sha256(self) -> str:
        return hashlib.sha256(self.onnx).hexdigest()

    def as_json(self) -> dict[str, Json]:
        """Return both steps, for the manifest and ``--json``: the source, and its conversion to ONNX."""
        return {
            "format": self.importer.source_format,
            "importer": self.importer_name,
            "tools": dict(self.tools),
            "onnx_sha256": self.onnx_sha256,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        tools = ", ".join(f"{name} {number}" for name, number in self.tools.items())
        return f"{self.importer.source_format}, imported by {tools}"


def import_source(source: Source | str, options: ImportOptions | None = None) -> Imported | None:
    """Convert a model to ONNX; None if it is to be opened as the ONNX file that it is.

    Raises:
        ModelError: the model can't be converted, or its file changed meanwhile.
        UsageError: an object that is of no framework.
        MissingDependency: the framework that converts it is not installed.
    """
    source = as_source(source)
    name = find_importer(source)
    if name is None:
        return None
    importer = importers()[name]
    before = _stamp(source)
    digest = file_digest(source) if isinstance(source, Path) and source.is_file() else ""
    converted = importer.to_onnx(source, options or ImportOptions())
    if _stamp(source) != before:
        raise ModelError(
            f"{source_name(source)}: changed while EdgeKit read it; wait until it is completely written"
        )
    return Imported(
        converted.onnx, source_name(source), source, digest, importer, name, _tools(importer),
        tuple(map(printable, converted.notes)), converted.precision,
        converted.answers or (importer.answers and partial(importer.answers, source)), converted.example,
    )  # fmt: skip


def open_source_model(
    source: Source | str,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    options: ImportOptions | None = None,
) -> tuple[ir.Model, Imported | None]:
    """Open a model of any framework, as ``open_model`` opens an ONNX file."""
    imported = import_source(source, replace(options or ImportOptions(), shapes=shapes or {}))
    return open_converted(source, imported, shapes), imported


def open_converted(
    source: Source | str, imported: Imported | None, shapes: Mapping[str, tuple[int, ...]] | None
) -> ir.Model:
    if imported is not None:
        return open_bytes(imported.onnx, imported.name, shapes)
    return open_model(Path(str(as_source(source))), shapes)


def as_source(model: Source | str) -> Source:
    """Return the path of a file, or the object as it is. Of a Hugging Face folder it is the ONNX file that
    Optimum writes there."""
    if not isinstance(model, str | os.PathLike):
        return model
    return onnx_in_folder(Path(model)) or Path(model)


def source_name(source: Source) -> str:
    return source.name if isinstance(source, Path) else type(source).__qualname__


def _stamp(source: Source) -> object:
    """Return an identifier of a file's version; None for anything else."""
    try:
        status = os.stat(source) if isinstance(source, Path) and source.is_file() else None
    except OSError:
        return None
    return status and (status.st_ino, status.st_size, status.st_mtime_ns)


def _tools(importer: Importer) -> dict[str, str]:
    versions = {}
    for package in ("edgekit-sdk", *importer.packages):
        try:
            versions[package] = package_version(package)
        except PackageNotFoundError:
            continue
    return versions


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
    """Return the name of a model's importer, by content, else by suffix; None for an ONNX model."""
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
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
