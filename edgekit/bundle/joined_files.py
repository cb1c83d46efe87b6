"""Files that a bundle stores in parts, so that variants of one model share the weights that are equal.

    entries                 weights/ab12 [q k v]    weights/cd34 [embedding]    artifacts/01/model.data.rest
    ort-int8/model.data     q k v, embedding, rest: at the offsets that its model.onnx names
    openvino-int8/model.bin embedding, rest, q k v: at the offsets that its model.xml names

A variant's option ``joined`` is an object: name of a file -> its ``size`` in bytes and its ``parts``, an
object: name of one of the variant's files -> where the content of that goes, a list of ``[offset, length]``
in the order of the content. Bytes that no part covers are zero. An engine loads the joined file, not the
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import TYPE_CHECKING, BinaryIO

from edgekit.bundle.manifest import JOINED
from edgekit.system import timings
from edgekit.system.formats import strict_json
from edgekit.tensor_spec import Json

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant


def engine_files(variant: Variant) -> list[str]:
    """Return the names of the files that the variant's engine loads."""
    joined = variant.options.get(JOINED, {})
    parts = {part for file in joined.values() for part in file["parts"]}
    return [*(name for name in variant.files if name not in parts), *joined]


def files_digest(bundle: Bundle, variant: Variant) -> str:
    """Return the identity of a variant's files and of how they are joined, without reading them."""
    digests = {file: bundle.sha256(entry) for file, entry in variant.files.items()}
    if JOINED in variant.options:
        digests[JOINED] = strict_json.encode(variant.options[JOINED]).decode()
    return timings.digest_of(digests)


def size_bytes(bundle: Bundle, variant: Variant, name: str) -> int:
    """Return the size of a file that the variant's engine loads."""
    joined = variant.options.get(JOINED, {})
    return int(joined[name]["size"]) if name in joined else bundle.size_bytes(variant.files[name])


def copy_to(bundle: Bundle, variant: Variant, name: str, file: BinaryIO) -> None:
    """Write a file that the variant's engine loads into ``file``, which is empty and seekable.

    Raises:
        BundleError: an entry is damaged; what was written is then not the file.
        OSError: it can't be written.
    """
    joined = variant.options.get(JOINED, {})
    if name not in joined:
        bundle.copy_to(variant.files[name], file)
        return
    file.truncate(joined[name]["size"])
    for part, ranges in joined[name]["parts"].items():
        bundle.copy_to(variant.files[part], _Ranges(file, iter(ranges)))  # type: ignore[arg-type]


def read(bundle: Bundle, variant: Variant, name: str) -> bytes:
    """Return the content of a file that the variant's engine loads. Raises BundleError as ``copy_to``."""
    content = BytesIO()
    copy_to(bundle, variant, name, content)
    return content.getvalue()


def part_content(joined: Json, part: str, whole: Callable[[str], bytes]) -> bytes | None:
    """Return the content of a part, out of the joined file that has it; None if no file has it.

    Args:
        joined: The variant's option.
        whole: Returns the content of a joined file, by its name.

    Raises:
        ValueError: the ranges are longer than the file.
    """
    for name, file in joined.items():
        if part in file["parts"]:
            content, ranges = whole(name), file["parts"][part]
            lengths = [length for _, length in ranges]
            if min(lengths, default=0) < 0 or sum(lengths) > len(content):
                raise ValueError("the ranges of a part are longer than its file")
            return b"".join(content[offset : offset + length] for offset, length in ranges)
    return None


class _Ranges:
    """Writes a stream of bytes to one range of a file after the other."""

    def __init__(self, file: BinaryIO, ranges: Iterator[list[int]]) -> None:
        self._file, self._ranges, self._left = file, ranges, 0

    def write(self, content: bytes | memoryview) -> int:
        rest = memoryview(content)
        while rest:
            if not self._left:
                offset, self._left = next(self._ranges)
                self._file.seek(offset)
                continue
            written = rest[: self._left]
            self._file.write(written)
            rest, self._left = rest[len(written) :], self._left - len(written)
        return len(content)
