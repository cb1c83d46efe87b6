"""Difference between two bundles: the data that a device needs, with its old file, to make the new one.

Each entry is compared with an entry of the old file, in blocks, in the smaller of two forms:

    NUMBERS  new - old, element by element as integers of 1, 2 or 4 bytes, then zstd: weights after a
             fine-tune, whose numbers change a little and whose bytes therefore repeat nowhere
    PATCH    zstd with a part of the old file as its dictionary: everything that moved or is mostly the same

The result is the new file, byte for byte, and is checked against its signed sha256 like a download. The
memory that applying takes does not depend on the files' sizes: ``WINDOW_BYTES`` of the old one and a block.

Layout, integers little-endian: magic, ``HEAD``, then for each block ``BLOCK`` and its payload. Differences of
``width`` bytes are stored as zigzag numbers (sign in the lowest bit), all first bytes, then all second ones;
``phase`` bytes of zero stand before the first element, for files whose tensors are not aligned.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from edgekit.bundle.bundle import HEADER, Bundle
from edgekit.bundle.manifest import aligned
from edgekit.errors import need_package
from edgekit.system.regular_file import PlainFile, Readable
from edgekit.tensor_spec import Array

MAGIC = b"EKDELTA1"
HEAD = struct.Struct("<Q32sQ32s")
"""Size and sha256 of the old file, then of the new one."""
BLOCK = struct.Struct("<BBBxIQII")
"""Form, width, phase, bytes of the result, offset and size in the old file, bytes of the payload."""
NUMBERS, PATCH = range(2)
LAYOUTS = ((1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3))
"""Width and phase of numbers."""
BLOCK_BYTES = 1 << 18
PATCH_FROM = 8
"""No patch is tried for a block that shrinks to less than this part, because it takes long."""
WINDOW_BYTES = 1 << 22
"""Part of the old file that is a dictionary."""
FILE_LIMIT_BYTES = 2 << 30
ONNX_LIMIT_BYTES = 256 << 20
"""Larger ONNX files are not compared by tensor."""
LEAST_BYTES = 1024
"""Minimum size of a tensor that is compared on its own."""
TRY_LEVEL, PATCH_LEVEL, LEVEL = 1, 3, 12
"""Of zstd: to choose a form, to see whether a patch is better, and to store it."""


class DeltaError(Exception):
    """A difference that cannot be applied: malformed, or to another file."""


# --- making ----------------------------------------------------------------------------------------------


def make_delta(old: Path, new: Path, out: BinaryIO) -> None:
    """Write the difference from bundle ``old`` to bundle ``new``."""
    before, after = PlainFile(str(old), FILE_LIMIT_BYTES), PlainFile(str(new), FILE_LIMIT_BYTES)
    out.write(MAGIC)
    out.write(HEAD.pack(before.size, _sha256(before), after.size, _sha256(after)))
    for start, size, old_start, old_size in _parts(old, new, after.size):
        for offset in range(start, start + size, BLOCK_BYTES):
            block_size = min(BLOCK_BYTES, start + size - offset)
            content = after.read(offset, block_size)
            form, width, phase, old_at, used, payload = _smallest(
                content, before, offset - start, size, old_start, old_size
            )
            out.write(BLOCK.pack(form, width, phase, block_size, old_at, used, len(payload)))
            out.write(payload)


def _parts(old: Path, new: Path, new_size: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield the parts of the new file, each with the part of the old file to compare it with. A part is an
    offset and a size."""
    with Bundle.open(old) as before, Bundle.open(new) as after:
        olds, news = _ranges(before), _ranges(after)
        alike = _alike(before, after)
        position = 0
        for name, (start, size) in [*news.items(), ("", (new_size, 0))]:
            if start > position:  # padding; before the first entry header and manifest too
                yield position, start - position, 0, min((first for first, _ in olds.values()), default=0)
            position = start
            if size:
                like = alike.get(name, "")
                part = olds.get(like, (0, 0))
                weights = _weights(before, like, after, name) if like and part[1] != size else []
                for offset, count, old_offset in weights:  # files of another layout: tensor by tensor
                    yield position, start + offset - position, *part
                    yield start + offset, count, part[0] + old_offset, count
                    position = start + offset + count
                yield position, start + size - position, *part
            position = start + size


