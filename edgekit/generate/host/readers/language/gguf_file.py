"""The GGUF container, version 2 and 3: metadata and tensors, from a file that may be hostile.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. Every count, length and offset is checked
against the file's size and the limits below before anything is read or made; tensors are read when they are
asked for. The file is not mapped: one that is cut off meanwhile gives an error, not a signal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_blocks import ELEMENT_TYPES, OTHER_TYPES, ElementType
from edgekit.system.regular_file import PlainFile
from edgekit.tensor_spec import Array

MAGIC = b"GGUF"
FILE_LIMIT_BYTES = 64 << 30
KEYS_LIMIT, TENSORS_LIMIT = 4096, 65_536
KEY_LIMIT_BYTES = 65_535
"""The format's own limit on a key's length."""
TEXT_LIMIT_BYTES = 16 << 20
ITEMS_LIMIT = 2_000_000
"""Items of all arrays together: Gemma 3 has 262,144 tokens with types and scores, Llama 3 128,256 with types
and 280,147 merges."""
HEAD_LIMIT_BYTES = 256 << 20
"""Maximum size of everything before the tensors' data, in bytes."""
DIMENSIONS_LIMIT = 4
"""``GGML_MAX_DIMS``."""
BUFFER_BYTES = 1 << 20

Value: TypeAlias = "int | float | bool | str | list[str] | Array"
_T = TypeVar("_T", int, float, bool, str)
_NUMBERS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_TEXT, _ARRAY = 8, 9


class GgufTensor(NamedTuple):
    """Location of a tensor in the file."""

    kind: ElementType
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class GgufFile:
    """Open GGUF file.

    Attributes:
        metadata: Values by key. Arrays of numbers are numpy arrays; arrays of strings are lists.
        tensors: Tensors by name.
    """

    path: Path
    metadata: Mapping[str, Value]
    tensors: Mapping[str, GgufTensor]
    _file: PlainFile = field(repr=False)

    def read(self, name: str, rows: slice = slice(None)) -> Array:
        """Read the bytes of a tensor, or of some of its first dimension, as a uint8 array.

        Raises:
            ModelError: the bytes can't be read.
        """
        tensor = self.tensors[name]
        start, stop, _ = rows.indices(tensor.shape[0])
        row_bytes = tensor.size_bytes // tensor.shape[0]
        offset, size_bytes = tensor.offset + start * row_bytes, (stop - start) * row_bytes
        try:
            raw = self._file.read(offset, size_bytes)
            while raw and len(raw) < size_bytes:  # a read gives at most 2 GB
                more = self._file.read(offset + len(raw), size_bytes - len(raw))
                if not more:
                    break
                raw += more
        except OSError as problem:
            raise ModelError(f"{self.path}: cannot be read ({problem.strerror})") from None
        if len(raw) != size_bytes:
            raise ModelError(
                f"{self.path}: was truncated while EdgeKit read it; wait until it is completely written"
            )
        return np.frombuffer(raw, np.uint8)

    def get(self, key: str, kind: type[_T]) -> _T | None:
        """Return a value of the metadata, or None where it is absent.

        Raises:
            ModelError: the value is of another type.
        """
        value = self.metadata.get(key)
        if value is None:
            return None
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(f"{self.path}: its {key} is not a {_WORDS[kind]}")
        return value

    def need(self, key: str, kind: type[_T]) -> _T:
        """Return a required value of the metadata.

        Raises:
            ModelError: the value is absent, or of another type.
        """
        value = self.get(key, kind)
        if value is None:
            raise ModelError(
                f"{self.path}: has no {key}, which a language model needs; convert it again with "
                "llama.cpp's convert_hf_to_gguf.py"
            )
        return value


_WORDS: Mapping[type, str] = {int: "whole number", float: "number", bool: "truth value", str: "text"}


