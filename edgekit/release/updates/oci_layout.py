"""Bundles in an OCI image layout: the folder that tools of container registries push from and pull into.

    DIR/oci-layout               the version of the layout
    DIR/index.json               which tag is which manifest
    DIR/blobs/sha256/HEX         manifests, configurations, bundles, signatures, each named by its sha256

A bundle is an artifact as CNCF's ModelPack lays it out: a manifest with a configuration, the bundle as a
layer of raw weights, and its signature file as a layer of documentation.

    https://github.com/opencontainers/image-spec/blob/main/image-layout.md
    https://github.com/modelpack/model-spec/blob/main/docs/spec.md

The digests show damage. They do not show who made an artifact, nor that it is the newest: who can write to
the registry or to the folder can put another one there. Signatures and TUF's repository show that.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import HEADER
from edgekit.bundle.manifest import plain_path
from edgekit.errors import SignatureError, UpdateError, UsageError
from edgekit.runtime.store.bundle_store import Store
from edgekit.signing.signature_file import LIMIT_BYTES as SIGNATURE_LIMIT_BYTES
from edgekit.signing.signature_file import SUFFIX
from edgekit.system.formats import strict_json
from edgekit.system.formats.json_schema import Check, exactly, list_of, map_of, record, text, text_that, whole
from edgekit.system.formats.strict_json import brief
from edgekit.system.regular_file import open_regular, read_plain

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
ARTIFACT_TYPE = "application/vnd.cncf.model.manifest.v1+json"
CONFIG_TYPE = "application/vnd.cncf.model.config.v1+json"
WEIGHT_TYPE = "application/vnd.cncf.model.weight.v1.raw"
DOC_TYPE = "application/vnd.cncf.model.doc.v1.raw"
FILE_PATH = "org.cncf.model.filepath"
TAG = "org.opencontainers.image.ref.name"
TAGS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
"""What can be a tag, by the distribution specification."""
LAYOUT = {"imageLayoutVersion": "1.0.0"}
JSON_LIMIT_BYTES = 4 << 20
"""Of an index, a manifest or a configuration: what the distribution specification has registries take."""
SIZE_LIMIT_BYTES = 2 << 30
ENTRIES_LIMIT = 10_000
"""Of an index."""
LAYERS_LIMIT = 64

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_DESCRIPTOR: Check = record(
    {
        "mediaType": text,
        "digest": text_that(lambda digest: _DIGEST.fullmatch(digest) is not None, "a sha256 digest"),
        "size": whole(0),
        "annotations": map_of(text, text, 256),
    },
    is_open=True,
    optional=["annotations"],
)
_INDEX: Check = record(
    {"schemaVersion": exactly(2), "manifests": list_of(_DESCRIPTOR, ENTRIES_LIMIT)}, is_open=True
)
_MANIFEST: Check = record(
    {
        "schemaVersion": exactly(2),
        "mediaType": exactly(MANIFEST_TYPE),
        "artifactType": exactly(ARTIFACT_TYPE),
        "config": _DESCRIPTOR,
        "layers": list_of(_DESCRIPTOR, LAYERS_LIMIT),
    },
    is_open=True,
)


@dataclass(frozen=True)
class LayoutBundle:
    """A bundle in a layout.

    Attributes:
        tag: Its tag; "" where it has none.
        digest: Digest of its manifest: ``sha256:`` and hexadecimal digits.
        file: The bundle's file name.
        bundle: Path of its bytes.
        signature: Path of its signature file, or None.
        size_bytes: Size of the bundle in bytes.
    """

    tag: str
    digest: str
    file: str
    bundle: Path
    signature: Path | None
    size_bytes: int


def update(
    store: Store,
    reference: str,
    signed: bool = False,
    size_limit_bytes: int = SIZE_LIMIT_BYTES,
    dry_run: bool = False,
) -> tuple[str, LayoutBundle, str]:
    """Install the bundle of a layout into a device's store, if it is not the current one there.

    Args:
        store: The device's store.
        reference: The layout: ``DIR``, or ``DIR:TAG``.
        signed: Whether the store has keys, one of which must have signed the bundle.
        size_limit_bytes: Maximum size of all files of the artifact.
        dry_run: Check the layout, and install nothing.

    Returns:
        ``installed``, ``up to date`` or ``available``; the artifact; the digest of its bundle in the store.

    Raises:
        UpdateError: the layout is refused; the store is as it was.
        SignatureError, BundleError: the store refuses the bundle.
        UsageError: the layout or tag does not exist.
    """
    artifact = open_artifact(reference, size_limit_bytes)
    if signed and artifact.signature is None:
        raise SignatureError(f"{reference} is not signed: it has no {artifact.file}{SUFFIX}")
    with open_regular(artifact.bundle, follow_links=False) as file:
        digest = file.read(HEADER.size)[-32:].hex()
    if digest == store.state.current:
        return "up to date", artifact, digest
    if dry_run:
        return "available", artifact, digest
    return "installed", artifact, store.install(artifact.bundle, artifact.signature)


def open_artifact(reference: str, size_limit_bytes: int = SIZE_LIMIT_BYTES) -> LayoutBundle:
    """Find the artifact of a tag, and check size and digest of everything that it names.

    Only regular files of the layout are read, by names that are hashes; links are not followed.

    Args:
        reference: ``DIR:TAG``; without a tag the layout's only artifact.
        size_limit_bytes: Maximum size of all its layers.

    Raises:
        UpdateError: something is missing, damaged, too large, or not as ``oci_publishing`` writes it.
        UsageError: the layout or tag does not exist.
    """
    folder, tag = parse_reference(reference)
    if not folder.is_dir():
        raise UsageError(f"{folder}: the folder does not exist")
    try:
        check_layout(folder)
        entry = _tagged(folder, read_index(folder)["manifests"], tag)
        _expect(entry["mediaType"] == MANIFEST_TYPE, f"{brief(entry['mediaType'])} is not an image manifest")
        manifest = _json(folder, entry, "manifest")
        _MANIFEST(manifest, "manifest")
        config, layers = manifest["config"], manifest["layers"]
        _expect(config["mediaType"] == CONFIG_TYPE, f"a configuration of type {brief(config['mediaType'])}")
        bundle, signature = _bundle_and_signature(layers)
        size = sum(layer["size"] for layer in layers)
        limit_text = f"at most {size_limit_bytes >> 20} MB are read (--max-size-mb)"
        _expect(size <= size_limit_bytes, f"its layers have {size >> 20} MB; {limit_text}")
        _json(folder, config, "configuration")
        for layer in layers:
            _check_layer(folder, layer)
    except (OSError, ValueError) as problem:
        raise UpdateError(
            f"{reference} is refused: {described(problem)}\n"
            "  nothing has changed; copy the artifact from its registry again"
        ) from None
    return LayoutBundle(
        tag_of(entry),
        entry["digest"],
        bundle["annotations"][FILE_PATH],
        blob_path(folder, bundle["digest"]),
        None if signature is None else blob_path(folder, signature["digest"]),
        bundle["size"],
    )


def parse_reference(reference: str) -> tuple[Path, str]:
    """Return the folder and the tag of ``DIR`` or ``DIR:TAG``.

    >>> parse_reference("models:v3")[1], parse_reference("a:b/models")[1]
    ('v3', '')
    """
    folder, _, tag = reference.rpartition(":")
    return (Path(folder), tag) if folder and TAGS.fullmatch(tag) else (Path(reference), "")


def check_layout(folder: Path) -> None:
    """Check that a folder is a layout that holds its blobs. Raises OSError or ValueError if it is not."""
    layout = strict_json.decode(_read(folder / "oci-layout"), "oci-layout", JSON_LIMIT_BYTES)
    record({key: exactly(value) for key, value in LAYOUT.items()}, is_open=True)(layout, "oci-layout")
    for path in (folder / "blobs", folder / "blobs" / "sha256"):
        _expect(stat.S_ISDIR(path.lstat().st_mode), f"{path} is not a folder, or is a link")


def read_index(folder: Path) -> dict[str, Any]:
    """Return the index of a layout. Raises OSError or ValueError."""
    index: dict[str, Any] = strict_json.decode(_read(folder / "index.json"), "index.json", JSON_LIMIT_BYTES)
    _INDEX(index, "index.json")
    return index


def tag_of(entry: Mapping[str, Any]) -> str:
    """Return the tag of an index entry, or "" if it has none."""
    return str(entry.get("annotations", {}).get(TAG, ""))


def digest_of(content: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def blob_path(folder: Path, digest: str) -> Path:
    """Return the path of the blob with a sha256 digest."""
    return folder / "blobs" / "sha256" / digest.removeprefix("sha256:")


def described(problem: OSError | ValueError) -> str:
    """Describe an error without its number."""
    if isinstance(problem, FileNotFoundError):
        return f"{problem.filename} does not exist"
    return f"{problem.filename}: {problem.strerror}" if isinstance(problem, OSError) else str(problem)


def _tagged(folder: Path, entries: list[dict[str, Any]], tag: str) -> dict[str, Any]:
    """Return the entry of a tag, or the only entry if ``tag`` is empty."""
    matches = [entry for entry in entries if tag in ("", tag_of(entry))]
    if len(matches) == 1:
        return matches[0]
    _expect(not tag or not matches, f"its index has {len(matches)} entries of tag {tag}")
    tags = ", ".join(brief(tag_of(entry))[1:-1] for entry in entries[-20:]) or "none"
    if tag:
        raise UsageError(f"{folder} has no tag {tag}; it has: {tags}")
    raise UsageError(f"{folder} has {len(entries)} artifacts, of tags {tags}; give {folder}:TAG")


def _bundle_and_signature(layers: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the layers of the bundle and of its signature, which their file names identify."""
    named: dict[str, dict[str, Any]] = {}
    for layer in layers:
        name = layer.get("annotations", {}).get(FILE_PATH)
        if name is not None:
            plain_path(name, FILE_PATH)
            _expect(name not in named, f"two of its layers are {brief(name)}")
            named[name] = layer
    bundles = [name for name in named if name.endswith(".edgekit")]
    _expect(
        len(bundles) == 1, f"it has {len(bundles)} bundles (layers called *.edgekit) where one is expected"
    )
    bundle, signature = named[bundles[0]], named.get(bundles[0] + SUFFIX)
    _expect(bundle["mediaType"] == WEIGHT_TYPE, f"its bundle is a layer of type {brief(bundle['mediaType'])}")
    _expect(signature is None or signature["size"] <= SIGNATURE_LIMIT_BYTES, "its signature is too large")
    return bundle, signature


def _check_layer(folder: Path, layer: Mapping[str, Any]) -> None:
    path, digest = blob_path(folder, layer["digest"]), hashlib.sha256()
    with open_regular(path, follow_links=False) as file:
        size = os.fstat(file.fileno()).st_size
        _expect(size == layer["size"], f"{path} has {size} bytes where {layer['size']} are expected")
        while piece := file.read(1 << 20):
            digest.update(piece)
    _expect(f"sha256:{digest.hexdigest()}" == layer["digest"], f"{path} is damaged: its sha256 differs")


def _json(folder: Path, descriptor: Mapping[str, Any], description: str) -> Any:
    """Return the JSON that a descriptor refers to. Its size and digest are checked."""
    path = blob_path(folder, descriptor["digest"])
    content = _read(path)
    size = len(content)
    _expect(size == descriptor["size"], f"{path} has {size} bytes where {descriptor['size']} are expected")
    _expect(digest_of(content) == descriptor["digest"], f"{path} is damaged: its sha256 differs")
    return strict_json.decode(content, description, JSON_LIMIT_BYTES)


def _read(path: Path) -> bytes:
    return read_plain(path, JSON_LIMIT_BYTES, follow_links=False)


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise ValueError(otherwise)
