"""Writing of ONNX Runtime's model packages, by its own library (``onnxruntime.ModelPackage``, 1.32).

    manifest.json                        components, variants, session options; sha256 of all other files
    VARIANT/model.onnx                   the bundle's file, but for weights that variants share
    shared_assets/sha256-HEX/weights.bin those weights, once
    shared_assets/sha256-HEX/...         golden vectors, card and its files

``executor_info.edgekit`` of a variant has its evidence and where the golden vectors and the card are;
``additional_metadata.edgekit.files`` has the digests, so a signature of manifest.json is one of all files.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import entry_of
from edgekit.bundle.variant import Variant
from edgekit.errors import MissingDependency
from edgekit.system.formats import strict_json
from edgekit.system.formats.npy import npy_bytes
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.system.regular_file import sha256_of
from edgekit.target.shapes import largest_files
from edgekit.tensor_spec import Json
from edgekit_ort.package_reader import CPU, EDGEKIT, MANIFEST, PROVIDER
from edgekit_ort.run import EXACT_SUMS, MODEL_FILE, SESSION_OPTIONS, WEIGHTS_FOLDER, session_options_of

COMPONENT = "model"
WEIGHTS = "weights.bin"
SHARED_FROM_BYTES = 1024
"""Smaller tensors stay in each graph: a map of a place in another file costs more than they do."""
ALIGNMENT_BYTES = 64


def write_package(bundle: Bundle, variants: Sequence[Variant], name: str, folder: Path) -> None:
    """Write variants of a bundle as a package; ONNX Runtime prefers the first of them.

    Args:
        folder: Must not exist; its parent must.

    Raises:
        MissingDependency: ONNX Runtime is older than 1.32.
        BundleError: an entry is damaged. OSError: the folder can't be written.
    """
    ort = onnxruntime("writing a model package", "ort")
    if not hasattr(ort, "ModelPackage"):
        raise MissingDependency("onnxruntime>=1.32", "writing a model package")
    files = {}
    for variant in variants:
        entries = largest_files(variant.files)
        own = files[variant.name] = {file: bytes(bundle.read(entry)) for file, entry in entries.items()}
        if SESSION_OPTIONS in variant.options:
            _put_weights_inside(own)
    weights = _share_weights(files)
    with (
        tempfile.TemporaryDirectory(prefix=".edgekit-", dir=folder.parent) as draft,
        ort.ModelPackage() as package,
    ):
        root, staged = Path(draft, "package"), Path(draft, "staged")
        package.set_metadata(name, None, str((bundle.card or {}).get("title", "")) or None)
        package.set_component_inline(COMPONENT, '{"variants": {}}')
        weights_uri = _add(package, staged / "weights", {WEIGHTS: weights}) if weights else ""
        about = _about(bundle, package, staged / "about")
        package.commit(str(root))
        for variant in variants:
            _write_variant(package, root, variant, files[variant.name], weights_uri, about)
        package.commit()
        digests = {
            path.relative_to(root).as_posix(): sha256_of(path)
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.name != MANIFEST
        }
        ours = {EDGEKIT: {"version": __version__, "bundle": bundle.digest, "files": digests}}
        package.set_additional_metadata_json("manifest", None, None, json.dumps(ours))
        package.commit()
        root.rename(folder)


def _write_variant(
    package: Any,
    root: Path,
    variant: Variant,
    files: Mapping[str, bytes],
    weights_uri: str,
    about: Mapping[str, Json],
) -> None:
    for file, content in files.items():
        path = root / variant.name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    place = variant.options.get(PROVIDER) or {"ep": CPU, "device": "cpu"}
    package.set_variant(COMPONENT, variant.name, json.dumps({"variant_directory": variant.name, **place}))
    given = _session_options(variant.options)
    if weights_uri:
        given[WEIGHTS_FOLDER] = weights_uri
    ort = {"model_file": MODEL_FILE, "session_options": given}
    package.set_variant_executor_info_inline(COMPONENT, variant.name, "ort", json.dumps(ort))
    ours = {"precision": variant.precision, "status": variant.status, "evidence": variant.evidence, **about}
    package.set_variant_executor_info_inline(
        COMPONENT, variant.name, EDGEKIT, strict_json.encode(ours).decode()
    )


def _session_options(options: Mapping[str, Json]) -> dict[str, str]:
    if SESSION_OPTIONS in options:
        return dict(options[SESSION_OPTIONS])
    given = session_options_of(
        bool(options.get("float_islands")),
        bool(options.get("widened_weights")),
        options.get("arithmetic") == "bf16",
    )
    if options.get("wide_sums"):
        given[EXACT_SUMS] = "1"  # exact on every processor, not on this one alone
    return given


def _about(bundle: Bundle, package: Any, folder: Path) -> dict[str, Json]:
    """Add the golden vectors and the card as a shared asset, and return where they are."""
    files: dict[str, bytes] = {}
    golden: list[dict[str, dict[str, str]]] = []
    for number, pair in enumerate(bundle.golden):
        golden.append({"inputs": {}, "outputs": {}})
        for side, arrays in zip(golden[-1], pair, strict=True):
            for index, (name, array) in enumerate(arrays.items()):
                golden[-1][side][name] = file = f"golden/{number}/{side}-{index}.npy"
                files[file] = npy_bytes(array)
    about: dict[str, Json] = {"golden": golden}
    if bundle.card is not None:
        files["card.json"], about["card"] = strict_json.encode(bundle.card), "card.json"
        prefix = entry_of("")
        entries = [entry["name"] for entry in bundle.manifest["entries"] if entry["name"].startswith(prefix)]
        files |= {entry: bytes(bundle.read(entry)) for entry in entries}
        about["card_files"] = {entry.removeprefix(prefix): entry for entry in entries}
    if not files:
        return {}
    uri = _add(package, folder, files)
    located: dict[str, Json] = _under(about, uri)
    return located


def _under(value: Json, uri: str) -> Json:
    if isinstance(value, str):
        return f"{uri}/{value}"
    if isinstance(value, list):
        return [_under(item, uri) for item in value]
    return {key: _under(item, uri) for key, item in value.items()}


def _add(package: Any, folder: Path, files: Mapping[str, bytes]) -> str:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return str(package.add_shared_asset(str(folder), None, True))


def _put_weights_inside(files: dict[str, bytes]) -> None:
    """Move the weights of a variant that came in a package into its graph, to share them anew."""
    model = onnx.ModelProto.FromString(files[MODEL_FILE])
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if place:
            start, content = int(place.get("offset", 0)), files[place["location"]]
            tensor.raw_data = content[start : start + int(place.get("length", len(content) - start))]
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
    files.clear()
    files[MODEL_FILE] = model.SerializeToString(deterministic=True)


def _share_weights(files: dict[str, dict[str, bytes]]) -> bytes:
    """Move weights that several variants have into one file, which is returned; the graphs point into it."""
    graphs = {name: onnx.ModelProto.FromString(own[MODEL_FILE]) for name, own in files.items()}
    counts = Counter(
        raw
        for graph in graphs.values()
        for raw in {t.raw_data for t in graph.graph.initializer if len(t.raw_data) >= SHARED_FROM_BYTES}
    )
    weights, places = bytearray(), {}
    for raw, count in counts.items():
        if count > 1:
            weights += bytes(-len(weights) % ALIGNMENT_BYTES)
            places[raw] = len(weights)
            weights += raw
    for name, graph in graphs.items():
        moved = [tensor for tensor in graph.graph.initializer if tensor.raw_data in places]
        for tensor in moved:
            rows = (
                ("location", WEIGHTS),
                ("offset", places[tensor.raw_data]),
                ("length", len(tensor.raw_data)),
            )
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in rows:
                tensor.external_data.add(key=key, value=str(value))
        if moved:
            files[name][MODEL_FILE] = graph.SerializeToString(deterministic=True)
    return bytes(weights)
