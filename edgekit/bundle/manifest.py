"""The manifest of a bundle: its limits, its schema as data, its checks and its bytes.

A manifest may come from anyone. So it is parsed within bounds (system/formats/strict_json.py) and checked
against :data:`SCHEMA` before anything else looks at it. A key that the schema does not know is refused,
because its meaning would be ignored silently; the objects marked open (``options``, ``evidence``, ``card``
...) take any JSON. docs/bundle-format.md says the same in prose.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from edgekit.bundle.variant import parse_status
from edgekit.system.formats import npy, strict_json
from edgekit.system.formats.json_schema import (
    Check,
    exactly,
    list_of,
    map_of,
    nothing_or,
    record,
    text,
    text_that,
    whole,
)
from edgekit.system.formats.json_schema import ManifestError as ManifestError
from edgekit.system.formats.strict_json import JsonError, brief
from edgekit.tensor_spec import Json, Signature, TensorSpec, thinned_specs

FORMAT = "edgekit-bundle"
VERSION = 1
ALIGNMENT_BYTES = 64
"""Every entry starts at a multiple of this: a cache line, and the widest vector load there is."""

MANIFEST_LIMIT_BYTES = 8 << 20
ENTRIES_LIMIT = 10_000
ENTRY_NAME_LIMIT_CHARS = 200
VARIANTS_LIMIT = 256
FILES_LIMIT = 256
"""Files of one variant."""
JOINED = "joined"
"""Option of a variant: its files that are stored in parts."""
RANGES_LIMIT = 100_000
ZEROS_LIMIT_BYTES = 4096
"""Zeros before each range at most: engines map what begins at a page."""
TENSORS_LIMIT = 256
"""Inputs, and outputs, of a model."""
RANK_LIMIT = 16
TENSOR_LIMIT_BYTES = 4 << 30
STAGES_LIMIT = 8
"""Later stages of a cascade."""
GOLDEN_LIMIT = 64
"""Golden vectors: pairs of inputs and outputs."""

DTYPES: Mapping[str, int] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
}
"""numpy's name of an element type -> its size in bytes."""

# --- what a value may be ---------------------------------------------------------------------------------

# Sets and not regular expressions: compiling five of them takes longer than checking a manifest.
_HEXADECIMAL = frozenset("0123456789abcdef")
_LETTERS_AND_DIGITS = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
_IN_WORDS = _LETTERS_AND_DIGITS | frozenset("._-")
_IN_PATHS = _IN_WORDS | frozenset("/ ")
_WINDOWS_DEVICES = frozenset(
    ["con", "prn", "aux", "nul", *(f"{port}{number}" for port in ("com", "lpt") for number in range(10))]
)


def _is_word(text: str) -> bool:
    return 0 < len(text) <= 64 and text[0] in _LETTERS_AND_DIGITS and _IN_WORDS.issuperset(text)


def _is_sha256(text: str) -> bool:
    return len(text) == 64 and _HEXADECIMAL.issuperset(text)


def _status(value: Json, location: str) -> None:
    text(value, location)
    try:
        parse_status(value)
    except ValueError as problem:
        raise ManifestError(f"{location}: {problem}") from None


def plain_path(value: Json, location: str) -> None:
    """Refuse what is not a plain relative path on every system.

    Raises:
        ManifestError: the name is empty, too long, absolute, has ``..`` or odd characters, or is Windows's.
    """
    text(value, location)
    if len(value) > ENTRY_NAME_LIMIT_CHARS:
        raise ManifestError(
            f"{location}: a name of {len(value)} characters; the limit is {ENTRY_NAME_LIMIT_CHARS}"
        )
    if not value or not _IN_PATHS.issuperset(value):
        raise ManifestError(
            f"{location}: {brief(value)} is not a plain relative name "
            "(letters, digits, '.', '_', '-', ' ', '/')"
        )
    for part in value.split("/"):
        if part in ("", ".", "..") or part != part.strip(" ") or part.endswith("."):
            raise ManifestError(
                f"{location}: {brief(value)} is not a plain relative name: part {brief(part)}"
            )
        if part.partition(".")[0].lower() in _WINDOWS_DEVICES:
            raise ManifestError(
                f"{location}: {brief(value)} is a device's name on Windows: part {brief(part)}"
            )


