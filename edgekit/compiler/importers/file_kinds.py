"""Kinds of PyTorch, Keras and scikit-learn files, by content: members of a zip archive, opcodes of a pickle.
The file is not loaded, so no code in it runs.
"""

from __future__ import annotations

import io
import pickletools
import zipfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

PICKLE_LIMIT_BYTES = 64 << 20
"""So much of a pickle is looked through for the names of its classes."""
OPCODES_LIMIT = 2_000_000
"""And so many of its opcodes, which take two seconds."""
MEMBERS_LIMIT = 100_000
"""A zip archive with more members is of nobody we know."""

ZIP, PICKLE = b"PK\3\4", b"\x80"
COMPRESSED = (b"\x78", b"\x1f\x8b", b"BZ", b"\xfd7zXZ", b"\x04\x22\x4d\x18")
"""How joblib's compressed files start: zlib, gzip, bz2, xz, lz4."""

PT2, TORCHSCRIPT, TORCH_PICKLE, KERAS, PLAIN_PICKLE = "pt2", "torchscript", "torch pickle", "keras", "pickle"


class FileKind(NamedTuple):
    """Kind of a file.

    Attributes:
        kind: One of the constants above; "" for anything else.
        modules: Modules of the classes and functions that a pickle would import.
        names: Classes and functions that a pickle would import: ``module.name`` if both are plain.
    """

    kind: str
    modules: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()

    def has(self, package: str) -> bool:
        """Return whether the pickle imports anything from a package."""
        return any(module.split(".")[0] == package for module in self.modules)

    @property
    def is_tensors_only(self) -> bool:
        """Return whether a pickle of torch's holds only tensors, numbers, lists and dictionaries."""
        return not any(module.split(".")[0] not in _OF_TENSORS for module in self.modules) and not any(
            name.startswith(("torch.nn", "torch.fx", "torch.jit")) for name in self.modules
        )


_OF_TENSORS = frozenset({"torch", "collections", "numpy", "_codecs", "builtins", "__builtin__", "copyreg"})


def file_kind(head: bytes, path: Path) -> FileKind:
    """Return a file's kind, by its content, or by its suffix for a pickle without a marker. Never raises."""
    try:
        status = path.stat()
    except OSError:
        return FileKind("")
    if head[:4] == ZIP:
        return _zip_kind(str(path), status.st_size, status.st_mtime_ns)
    suffix = path.suffix.lower()
    if head[:1] == PICKLE or suffix in (".pkl", ".pickle", ".joblib"):
        return _pickle_kind(str(path), status.st_size, status.st_mtime_ns)
    return FileKind("")


@lru_cache(8)
def _zip_kind(path: str, size: int, stamp: int) -> FileKind:
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if len(members) > MEMBERS_LIMIT:
                return FileKind("")
            member_names = {name.partition("/")[2] or name for name in members}
            if "archive_format" in member_names or "serialized_exported_program.json" in members:
                return FileKind(PT2)
            if "constants.pkl" in member_names and any(name.startswith("code/") for name in member_names):
                return FileKind(TORCHSCRIPT)
            if {"config.json", "metadata.json"} <= set(members):
                return FileKind(KERAS)
            pickled = next((name for name in members if name.endswith("/data.pkl")), None)
            if pickled is not None and "version" in member_names:
                with archive.open(pickled) as file:
                    return _classified(TORCH_PICKLE, file.read(PICKLE_LIMIT_BYTES))
    except Exception:  # a damaged archive raises half a dozen kinds
        return FileKind("")
    return FileKind("")


@lru_cache(8)
def _pickle_kind(path: str, size: int, stamp: int) -> FileKind:
    try:
        with open(path, "rb") as file:
            content = file.read(PICKLE_LIMIT_BYTES)
    except OSError:
        return FileKind("")
    if content.startswith(COMPRESSED):
        return FileKind(PLAIN_PICKLE)  # joblib's: what is in it shows only when it is unpacked
    # The first pickle of torch's own form before 1.6 is this number.
    old_torch = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19" in content[:64]
    return _classified(TORCH_PICKLE if old_torch else PLAIN_PICKLE, content)


def _classified(kind: str, content: bytes) -> FileKind:
    """Return the kind with the modules that the pickle names. In joblib's files, the opcodes before the first
    raw array name the estimator."""
    modules: set[str] = set()
    names: set[str] = set()
    texts = ["", ""]
    try:
        for opcode, argument in _opcodes(content):
            if opcode in ("GLOBAL", "INST"):
                module, _, name = str(argument).partition(" ")
                modules.add(module)
                names.add(f"{module}.{name}")
            elif opcode == "STACK_GLOBAL":
                modules.add(texts[-2])
                names.add(".".join(texts[-2:]))
            elif isinstance(argument, str):
                texts = [texts[-1], argument]
                if argument.startswith(("sklearn.", "torch.", "ultralytics.")):
                    modules.add(argument)  # memoized, it may stand before another name
    except Exception:  # raw arrays, or damage
        return FileKind(kind, frozenset(modules), frozenset(names))
    return FileKind(kind, frozenset(modules), frozenset(names))


def _opcodes(content: bytes) -> Iterator[tuple[str, object]]:
    """Yield the opcodes of all pickles in a row: torch's format before 1.6 has five."""
    stream, count = io.BytesIO(content), 0
    while stream.tell() < len(content):
        for opcode, argument, _ in pickletools.genops(stream):
            yield opcode.name, argument
            count += 1
            if count > OPCODES_LIMIT:
                return
