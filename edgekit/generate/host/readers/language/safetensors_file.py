"""The safetensors container: named tensors in one file, which may be hostile.

Format: https://huggingface.co/docs/safetensors: 8 bytes with the size of a JSON header, the header, the data.
Every size and offset is checked before anything is read; tensors are read when they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edgekit.errors import ModelError
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import PlainFile, followed
from edgekit.tensor_spec import Array, Json

FILE_LIMIT_BYTES = 64 << 30
HEADER_LIMIT_BYTES = 16 << 20
RANK_LIMIT = 8
SIZES: Mapping[str, int] = {"F32": 4, "F16": 2, "BF16": 2}
"""Element types that are read -> bytes."""


class SafetensorsTensor(NamedTuple):
    """Location of a tensor: element type, shape, offset of its first byte in the file, size of its data."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    size_bytes: int


@dataclass(frozen=True, eq=False)
class SafetensorsFile:
    """Open safetensors file."""

    path: Path
    tensors: Mapping[str, SafetensorsTensor]
    _file: PlainFile = field(repr=False)

    def read(self, name: str) -> Array:
        """Read a tensor's values as float32.

        Raises:
            ModelError: they can't be read, or are of another element type than those of SIZES.
        """
        tensor = self.tensors[name]
        if tensor.dtype not in SIZES:
            raise ModelError(
                f"{self.path}: tensor {name[:80]} has type {tensor.dtype[:20]}; EdgeKit reads "
                f"{', '.join(SIZES)}: use the original, unquantized model"
            )
        raw = np.frombuffer(self._bytes(tensor), np.uint8)
        if tensor.dtype == "BF16":
            values = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = raw.view("<f4" if tensor.dtype == "F32" else "<f2").astype(np.float32)
        array: Array = values.reshape(tensor.shape)
        return array

    def _bytes(self, tensor: SafetensorsTensor) -> bytes:
        raw = b""
        try:
            while len(raw) < tensor.size_bytes:  # a read gives at most 2 GB
                more = self._file.read(tensor.offset + len(raw), tensor.size_bytes - len(raw))
                if not more:
                    raise ModelError(
                        f"{self.path}: was truncated while EdgeKit read it; wait until it is completely "
                        "written"
                    )
                raw = raw + more if raw else more
        except OSError as problem:
            raise ModelError(f"{self.path}: cannot be read ({problem.strerror})") from None
        return raw


def open_safetensors(path: Path) -> SafetensorsFile:
    """Read and check the header.

    Raises:
        ModelError: the file can't be read, is not a safetensors file, or is damaged.
    """
    try:
        file = PlainFile(str(followed(path)), FILE_LIMIT_BYTES)
        head = file.read(0, 8)
        size = int.from_bytes(head, "little")
        if len(head) < 8 or size > min(HEADER_LIMIT_BYTES, file.size - 8):
            raise ModelError(
                f"{path}: is not a safetensors file, or is truncated: its header needs {size} bytes, the "
                f"file has {file.size}; download it again"
            )
        header = strict_json.decode(file.read(8, size), "its header", HEADER_LIMIT_BYTES)
    except OSError as problem:
        raise ModelError(f"{path}: cannot be read ({problem.strerror})") from None
    except JsonError as problem:
        raise ModelError(f"{path}: {problem}; download it again") from None
    except (ValueError, OverflowError) as problem:
        raise ModelError(f"{path}: cannot be read ({problem})") from None
    if not isinstance(header, dict):
        raise ModelError(f"{path}: its header is not a JSON object; download it again")
    tensors = {
        name: _tensor(f"{path}: tensor {name[:80]}", entry, 8 + size, file.size)
        for name, entry in header.items()
        if name != "__metadata__"
    }
    return SafetensorsFile(path, tensors, file)


def _tensor(label: str, entry: Json, start: int, file_bytes: int) -> SafetensorsTensor:
    shape, offsets = (
        entry.get(key) if isinstance(entry, dict) else None for key in ("shape", "data_offsets")
    )
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    if not (isinstance(dtype, str) and _are_sizes(shape, RANK_LIMIT) and _are_sizes(offsets, 2)):
        raise ModelError(f"{label} has no dtype, shape and data_offsets; download the file again")
    assert isinstance(shape, list)
    assert isinstance(offsets, list)
    if len(offsets) != 2 or not offsets[0] <= offsets[1] <= file_bytes - start:
        raise ModelError(
            f"{label} is at bytes {str(offsets)[:60]}, beyond the file's {file_bytes - start}; the file is "
            "damaged or truncated: download it again"
        )
    size_bytes = offsets[1] - offsets[0]
    if dtype in SIZES and math.prod(shape) * SIZES[dtype] != size_bytes:
        raise ModelError(
            f"{label} is {dtype} {str(shape)[:60]} in {size_bytes} bytes; download the file again"
        )
    return SafetensorsTensor(dtype, tuple(shape), start + offsets[0], size_bytes)


def _are_sizes(values: Json, limit: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= limit
        and all(type(value) is int and 0 <= value <= FILE_LIMIT_BYTES for value in values)
    )