def open_gguf(path: Path) -> GgufFile:
    """Read and check everything before the tensors' data.

    Raises:
        ModelError: the file can't be read, is not GGUF, is damaged, or exceeds a limit.
    """
    try:
        file = PlainFile(str(path), FILE_LIMIT_BYTES)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
    except (ValueError, OverflowError) as problem:
        raise ModelError(f"{path}: cannot be read ({problem})") from None
    head = _Head(path, file)
    if head.take(4) != MAGIC:
        raise ModelError(f"{path}: is not a GGUF file: it does not start with {MAGIC.decode()}")
    version = head.number(4)
    if version not in (2, 3):
        if version in (2 << 24, 3 << 24):
            raise ModelError(f"{path}: is a big-endian GGUF file; convert it for little-endian machines")
        raise ModelError(f"{path}: is GGUF version {version}; EdgeKit reads versions 2 and 3")
    tensor_count = head.count("tensors", TENSORS_LIMIT, 24)
    key_count = head.count("keys", KEYS_LIMIT, 13)
    metadata: dict[str, Value] = {}
    for _ in range(key_count):
        key = head.text(KEY_LIMIT_BYTES, "a key")
        if key in metadata:
            raise ModelError(f"{path}: has the key {key[:60]} twice")
        metadata[key] = head.value(key)
    entries = [_tensor_entry(head) for _ in range(tensor_count)]
    return GgufFile(path, metadata, _placed(path, file.size, head.position, metadata, entries), file)


def _tensor_entry(head: _Head) -> tuple[str, tuple[int, ...], int, int]:
    """Name, shape, number of the element type, offset from the data's start."""
    name = head.text(KEY_LIMIT_BYTES, "a tensor's name")
    rank = head.number(4)
    if rank > DIMENSIONS_LIMIT:
        raise ModelError(f"{head.path}: tensor {name[:60]} has {rank} dimensions; the format has at most 4")
    shape = tuple(head.number(8) for _ in range(rank))[::-1]
    return name, shape, head.number(4), head.number(8)


