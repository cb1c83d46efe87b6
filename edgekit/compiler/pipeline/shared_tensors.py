"""Store tensors once that several variants of a bundle have (edgekit/bundle/joined_files.py).

ONNX Runtime and OpenVINO store blocks of integers, and their scales, as the same bytes; an embedding is the
same in each precision. Tensors that the same files have become one entry, so a device that fetches one
variant gets nothing that only others need.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from edgekit.bundle.manifest import JOINED, ZEROS_LIMIT_BYTES
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.system.scratch_file import mapped
from edgekit.tensor_spec import Content, Json

LEAST_BYTES = 4096
"""Smaller tensors stay where they are: their place takes some 20 bytes of the manifest."""
Range = tuple[int, int]
"""Offset and size in bytes."""


def share_tensors(
    variants: Sequence[VariantBuild], listed: Sequence[dict[str, Json]], entries: dict[str, Content]
) -> None:
    """Change the manifest's variants and the entries so that equal tensors are stored once.

    Args:
        listed: The manifest's entry of each of ``variants``.
        entries: Entry name -> content.
    """
    ranges = {
        row["files"][file]: tensors
        for variant, row in zip(variants, listed, strict=True)
        for file, tensors in variant.artifact.tensors.items()
        if file in row["files"]
    }
    places = {entry: _by_digest(entries[entry], tensors) for entry, tensors in ranges.items()}
    owners: dict[str, list[str]] = {}
    for entry, by_digest in places.items():
        for digest in by_digest:
            owners.setdefault(digest, []).append(entry)
    groups: dict[tuple[str, ...], list[str]] = {}
    for digest, names in owners.items():
        if len(names) > 1:
            groups.setdefault(tuple(names), []).append(digest)
    parts: dict[str, dict[str, list[Range]]] = {}
    for sharers, digests in groups.items():
        first = sharers[0]
        content = _joined(entries[first], [places[first][digest] for digest in digests])
        name = f"weights/{hashlib.sha256(content).hexdigest()[:16]}"
        entries[name] = content
        for entry in sharers:
            parts.setdefault(entry, {})[name] = [places[entry][digest] for digest in digests]
    joined = {entry: _split(entry, own, entries) for entry, own in parts.items()}
    for row in listed:
        for file, entry in [(f, e) for f, e in row["files"].items() if e in joined]:
            del row["files"][file]
            named = {f"{file}.{number}": part for number, part in enumerate(joined[entry]["parts"])}
            row["files"] |= named
            described = {name: joined[entry]["parts"][part] for name, part in named.items()}
            row["options"].setdefault(JOINED, {})[file] = {**joined[entry], "parts": described}


def _by_digest(content: Content, tensors: Sequence[Range]) -> dict[str, Range]:
    """Return the hash of each large tensor -> where it is, the first of equal ones. Tensors that overlap
    others are left out."""
    places: dict[str, Range] = {}
    view, end = memoryview(content), 0
    for offset, size in sorted(tensors):
        if size >= LEAST_BYTES and offset >= end:
            places.setdefault(hashlib.sha256(view[offset : offset + size]).hexdigest(), (offset, size))
            end = offset + size
    return places


def _joined(content: Content, ranges: Sequence[Range]) -> memoryview:
    view = memoryview(content)
    with tempfile.TemporaryFile() as file:
        for offset, size in ranges:
            file.write(view[offset : offset + size])
        return mapped(file)


def _split(entry: str, parts: Mapping[str, list[Range]], entries: dict[str, Content]) -> dict[str, Json]:
    """Replace an entry by the rest of it, without ``parts``. Return how they are joined."""
    content = memoryview(entries.pop(entry))
    rest = list(_gaps(content, sorted(pair for ranges in parts.values() for pair in ranges)))
    if rest:
        entries[f"{entry}.rest"] = b"".join(content[offset : offset + size] for offset, size in rest)
        parts = {**parts, f"{entry}.rest": rest}
    return {
        "size": len(content),
        "parts": {name: [[offset, size] for offset, size in ranges] for name, ranges in parts.items()},
    }


def _gaps(content: memoryview, ranges: Sequence[Range]) -> Iterator[Range]:
    """Yield what lies between ranges, without the zeros of an alignment."""
    end = 0
    for offset, size in [*ranges, (len(content), 0)]:
        gap = offset - end
        if gap >= ZEROS_LIMIT_BYTES or any(content[end:offset]):
            yield end, gap
        end = offset + size
