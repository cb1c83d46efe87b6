"""Bundles put into an OCI image layout, each as a ModelPack artifact: what ``oci_layout`` reads."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.manifest import plain_path
from edgekit.bundle.model_version import model_version
from edgekit.errors import UsageError
from edgekit.release.updates.oci_layout import (
    ARTIFACT_TYPE,
    CONFIG_TYPE,
    DOC_TYPE,
    FILE_PATH,
    JSON_LIMIT_BYTES,
    LAYOUT,
    MANIFEST_TYPE,
    TAG,
    TAGS,
    WEIGHT_TYPE,
    LayoutBundle,
    blob_path,
    check_layout,
    described,
    digest_of,
    read_index,
    tag_of,
)
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.regular_file import open_regular, sha256_of
from edgekit.target.precisions import precision_of

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"
"""The name under which ``oras pull`` writes a layer."""


def publish(folder: Path, bundle: Path, tag: str = "latest", model: str = "") -> LayoutBundle:
    """Add a bundle to a layout, which is made if it is missing. Every byte of the bundle is checked first.

    The same bundle gives the same bytes, and so the same digest. The index is written last: until then the
    layout is what it was.

    Args:
        folder: The layout. One process at a time writes to it.
        bundle: The file; its signature file beside it, where there is one, goes with it.
        tag: Its tag, which another artifact loses.
        model: The model's name; "": the file's, without its suffix.

    Raises:
        BundleError: it is damaged.
        UsageError: the tag or the name does not fit, or the folder is another one or damaged.
        OSError: a file cannot be written; the layout is as it was. If it was the index, blobs stay that
            nothing names yet.
    """
    if not TAGS.fullmatch(tag):
        raise UsageError(
            f"{tag!r} cannot be a tag: letters, digits, '.', '_' and '-', at most 128; give --tag"
        )
    name = model or bundle.name.removesuffix(".edgekit")
    try:
        plain_path(name, "the model's name")
        index = _index_to_add_to(folder)
    except (OSError, ValueError) as problem:
        raise UsageError(
            f"{bundle} cannot be added to {folder}: {described(problem)}; nothing has changed"
        ) from None
    with Bundle.open(bundle) as opened:
        opened.verify_entries()
        facts = _facts(opened, name)
    added: list[Path] = []
    try:
        for directory in (folder, folder / "blobs", folder / "blobs" / "sha256"):
            if not directory.exists():
                directory.mkdir(parents=True)
                added.append(directory)
        _write(folder / "oci-layout", strict_json.encode(LAYOUT), added)
        layers = [_add_file(folder, bundle, WEIGHT_TYPE, f"{name}.edgekit", added)]
        sidecar = signature_path(bundle)
        if sidecar.exists():
            layers.append(_add_file(folder, sidecar, DOC_TYPE, signature_path(f"{name}.edgekit").name, added))
        facts["modelfs"] = {"type": "layers", "diffIds": [layer["digest"] for layer in layers]}
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": ARTIFACT_TYPE,
            "config": _add_json(folder, facts, CONFIG_TYPE, added),
            "layers": layers,
        }
        entry = _add_json(folder, manifest, MANIFEST_TYPE, added)
        entry |= {"artifactType": ARTIFACT_TYPE, "annotations": {TAG: tag}}
        others = [other for other in index["manifests"] if tag_of(other) != tag]
        content = strict_json.encode({**index, "manifests": [*others, entry]})
        if len(content) > JSON_LIMIT_BYTES:
            raise UsageError(f"{folder} has too many artifacts; nothing has changed; give another folder")
    except BaseException:
        for path in reversed(added):
            with contextlib.suppress(OSError):
                path.rmdir() if path.is_dir() else path.unlink()
        raise
    write_atomically(folder / "index.json", [content], 0o644)
    paths = [blob_path(folder, layer["digest"]) for layer in layers]
    signature = paths[1] if len(paths) > 1 else None
    return LayoutBundle(tag, entry["digest"], f"{name}.edgekit", paths[0], signature, layers[0]["size"])


def _facts(bundle: Bundle, name: str) -> dict[str, Any]:
    """Return ModelPack's configuration of a bundle. It has no date: the same bundle gives the same bytes."""
    card = bundle.manifest["card"] or {}
    about = card["about"] if isinstance(card.get("about"), dict) else {}
    descriptor: dict[str, Any] = {"name": name}
    for key, value in {"title": card.get("title"), "description": about.get("description")}.items():
        if value and isinstance(value, str):
            descriptor[key] = value
    for key, value in {"authors": about.get("author"), "licenses": about.get("license")}.items():
        if value and isinstance(value, str):
            descriptor[key] = [value]
    if (version := model_version(bundle)) is not None:
        descriptor["version"] = str(version)
    rows = [precision_of(variant.precision) for variant in bundle.variants if variant.usable]
    precision = ",".join(sorted({row.element for row in rows if row.element}))
    config = {"format": "edgekit"} | ({"precision": precision} if precision else {})
    return {"descriptor": descriptor, "config": config}


def _index_to_add_to(folder: Path) -> dict[str, Any]:
    """Return the index of a layout, or an empty index if it has none yet. Raises OSError or ValueError."""
    if folder.exists() and any(folder.iterdir()):
        check_layout(folder)
        if os.path.lexists(folder / "index.json"):
            return read_index(folder)
    return {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": []}


def _add_file(folder: Path, path: Path, media_type: str, name: str, written: list[Path]) -> dict[str, Any]:
    """Copy a file to where its hash names it, if it is not there; its descriptor."""
    sha256 = sha256_of(path)
    place = blob_path(folder, sha256)
    if place.is_symlink() or not place.is_file() or sha256_of(place) != sha256:
        if not os.path.lexists(place):
            written.append(place)
        write_atomically(place, _unchanged(path, sha256), 0o644)
    annotations = {FILE_PATH: name, TITLE: name}
    size = place.stat().st_size
    return {"mediaType": media_type, "digest": f"sha256:{sha256}", "size": size, "annotations": annotations}


def _unchanged(path: Path, sha256: str) -> Iterator[bytes]:
    """Yield the bytes of a file, and check that their hash is ``sha256``."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            yield piece
    if digest.hexdigest() != sha256:
        raise UsageError(f"{path} was changed while it was read; nothing has been published")


def _add_json(folder: Path, value: dict[str, Any], media_type: str, written: list[Path]) -> dict[str, Any]:
    content = strict_json.encode(value)
    digest = digest_of(content)
    _write(blob_path(folder, digest), content, written)
    return {"mediaType": media_type, "digest": digest, "size": len(content)}


def _write(path: Path, content: bytes, written: list[Path]) -> None:
    if not os.path.lexists(path):
        written.append(path)
    write_atomically(path, [content], 0o644)