def _weights(before: Bundle, old: str, after: Bundle, new: str) -> list[tuple[int, int, int]]:
    """Return the tensors that two ONNX files have in common: offset in the new entry, size, offset in the old
    entry."""
    if max(before.size_bytes(old), after.size_bytes(new)) > ONNX_LIMIT_BYTES or not new.endswith(".onnx"):
        return []
    olds, news = (_tensors(bytes(b.read(name))) for b, name in ((before, old), (after, new)))
    pairs = [(place, olds.get(name, (0, 0))) for name, place in news.items()]
    return sorted((offset, size, old_at) for (offset, size), (old_at, old_size) in pairs if size == old_size)


def _tensors(content: bytes) -> dict[str, tuple[int, int]]:
    """Return the offset and size of the raw data of each initializer in an ONNX file, by its name. There are
    none if it is not an ONNX file, or if the package ``onnx`` is not installed."""
    try:
        import onnx

        graph = onnx.load_model_from_string(content).graph
    except Exception:  # protobuf's and Python's own
        return {}
    ranges, end = {}, 0
    for tensor in graph.initializer:  # in the file they have the same order
        size = len(tensor.raw_data)
        if size >= LEAST_BYTES and (offset := content.find(tensor.raw_data, end)) >= 0:
            ranges[tensor.name], end = (offset, size), offset + size
    return ranges


def _ranges(bundle: Bundle) -> dict[str, tuple[int, int]]:
    start = aligned(HEADER.size + len(bundle._manifest_bytes))
    return {e["name"]: (start + e["offset"], e["size"]) for e in bundle.manifest["entries"]}


def _alike(before: Bundle, after: Bundle) -> dict[str, str]:
    """Return the most similar entry of the old bundle for each entry of the new bundle.

    That is the one of the same content, else the same file of the same variant (the names of artifacts are
    hashes), else the one of the same name, else the file of the same suffix that is nearest in size.
    """
    old_by_new = {e["name"]: e["name"] for e in before.manifest["entries"]}
    files = {(v["name"], file): e for v in before.manifest["variants"] for file, e in v["files"].items()}
    for variant in after.manifest["variants"]:
        for file, entry in variant["files"].items():
            if (variant["name"], file) in files:
                old_by_new[entry] = files[variant["name"], file]
    contents = {entry["sha256"]: entry["name"] for entry in before.manifest["entries"]}
    for entry in after.manifest["entries"]:
        if entry["sha256"] in contents:
            old_by_new[entry["name"]] = contents[entry["sha256"]]
    sizes = {e["name"]: e["size"] for e in before.manifest["entries"]}
    for entry in after.manifest["entries"]:
        suffix = PurePosixPath(entry["name"]).suffix
        near = [(abs(sizes[n] - entry["size"]), n) for n in sizes if PurePosixPath(n).suffix == suffix]
        if entry["name"] not in old_by_new and near:
            old_by_new[entry["name"]] = min(near)[1]
    return old_by_new


