"""Writing of ONNX Runtime's model packages, by its own library (``onnxruntime.ModelPackage``, 1.32)."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.joined_files import engine_files, read
from edgekit.bundle.variant import Variant
from edgekit.errors import MissingDependency, UsageError
from edgekit.system.formats import strict_json
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.system.regular_file import sha256_of
from edgekit.tensor_spec import Json
from edgekit_ort.package_format import (
    BUNDLE,
    EDGEKIT,
    ENTRIES,
    MANIFEST,
    WEIGHTS,
    package_session_options,
    place_of,
    share_weights,
    with_weights_inside,
)
from edgekit_ort.run import MODEL_FILE, SESSION_OPTIONS, WEIGHTS_FOLDER

COMPONENT = "model"
FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def write_package(bundle: Bundle, variants: Sequence[Variant], name: str, folder: Path) -> None:
    """Write variants of a bundle as a package; ONNX Runtime prefers the first of them.

    Args:
        folder: Must not exist; its parent must.

    Raises:
        MissingDependency: ONNX Runtime is older than 1.32.
        UsageError: a variant's name can't be a folder's.
        BundleError: an entry is damaged. OSError: the folder can't be written.
    """
    ort = onnxruntime("writing a model package", "ort")
    if not hasattr(ort, "ModelPackage"):
        raise MissingDependency("onnxruntime>=1.32", "writing a model package")
    for variant in variants:
        if not FOLDER_NAME.fullmatch(variant.name):
            raise UsageError(
                f"variant {variant.name!a} can't be a folder of a package; build it with another name"
            )
    files = {
        variant.name: {file: read(bundle, variant, file) for file in engine_files(variant)}
        for variant in variants
    }
    manifest, entries = _without_artifacts(bundle, variants, files)
    weights, readers = share_weights(files)
    with (
        tempfile.TemporaryDirectory(prefix=".edgekit-", dir=folder.parent) as draft,
        ort.ModelPackage() as package,
    ):
        root, staged = Path(draft, "package"), Path(draft, "staged")
        package.set_metadata(name, None, str((bundle.card or {}).get("title", "")) or None)
        package.set_component_inline(COMPONENT, '{"variants": {}}')
        weights_uri = _add(package, staged / "weights", {WEIGHTS: weights}) if weights else ""
        about = {BUNDLE: strict_json.encode(manifest)}
        about |= {ENTRIES + entry: bytes(bundle.read(entry)) for entry in entries}
        ours: dict[str, Json] = {"version": __version__, "bundle": _add(package, staged / "about", about)}
        package.commit(str(root))
        for variant in variants:
            uri = weights_uri if variant.name in readers else ""
            _write_variant(package, root, variant, files[variant.name], uri)
        package.commit()
        ours["files"] = {
            path.relative_to(root).as_posix(): sha256_of(path)
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name != MANIFEST
        }
        package.set_additional_metadata_json("manifest", None, None, json.dumps({EDGEKIT: ours}))
        package.commit()
        root.rename(folder)


def _without_artifacts(
    bundle: Bundle, variants: Sequence[Variant], files: dict[str, dict[str, bytes]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the manifest with these variants and those without files, and the entries of no variant. Weights
    that a variant of a package has in files of their own go into its graph."""
    manifest = {
        key: value for key, value in bundle.manifest.items() if key not in ("format", "version", "entries")
    }
    names = {variant.name for variant in variants}
    kept = [dict(entry) for entry in manifest["variants"] if entry["name"] in names or not entry["files"]]
    for entry in kept:
        if SESSION_OPTIONS in entry["options"] and entry["files"]:
            own = files[entry["name"]]
            own[MODEL_FILE] = with_weights_inside(own[MODEL_FILE], own)
            files[entry["name"]] = {MODEL_FILE: own[MODEL_FILE]}
            entry["files"] = {MODEL_FILE: f"artifacts/{entry['name']}/{MODEL_FILE}"}
    manifest["variants"] = kept
    artifacts = {entry for variant in bundle.variants for entry in variant.files.values()}
    return manifest, [e["name"] for e in bundle.manifest["entries"] if e["name"] not in artifacts]


def _write_variant(
    package: Any, root: Path, variant: Variant, files: Mapping[str, bytes], weights_uri: str
) -> None:
    for file, content in files.items():
        path = root / variant.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    table = {"variant_directory": variant.name, **place_of(variant.options)}
    package.set_variant(COMPONENT, variant.name, json.dumps(table))
    given = package_session_options(variant.options)
    if weights_uri:
        given[WEIGHTS_FOLDER] = weights_uri
    slots: dict[str, Json] = {
        "ort": {"model_file": MODEL_FILE, "session_options": given},
        EDGEKIT: {"precision": variant.precision, "status": variant.status},
    }
    for slot, table in slots.items():
        package.set_variant_executor_info_inline(COMPONENT, variant.name, slot, json.dumps(table))


def _add(package: Any, folder: Path, files: Mapping[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(package.add_shared_asset(str(folder), None, True))