def _tensor(minimum: int) -> Check:
    check_fields = record({"name": text, "dtype": text, "shape": list_of(whole(minimum), RANK_LIMIT)})

    def check(value: Json, location: str) -> None:
        check_fields(value, location)
        if value["dtype"] not in DTYPES:
            raise ManifestError(
                f"{location}.dtype: {brief(value['dtype'])} is not one of {', '.join(DTYPES)}"
            )
        if (size := tensor_bytes(value)) > TENSOR_LIMIT_BYTES:
            raise ManifestError(
                f"{location}.shape: a tensor of {size} bytes; the limit is {TENSOR_LIMIT_BYTES}"
            )
        if value["shape"].count(-1) > 1:
            raise ManifestError(f"{location}.shape: more than one dimension is -1 (data-dependent)")

    return check


def tensor_bytes(tensor: Mapping[str, Json]) -> int:
    """Compute the size of the elements of a declared tensor in bytes, or of one row if the data decide the
    number of rows."""
    return abs(math.prod(tensor["shape"])) * DTYPES[tensor["dtype"]]


_OPEN = record({}, is_open=True)
_WORD_TEXT = text_that(_is_word, "a plain word")
DIGEST = text_that(_is_sha256, "a sha256 in 64 lower-case hexadecimal digits")

_JOINED_FILES: Check = map_of(
    plain_path,
    record(
        {"size": whole(1), "parts": map_of(text, list_of(list_of(whole(0), 2), RANGES_LIMIT), FILES_LIMIT)}
    ),
    FILES_LIMIT,
)
VARIANT: Check = record(
    {
        "name": text,
        "target": _WORD_TEXT,
        "profile": text,
        "precision": text,
        "files": map_of(plain_path, plain_path, FILES_LIMIT),
        "options": _OPEN,
        "status": _status,
        "evidence": _OPEN,
        "shrunk": record(
            {
                "multiplications": list_of(whole(1), 2),
                "golden": list_of(map_of(text, plain_path, TENSORS_LIMIT), GOLDEN_LIMIT),
            }
        ),
    },
    optional=["shrunk"],
)
"""An entry of ``variants``; its options and evidence are open."""

_ARRAYS = map_of(text, plain_path, TENSORS_LIMIT)
_PAIR = record({"inputs": _ARRAYS, "outputs": _ARRAYS})
"""A golden vector: tensor -> entry."""

SCHEMA: Check = record(
    {
        "format": exactly(FORMAT),
        "version": exactly(VERSION),
        "edgekit": text,
        "tools": map_of(text, text, 256),
        "source": record(
            {"file": text, "sha256": DIGEST, "opset": whole(1, 10_000), "nodes": whole(0)}, is_open=True
        ),
        "options": _OPEN,
        "samples": _OPEN,
        "inputs": list_of(_tensor(0), TENSORS_LIMIT),
        "outputs": list_of(_tensor(-1), TENSORS_LIMIT),  # -1: as many as the data give
        "card": nothing_or(_OPEN),
        "profiles": map_of(text, _OPEN, VARIANTS_LIMIT),
        "passes": list_of(text, 1000),
        "variants": list_of(VARIANT, VARIANTS_LIMIT),
        "golden": list_of(_PAIR, GOLDEN_LIMIT),
        "entries": list_of(
            record({"name": plain_path, "offset": whole(0), "size": whole(0), "sha256": DIGEST}),
            ENTRIES_LIMIT,
        ),
        "cascade": record(
            {
                "stages": list_of(record({"name": text}, is_open=True), STAGES_LIMIT),
                "bundles": map_of(text, record({"entry": plain_path, "digest": DIGEST}), STAGES_LIMIT),
            }
        ),
        "extensions": _OPEN,
    },
    optional=["cascade", "extensions"],
)

_SHAPES = map_of(text, list_of(whole(-1), RANK_LIMIT), TENSORS_LIMIT)
FURTHER_SHAPES: Check = list_of(
    record({"inputs": _SHAPES, "outputs": _SHAPES, "golden": _PAIR}), GOLDEN_LIMIT
)
"""``extensions.shapes`` (edgekit/bundle/shape_entries.py)."""

# --- what the parts must be to each other ----------------------------------------------------------------