def _placed(
    path: Path,
    file_bytes: int,
    head_bytes: int,
    metadata: Mapping[str, Value],
    entries: list[tuple[str, tuple[int, ...], int, int]],
) -> dict[str, GgufTensor]:
    """Locate the tensors. Check that each lies within the file and that they do not overlap."""
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in {1 << power for power in range(3, 21)}:
        raise ModelError(
            f"{path}: its general.alignment is {alignment!s:.40}, not a power of two from 8 to 1 MB"
        )
    start = -(-head_bytes // alignment) * alignment
    tensors: dict[str, GgufTensor] = {}
    for name, shape, number, offset in entries:
        label = f"{path}: tensor {name[:60]}"
        kind = ELEMENT_TYPES.get(number)
        if kind is None:
            called = OTHER_TYPES.get(number, f"number {number}")
            supported = ", ".join(element_type.name for element_type in ELEMENT_TYPES.values())
            raise ModelError(
                f"{label} has type {called}, which EdgeKit cannot read; use a file of this model with one "
                f"of {supported}"
            )
        elements = math.prod(shape)
        if not shape or not elements or shape[-1] % kind.block:
            raise ModelError(
                f"{label} is {list(shape)}, which is not a multiple of the {kind.name} block size, "
                f"{kind.block}"
            )
        size_bytes = elements // kind.block * kind.size_bytes
        if offset % alignment or start + offset + size_bytes > file_bytes:
            raise ModelError(
                f"{label} is at bytes {start + offset} to {start + offset + size_bytes}, beyond the file's "
                f"{file_bytes}; the file is damaged or truncated: download it again"
            )
        if name in tensors:
            raise ModelError(f"{path}: has tensor {name[:60]} twice")
        tensors[name] = GgufTensor(kind, shape, start + offset, size_bytes)
    in_order = sorted(tensors.items(), key=lambda entry: entry[1].offset)
    for (one, tensor), (other, after) in pairwise(in_order):
        if tensor.offset + tensor.size_bytes > after.offset:
            raise ModelError(f"{path}: tensors {one[:60]} and {other[:60]} overlap; download the file again")
    return tensors


class _Head:
    """Sequential reader of a file that checks each read against the file's end."""

    def __init__(self, path: Path, file: PlainFile) -> None:
        self.path, self._file, self.position = path, file, 0
        self._buffer, self._offset, self._items = b"", 0, 0

    def take(self, size: int) -> bytes:
        if size > min(self._file.size, HEAD_LIMIT_BYTES) - self.position:
            self._refuse(size)
        while len(self._buffer) - self._offset < size:
            chunk_bytes = max(BUFFER_BYTES, size)
            offset = self.position + len(self._buffer) - self._offset
            try:
                more = self._file.read(offset, chunk_bytes)
            except OSError as problem:
                raise ModelError(f"{self.path}: cannot be read ({problem.strerror})") from None
            if not more:
                self._refuse(size)
            self._buffer, self._offset = self._buffer[self._offset :] + more, 0
        content = self._buffer[self._offset : self._offset + size]
        self._offset += size
        self.position += size
        return content

    def number(self, size_bytes: int) -> int:
        return int.from_bytes(self.take(size_bytes), "little")

    def count(self, description: str, limit: int, least_bytes: int) -> int:
        """Read the next count of items, each of which takes at least the given number of bytes."""
        item_count = self.number(8)
        if item_count > limit or item_count * least_bytes > self._file.size:
            raise ModelError(
                f"{self.path}: claims {item_count} {description}, which do not fit into {self._file.size} "
                "bytes; download the file again"
                if item_count <= limit
                else f"{self.path}: has {item_count} {description}; at most {limit} are supported"
            )
        return item_count

    def text(self, limit_bytes: int, description: str) -> str:
        size = self.number(8)
        if size > limit_bytes:
            raise ModelError(
                f"{self.path}: {description} has {size} bytes; at most {limit_bytes} are supported"
            )
        try:
            return self.take(size).decode("utf-8")
        except UnicodeDecodeError:
            raise ModelError(
                f"{self.path}: {description} at byte {self.position - size} is not valid UTF-8"
            ) from None

    def value(self, key: str) -> Value:
        kind = self.number(4)
        if kind == _TEXT:
            return self.text(TEXT_LIMIT_BYTES, f"the value of {key[:60]}")
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            raise ModelError(
                f"{self.path}: the value of {key[:60]} has type {kind}, which GGUF does not define"
            )
        dtype = np.dtype(_NUMBERS[kind])
        number: int | float | bool = np.frombuffer(self.take(dtype.itemsize), dtype)[0].item()
        return number

    def _array(self, key: str) -> Value:
        kind, description = self.number(4), f"items in {key[:60]}"
        if kind == _TEXT:
            count = self.count(description, ITEMS_LIMIT - self._items, 8)
            self._items += count
            return [self.text(TEXT_LIMIT_BYTES, f"a text of {key[:60]}") for _ in range(count)]
        if kind not in _NUMBERS:
            raise ModelError(
                f"{self.path}: {key[:60]} is an array of arrays, which is not supported"
                if kind == _ARRAY
                else f"{self.path}: {key[:60]} is an array of type {kind}, which GGUF does not define"
            )
        dtype = np.dtype(_NUMBERS[kind])
        count = self.count(description, ITEMS_LIMIT - self._items, dtype.itemsize)
        self._items += count
        return np.frombuffer(self.take(count * dtype.itemsize), dtype)

    def _refuse(self, size: int) -> None:
        if self._file.size - self.position >= size:
            raise ModelError(
                f"{self.path}: its metadata is larger than {HEAD_LIMIT_BYTES >> 20} MB, the supported maximum"
            )
        raise ModelError(
            f"{self.path}: ends at byte {self._file.size}, but {size} bytes are needed at {self.position}; "
            "the file is truncated: download it again"
        )
