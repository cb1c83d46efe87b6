"""Weight sharing: the packages of further shapes read the largest's ``weight.bin``, which gets what it lacks.

From iOS 18 on, they are one package with a function for each shape:

    320, 480 and 640 pixels, a package each  =>  one: main, main_1, main_2

An app chooses by ``MLModelConfiguration.functionName``. Before, each package is whole, with the same
``weight.bin``, which a bundle stores once. Format of a package with functions: ``get_coreml_model`` in
coremltools' backend/mil/load.py.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgekit.target import Artifact
from edgekit.tensor_spec import Content
from edgekit_coreml.interpreter.program import BLOB_HEADER
from edgekit_coreml.package import FORMAT_OF_IOS, MANIFEST, SPECIFICATION, WEIGHTS, manifest
from edgekit_coreml.vendor import coremltools

MAIN = "main"
FUNCTIONS_IOS = 18
"""The first with several functions in a package."""
ALIGNMENT_BYTES = 64
"""Alignment of metadata and of data in ``weight.bin``, in bytes."""
COUNT = struct.Struct("<I")
"""Number of blobs, at the beginning of ``weight.bin``."""
DATA_OFFSET = 16
"""Position of the data's offset in a blob's metadata."""


def share_weights(whole: Artifact, further: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Let artifacts of further shapes read the largest's weights, from iOS 18 on in one package."""
    largest, *others = specifications = [_specification(artifact.files) for artifact in (whole, *further)]
    weights = _merged(
        [bytes(artifact.files.get(WEIGHTS, b"")) for artifact in (whole, *further)], specifications
    )
    if largest.specificationVersion < FORMAT_OF_IOS[FUNCTIONS_IOS]:
        packages = [_package(specification, weights) for specification in specifications]
        return whole._replace(files=packages[0]), [
            artifact._replace(files=files) for artifact, files in zip(further, packages[1:], strict=True)
        ]
    names = [f"{MAIN}_{number}" for number in range(1, len(specifications))]
    described = [(MAIN, largest), *zip(names, others, strict=True)]
    together = coremltools().proto.Model_pb2.Model()
    together.CopyFrom(largest)
    for part in ("input", "output", "state"):
        together.description.ClearField(part)
    together.description.defaultFunctionName = MAIN
    for name, specification in described:
        function = together.description.functions.add(name=name)
        for part in ("input", "output", "state"):
            getattr(function, part).extend(getattr(specification.description, part))
        together.mlProgram.functions[name].CopyFrom(specification.mlProgram.functions[MAIN])
    files = _package(together, weights)
    return whole._replace(files=files), [
        artifact._replace(files=files, options={**artifact.options, "function": name})
        for name, artifact in zip(names, further, strict=True)
    ]


def main_function(specification: Any) -> None:
    """Leave only the function of the largest shape in a specification, for tools that take one."""
    description = specification.description
    for function in description.functions:
        if function.name == MAIN:
            for part in ("input", "output", "state"):
                getattr(description, part).extend(getattr(function, part))
        else:
            del specification.mlProgram.functions[function.name]
    description.ClearField("functions")
    description.ClearField("defaultFunctionName")


def _specification(files: Mapping[str, Content]) -> Any:
    specification = coremltools().proto.Model_pb2.Model()
    specification.ParseFromString(bytes(files[SPECIFICATION]))
    return specification


def _package(specification: Any, weights: bytes) -> dict[str, bytes]:
    files = {SPECIFICATION: specification.SerializeToString(deterministic=True)}
    if weights:
        files[WEIGHTS] = weights
    return {**files, MANIFEST: manifest(files)}


def _merged(contents: Sequence[bytes], specifications: Sequence[Any]) -> bytes:
    """Return the first file with the blobs that only the others have, and point all values to it."""
    merged, places = bytearray(contents[0] or next(filter(None, contents), b"")[:ALIGNMENT_BYTES]), {}
    if merged and not contents[0]:
        COUNT.pack_into(merged, 0, 0)
    for number, (content, specification) in enumerate(zip(contents, specifications, strict=True)):
        for value in _blob_values(specification.mlProgram):
            offset = int(value.offset)
            _, _, size, start = BLOB_HEADER.unpack_from(content, offset)
            metadata, data = content[offset : offset + ALIGNMENT_BYTES], content[start : start + size]
            key = hashlib.sha256(metadata[:DATA_OFFSET] + metadata[DATA_OFFSET + 8 :] + data).digest()
            if number and key not in places:
                merged.extend(bytes(-len(merged) % ALIGNMENT_BYTES))
                places[key] = len(merged)
                own_metadata = bytearray(metadata)
                struct.pack_into("<Q", own_metadata, DATA_OFFSET, len(merged) + ALIGNMENT_BYTES)
                merged += own_metadata + data
                COUNT.pack_into(merged, 0, COUNT.unpack_from(merged)[0] + 1)
            value.offset = places.setdefault(key, offset)
    return bytes(merged)


def _blob_values(message: Any) -> Iterator[Any]:
    if message.DESCRIPTOR.name == "BlobFileValue":
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is not None:
                for key in sorted(value):
                    yield from _blob_values(value[key])
        else:
            for member in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from _blob_values(member)