def check_manifest(manifest: Json) -> None:
    """Check a parsed manifest: the schema, then what its parts must be to each other.

    Raises:
        ManifestError: something does not fit; the text names it and where it is.
    """
    SCHEMA(manifest, "")
    sizes = _check_entries(manifest["entries"])
    for side in ("inputs", "outputs"):
        _check_unique([tensor["name"] for tensor in manifest[side]], side)
    _check_unique([variant["name"] for variant in manifest["variants"]], "variants")
    for i, variant in enumerate(manifest["variants"]):
        location = f"variants[{i}].files"
        check_disjoint(variant["files"], location)
        for file, entry in variant["files"].items():
            if entry not in sizes:
                raise ManifestError(f"{location}[{brief(file)}]: entry {brief(entry)} does not exist")
        check_joined(variant, sizes, f"variants[{i}]")
        _check_shrunk(variant, manifest, sizes, f"variants[{i}].shrunk")
    _check_cascade(manifest.get("cascade"), sizes)
    for i, pair in enumerate(manifest["golden"]):
        for side in ("inputs", "outputs"):
            _check_golden(pair[side], manifest[side], sizes, f"golden[{i}].{side}")
    _check_further(manifest, sizes)


def signatures_of(manifest: Mapping[str, Json]) -> tuple[Signature, ...]:
    """Return inputs and outputs at each shape, the largest last.

    Raises:
        ManifestError: ``extensions.shapes`` or ``extensions.range`` are not shapes of the model.
    """
    largest = Signature(*(
        tuple(TensorSpec(t["name"], t["dtype"], tuple(t["shape"])) for t in manifest[side])
        for side in Signature._fields
    ))  # fmt: skip
    if "shapes" not in (manifest.get("extensions") or {}):
        return (largest,)
    from edgekit.bundle.shape_entries import shapes_of  # here: most bundles have one shape

    try:
        return shapes_of(manifest, largest)
    except ValueError as problem:
        raise ManifestError(f"extensions.{problem}") from None


def _check_further(manifest: Mapping[str, Json], sizes: Mapping[str, int]) -> None:
    further = (manifest.get("extensions") or {}).get("shapes")
    if further is None:
        return
    FURTHER_SHAPES(further, "extensions.shapes")
    for i, (entry, signature) in enumerate(zip(further, signatures_of(manifest), strict=False)):
        golden, location = entry["golden"], f"extensions.shapes[{i}].golden"
        inputs = tuple(s for s in signature.inputs if s.name in golden["inputs"] or not manifest["golden"])
        for side, specs in (("inputs", inputs), ("outputs", thinned_specs(signature.outputs))):
            _check_golden(golden[side], [spec._asdict() for spec in specs], sizes, f"{location}.{side}")


def _check_entries(entries: list[dict[str, Json]]) -> dict[str, int]:
    """Check that entries are sorted by name and packed except for the alignment, so that nothing can overlap
    or hide."""
    expected = 0
    for i, entry in enumerate(entries):
        if i and entry["name"] <= entries[i - 1]["name"]:
            raise ManifestError(f"entries[{i}].name: {brief(entry['name'])} is not after the one before it")
        if entry["offset"] != expected:
            raise ManifestError(
                f"entries[{i}].offset: {entry['offset']} where {expected} is expected "
                f"(the end of the entry before, rounded up to {ALIGNMENT_BYTES})"
            )
        expected = aligned(entry["offset"] + entry["size"])
    check_disjoint([entry["name"] for entry in entries], "entries")
    return {entry["name"]: entry["size"] for entry in entries}


def check_joined(variant: Mapping[str, Json], sizes: Mapping[str, int], location: str) -> None:
    """Check the files of a variant that are stored in parts (edgekit/bundle/joined_files.py).

    Args:
        sizes: Size in bytes of each entry.

    Raises:
        ManifestError: a part is not a file of the variant, its ranges do not cover its content, overlap or
            leave the file, or the file has more zeros than an alignment needs.
    """
    files, joined = variant["files"], variant["options"].get(JOINED, {})
    location = f"{location}.options.{JOINED}"
    _JOINED_FILES(joined, location)
    check_disjoint([*files, *joined], location)
    for name, file in joined.items():
        where, ranges = f"{location}[{brief(name)}]", list[list[int]]()
        if name in files:
            raise ManifestError(f"{where}: the variant has a file of this name as well")
        for part, own in file["parts"].items():
            if any(len(pair) != 2 for pair in own):
                raise ManifestError(f"{where}.parts[{brief(part)}]: a range is not [offset, length]")
            length = sum(length for _, length in own)
            if part not in files or length != sizes[files[part]]:
                raise ManifestError(f"{where}.parts[{brief(part)}]: not a file of {length} bytes")
            ranges += own
        end = 0
        for offset, length in [*sorted(ranges), [file["size"], 0]]:
            if not 0 <= offset - end < ZEROS_LIMIT_BYTES:
                raise ManifestError(f"{where}: {offset} follows {end}; ranges overlap, or too much is zero")
            end = offset + length


