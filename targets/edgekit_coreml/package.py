"""A MIL program as the files of an .mlpackage, the same bytes each time.

    model.mlpackage/Manifest.json                                 the items, named by UUIDs
    model.mlpackage/Data/com.apple.CoreML/model.mlmodel           the specification, protobuf
    model.mlpackage/Data/com.apple.CoreML/weights/weight.bin      constants, each at a multiple of 64 bytes

coremltools draws the UUIDs by chance; here they are derived from the content.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PACKAGE = "model.mlpackage"
MANIFEST = f"{PACKAGE}/Manifest.json"
SPECIFICATION = f"{PACKAGE}/Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = f"{PACKAGE}/Data/com.apple.CoreML/weights/weight.bin"
AUTHOR = "com.apple.CoreML"
FORMAT_OF_IOS: Mapping[int, int] = {15: 6, 16: 7, 17: 8, 18: 9, 26: 10}
"""iOS version -> specification version of Core ML's format."""


def package_files(
    program: Any,
    specification_version: int,
    metadata: Mapping[str, str],
    *,
    classifier: Any = None,
    describe: Callable[[Any], None] = lambda specification: None,
) -> dict[str, bytes]:
    """Build the files of the package."""
    from coremltools.converters.mil.backend.mil.load import load

    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        specification = load(
            program, folder, specification_version=specification_version, classifier_config=classifier
        )
        path = Path(folder) / "weight.bin"
        weights = path.read_bytes() if path.exists() else b""
    for key, text in sorted(metadata.items()):
        specification.description.metadata.userDefined[key] = text
    describe(specification)
    files = {SPECIFICATION: specification.SerializeToString(deterministic=True)}
    if weights:
        files[WEIGHTS] = weights
    files[MANIFEST] = manifest(files)
    return files


def manifest(files: Mapping[str, bytes]) -> bytes:
    """Return the content of ``Manifest.json`` for the other files of a package."""
    model = _named(files[SPECIFICATION])
    items = {model: _item("CoreML Model Specification", "model.mlmodel")}
    if WEIGHTS in files:
        items[_named(files[WEIGHTS])] = _item("CoreML Model Weights", "weights")
    manifest = {"fileFormatVersion": "1.0.0", "itemInfoEntries": items, "rootModelIdentifier": model}
    return json.dumps(manifest, indent=4, sort_keys=True).encode()


def _item(description: str, name: str) -> dict[str, str]:
    return {
        "author": AUTHOR,
        "description": description,
        "name": name,
        "path": f"{AUTHOR}/{name}",
    }


def _named(content: bytes) -> str:
    """Return a UUID that follows from the content."""
    import hashlib

    digest = hashlib.sha256(content).hexdigest()
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"sha256:{digest}")).upper()