def _smallest(
    content: bytes, before: Readable, offset: int, size: int, old_start: int, old_size: int
) -> tuple[int, int, int, int, int, bytes]:
    """Return the smallest form of a block of a part of ``size``: form, width, phase, offset and size in the
    old file, and payload."""
    zstd = _zstd()
    quick = zstd.ZstdCompressor(level=TRY_LEVEL)
    best = (len(quick.compress(content)), PATCH, 0, 0, 0, 0)
    for shift in sorted({0, old_size - size}):  # as far from the start as it was, and as far from the end
        place = offset + shift
        if not 0 <= place <= old_size - len(content):
            continue
        same = before.read(old_start + place, len(content))
        for width, phase in LAYOUTS[: 1 if same == content else None]:
            compressed_size = len(quick.compress(_difference(content, same, width, phase)))
            best = min(best, (compressed_size, NUMBERS, width, phase, old_start + place, len(content)))
    used = min(old_size, WINDOW_BYTES)
    if used and best[0] * PATCH_FROM > len(content):
        middle = (offset + len(content) // 2) * old_size // max(size, 1)
        place = old_start + min(max(0, middle - used // 2), old_size - used)
        dictionary = _dictionary(before.read(place, used))
        compressed_size = len(zstd.ZstdCompressor(level=PATCH_LEVEL, dict_data=dictionary).compress(content))
        best = min(best, (compressed_size, PATCH, 0, 0, place, used))
    _, form, width, phase, place, used = best
    old = before.read(place, used)
    if form == NUMBERS:
        content, old = _difference(content, old, width, phase), b""
    strong = zstd.ZstdCompressor(level=LEVEL, dict_data=_dictionary(old))
    return form, width, phase, place, used, strong.compress(content)


def _difference(new: bytes, old: bytes, width: int, phase: int) -> bytes:
    change = _numbers(new, width, phase) - _numbers(old, width, phase)
    signed = change.view(f"<i{width}")
    folded = ((signed << 1) ^ (signed >> (8 * width - 1))).view(np.uint8)
    return folded.reshape(-1, width).T.tobytes()


def _numbers(content: bytes, width: int, phase: int) -> Array:
    padded = bytes(phase) + content + bytes(-(phase + len(content)) % width)
    return np.frombuffer(padded, f"<u{width}")


# --- applying --------------------------------------------------------------------------------------------


def apply_delta(old: Path, delta: Path, out: BinaryIO) -> None:
    """Write the new file.

    Raises:
        DeltaError: the difference is malformed or to another file, or the result has another sha256.
        MissingDependency: the package ``zstandard`` is not installed.
        OSError, ValueError: a file cannot be read or written.
    """
    before, patch = PlainFile(str(old), FILE_LIMIT_BYTES), PlainFile(str(delta), FILE_LIMIT_BYTES)
    position = len(MAGIC) + HEAD.size
    head = patch.read(0, position)
    _expect(len(head) == position and head.startswith(MAGIC), "it is not a delta of this version")
    old_size, old_sha256, new_size, new_sha256 = HEAD.unpack(head[len(MAGIC) :])
    _expect(old_size == before.size and old_sha256 == _sha256(before), "it is to another file")
    digest, written = hashlib.sha256(), 0
    while position < patch.size:
        block = patch.read(position, BLOCK.size)
        _expect(len(block) == BLOCK.size, "it ends in the middle of a block")
        form, width, phase, size, place, used, payload_size = BLOCK.unpack(block)
        fits = 0 < size <= BLOCK_BYTES and used <= WINDOW_BYTES and place + used <= before.size
        _expect(fits and payload_size <= 2 * BLOCK_BYTES, "a block is larger than allowed")
        payload = patch.read(position + BLOCK.size, payload_size)
        _expect(len(payload) == payload_size, "it ends in the middle of a block")
        content = _content(form, width, phase, size, before.read(place, used), payload)
        written += size
        _expect(written <= new_size, "it produces more data than declared")
        digest.update(content)
        out.write(content)
        position += BLOCK.size + payload_size
    _expect(
        written == new_size and digest.digest() == new_sha256, "the result does not have the declared sha256"
    )


def _content(form: int, width: int, phase: int, size: int, old: bytes, payload: bytes) -> bytes:
    if form == NUMBERS:
        _expect(width in (1, 2, 4) and phase < width and len(old) == size, "a difference is malformed")
        padded = phase + size + -(phase + size) % width
        planes = np.frombuffer(_inflated(payload, padded), np.uint8).reshape(width, -1)
        folded = np.ascontiguousarray(planes.T).reshape(-1).view(f"<u{width}")
        one = folded.dtype.type(1)
        change = (folded >> one) ^ (~(folded & one) + one)
        whole: bytes = (_numbers(old, width, phase) + change).tobytes()
        return whole[phase : phase + size]
    _expect(form == PATCH, "a block of an unknown form")
    return _inflated(payload, size, old)


def _inflated(payload: bytes, size: int, old: bytes = b"") -> bytes:
    zstd = _zstd()
    try:
        # zstd makes as much as the frame declares, or fails; an unknown size is -1.
        _expect(zstd.frame_content_size(payload) == size, "a block does not have its declared size")
        decompressor = zstd.ZstdDecompressor(_dictionary(old))
        content: bytes = decompressor.decompress(payload)
    except zstd.ZstdError as problem:
        raise DeltaError(f"a block can't be unpacked: {problem}") from None
    return content


def _expect(holds: bool, reason: str) -> None:
    if not holds:
        raise DeltaError(reason)


def _sha256(file: Readable) -> bytes:
    digest, offset = hashlib.sha256(), 0
    while piece := file.read(offset, 1 << 20):
        digest.update(piece)
        offset += len(piece)
    return digest.digest()


def _dictionary(content: bytes) -> Any:
    zstd = _zstd()
    return zstd.ZstdCompressionDict(content, dict_type=zstd.DICT_TYPE_RAWCONTENT)


def _zstd() -> Any:
    with need_package("zstandard", "differences between bundles", extra="update"):
        import zstandard
    return zstandard
