"""Reads arrays of a sample from untrusted ``.npy`` and ``.npz`` files.

Data is read only after the header was checked: an array of plain numbers that fits the model's input, with as
many bytes as the file has. So memory is bounded by the model's inputs, not by what a file claims.
"""

from __future__ import annotations

import io
import math
import os
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from edgekit.errors import SampleError
from edgekit.system.regular_file import open_regular
from edgekit.tensor_spec import Array, TensorSpec

HEADER_LIMIT_BYTES = 1024
"""Plain numbers need 128; longer headers may nest deep enough to cost the parser megabytes."""
WHY_CHARS = 80
"""Most characters of numpy's message about a header: it quotes the whole header."""
BLOCK_BYTES = 1 << 20
DIRECTORY_LIMIT_BYTES = 1 << 20
"""Of a zip's central directory; that of ten thousand arrays is smaller."""
ENCRYPTED = 1
"""Bit 0 of a zip entry's flags."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The compression methods that numpy writes."""


def read_arrays(path: Path, inputs: Sequence[TensorSpec], *, skip_others: bool = False) -> dict[str, Array]:
    """Read the arrays of the model's inputs: those of an ``.npz`` by name, or the one of an ``.npy``.

    Args:
        path: A regular file; its suffix determines the format.
        inputs: The arrays to read; one for ``.npy``.
        skip_others: Whether an ``.npz`` may hold other arrays, which are ignored.

    Raises:
        SampleError: the file is corrupt or inconsistent, or an array does not fit its input.
    """
    suffix = path.suffix.lower()
    try:
        with open_regular(path) as file:
            if suffix == ".npy":
                size_bytes = os.fstat(file.fileno()).st_size
                return {inputs[0].name: _read(file, size_bytes, inputs[0], path)}
            with _BlockFile(file.fileno(), closefd=False) as whole, zipfile.ZipFile(whole) as archive:
                return _members(archive, inputs, path, skip_others)
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as problem:
        # RuntimeError: from zipfile for encrypted entries; NotImplementedError for unknown methods.
        reason = getattr(problem, "strerror", None) or problem
        raise SampleError(f"{path} can't be read as {path.suffix}: {reason}") from None


class _BlockFile(io.FileIO):
    """A file that refuses large reads: zipfile reads a central directory of any size at once."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > DIRECTORY_LIMIT_BYTES:
            raise ValueError(
                f"its table of contents has {size >> 20} MB, too large for an archive of a few arrays"
            )
        return super().read(size) or b""


def _members(
    archive: zipfile.ZipFile, inputs: Sequence[TensorSpec], path: Path, skip_others: bool
) -> dict[str, Array]:
    entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
    if len(entries) != len(archive.infolist()):
        raise ValueError("two arrays have the same name")
    names = [spec.name for spec in inputs]
    if not skip_others and entries.keys() != set(names):
        has, expected = (", ".join(sorted(group)) or "nothing" for group in (entries, names))
        raise SampleError(f"{path} has {has}; the model's inputs are {expected}")
    arrays = {}
    for spec in inputs:
        entry = entries.get(spec.name)
        if entry is None:
            continue
        if entry.flag_bits & ENCRYPTED:
            raise ValueError(f"{entry.filename} is encrypted")
        if entry.compress_type not in METHODS:
            raise ValueError(f"{entry.filename} has a compression method that numpy.savez does not use")
        try:
            with archive.open(entry) as member:
                arrays[spec.name] = _read(member, entry.file_size, spec, path)
        except ValueError as problem:
            raise ValueError(f"{entry.filename}: {problem}") from None
    return arrays


def misfit(location: str, actual: TensorSpec, spec: TensorSpec) -> SampleError:
    """Return the error of an array that does not fit an input, with advice if the difference is small."""
    advice = ""
    if actual.shape == spec.shape:
        advice = f"; convert it with .astype({spec.dtype!r})"
    elif (1, *actual.shape) == spec.shape:
        advice = "; add the batch axis with array[None]"
    return SampleError(f"{location}: {actual} does not fit the model's input {spec}{advice}")


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[np.generic]


def _read(file: IO[bytes], size_bytes: int, spec: TensorSpec, path: Path) -> Array:
    head = file.read(HEADER_LIMIT_BYTES)
    start = io.BytesIO(head)
    header = _header(start)
    data_start, count = start.tell(), math.prod(header.shape)
    needed_bytes = count * header.dtype.itemsize
    if needed_bytes != size_bytes - data_start:
        raise ValueError(
            f"its header declares {needed_bytes:,} bytes of data, but it has {size_bytes - data_start:,}"
        )
    has = TensorSpec(spec.name, str(header.dtype), header.shape)
    if not spec.fits(header.shape) or header.dtype != np.dtype(spec.dtype):
        raise misfit(str(path), has, spec)
    data = bytearray(needed_bytes)
    read_bytes = min(len(head) - data_start, needed_bytes)
    data[:read_bytes] = head[data_start : data_start + read_bytes]
    while read_bytes < needed_bytes:
        block = file.read(min(BLOCK_BYTES, needed_bytes - read_bytes))
        if not block:
            raise ValueError(f"it ends after {read_bytes:,} of {needed_bytes:,} bytes of data")
        data[read_bytes : read_bytes + len(block)] = block
        read_bytes += len(block)
    file.read(1)  # at the end zipfile verifies the checksum
    return np.ndarray(header.shape, header.dtype, data, order="F" if header.fortran_order else "C")


def _header(start: IO[bytes]) -> _Header:
    """Parse the header of a .npy.

    Raises:
        ValueError: it is no .npy, or no array of plain numbers.
    """
    version = npy_format.read_magic(start)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(
            f"it is .npy version {version[0]}.{version[1]}, which is not used for plain numbers; save "
            "it with numpy.save"
        )
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files written by Python 2
            header = _Header(*read(start, max_header_size=HEADER_LIMIT_BYTES))
    except Exception as problem:  # numpy uses Python's tokenizer and parser, which raise anything
        reason = str(problem) or type(problem).__name__
        raise ValueError(f"its header is malformed: {reason[:WHY_CHARS]}") from None
    if header.dtype.hasobject:
        raise ValueError(
            "it contains Python objects (a pickle), which can run code when read; save plain numbers"
        )
    if header.dtype.kind not in "biuf":
        raise ValueError(f"it contains {header.dtype}, not an array of plain numbers")
    if any(not 0 <= size < 2**63 for size in header.shape):
        raise ValueError("invalid shape in the header")
    return header