def check_disjoint(names: Iterable[str], location: str) -> None:
    """Check that names do not collide on any file system: no two differ in case only, and none is a folder of
    another."""
    name_by_lower: dict[str, str] = {}
    for name in names:
        other = name_by_lower.setdefault(name.lower(), name)
        if other != name:
            raise ManifestError(f"{location}: {brief(name)} and {brief(other)} differ in case only")
    for key, name in name_by_lower.items():
        parts = key.split("/")
        for n in range(1, len(parts)):
            if "/".join(parts[:n]) in name_by_lower:
                raise ManifestError(f"{location}: {brief(name)} is inside another file")


def _check_cascade(cascade: Mapping[str, Json] | None, sizes: Mapping[str, int]) -> None:
    if cascade is None:
        return
    names = [stage["name"] for stage in cascade["stages"]]
    _check_unique(names, "cascade.stages")
    if set(names) != set(cascade["bundles"]):
        raise ManifestError("cascade.bundles: the names are not those of the stages")
    for name, bundle in cascade["bundles"].items():
        if bundle["entry"] not in sizes:
            location = f"cascade.bundles[{brief(name)}]"
            raise ManifestError(f"{location}: entry {brief(bundle['entry'])} does not exist")


def _check_unique(names: list[str], location: str) -> None:
    unique: set[str] = set()
    for name in names:
        if name in unique:
            raise ManifestError(f"{location}: two are called {brief(name)}")
        unique.add(name)


def _check_shrunk(
    variant: Mapping[str, Json], manifest: Mapping[str, Json], sizes: Mapping[str, int], location: str
) -> None:
    """Check that a smaller model has its own outputs for the inputs of the bundle's golden vectors."""
    shrunk = variant.get("shrunk")
    if shrunk is None:
        return
    if len(shrunk["multiplications"]) != 2 or shrunk["multiplications"][1] > shrunk["multiplications"][0]:
        raise ManifestError(
            f"{location}.multiplications: they must be those before and after, and must not grow"
        )
    if variant["files"] and len(shrunk["golden"]) != len(manifest["golden"]):
        count, stored = len(manifest["golden"]), len(shrunk["golden"])
        raise ManifestError(f"{location}.golden: {stored} outputs for the bundle's {count} golden vectors")
    for i, outputs in enumerate(shrunk["golden"]):
        _check_golden(outputs, manifest["outputs"], sizes, f"{location}.golden[{i}]")


def _check_golden(
    entries: Mapping[str, str], tensors: list[dict[str, Json]], sizes: Mapping[str, int], location: str
) -> None:
    if set(entries) != {tensor["name"] for tensor in tensors}:
        raise ManifestError(f"{location}: the names are not those of the model")
    for tensor in tensors:
        entry = entries[tensor["name"]]
        if entry not in sizes:
            raise ManifestError(f"{location}[{brief(tensor['name'])}]: entry {brief(entry)} does not exist")
        header_bytes = sizes[entry] - tensor_bytes(tensor)
        if not 0 < header_bytes <= npy.HEADER_LIMIT_BYTES and -1 not in tensor["shape"]:
            raise ManifestError(
                f"{location}[{brief(tensor['name'])}]: entry {brief(entry)} has {sizes[entry]} bytes, "
                f"the tensor alone {tensor_bytes(tensor)}"
            )


def aligned(offset: int) -> int:
    """``offset`` rounded up to the alignment, in bytes.

    >>> aligned(0), aligned(1), aligned(64)
    (0, 64, 64)
    """
    return -(-offset // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


# --- bytes -----------------------------------------------------------------------------------------------


def decode_manifest(data: bytes) -> dict[str, Any]:
    """Parse and check the bytes of a manifest.

    Raises:
        ManifestError: they are too many, not strict JSON, or not what a manifest must be.
    """
    try:
        manifest: dict[str, Any] = strict_json.decode(data, "manifest", MANIFEST_LIMIT_BYTES)
    except JsonError as problem:
        raise ManifestError(str(problem)) from None
    check_manifest(manifest)
    return manifest


def encode_manifest(manifest: Mapping[str, Json]) -> bytes:
    """Return the bytes of a manifest; the same manifest gives the same bytes.

    Raises:
        ManifestError: a value is not JSON; the text says where.
    """
    try:
        return strict_json.encode(manifest)
    except JsonError as problem:
        raise ManifestError(f"manifest: {problem}") from None
