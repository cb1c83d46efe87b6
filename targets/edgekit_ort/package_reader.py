"""Reading of ONNX Runtime's model packages, from anybody.

ONNX Runtime (1.32) checks no hash, follows what a manifest says, and its parser ends the process on deep
JSON. So EdgeKit parses the manifest itself, within limits, reads regular files inside the folder alone,
compares every hash that there is, and takes session options from a list.
https://github.com/microsoft/onnxruntime/tree/main/model_package_lib

Two layouts of Olive are read as well: that of olive-ai 0.13 (``configs_dir``, metadata.json), which ONNX
Runtime refuses, and that of its main branch, whose variants have no ``executor_info.ort``.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edgekit.bundle.joined_files import part_content
from edgekit.bundle.manifest import JOINED, VARIANT
from edgekit.compiler.model.untrusted import external_files, subgraphs_of
from edgekit.errors import ModelError
from edgekit.system.formats import strict_json
from edgekit.system.formats.json_schema import list_of
from edgekit.system.formats.strict_json import JsonError, brief
from edgekit.system.regular_file import read_plain
from edgekit.target.model_packages import PROVIDER, ModelPackage, PackagedVariant
from edgekit.tensor_spec import Json
from edgekit_ort.package_format import (
    BUNDLE,
    CPU,
    EDGEKIT,
    ENTRIES,
    MANIFEST,
    WEIGHTS,
    package_session_options,
    place_of,
    with_weights_inside,
)
from edgekit_ort.run import ALLOWED_SESSION_OPTIONS, MODEL_FILE, SESSION_OPTIONS, WEIGHTS_FOLDER

COMPONENT, METADATA = "component.json", "metadata.json"
GENAI_CONFIGS = ("genai_config.json", "genai_config_overlay.json")
JSON_LIMIT_BYTES = 8 << 20
FILE_LIMIT_BYTES = (1 << 31) - 1
"""Of a graph or its weights: what EdgeKit reads of any model."""
VARIANTS_LIMIT = 64
FILES_LIMIT = 10_000
THREADS = ("session.intra_op_num_threads", "session.inter_op_num_threads", "session.intra_op_thread_count")
THREADS_LIMIT = 256
VALUE_LIMIT_CHARS = 256
_SCHEMA = re.compile(r"1\.\d{1,4}")
_URI = re.compile(r"sha256:([0-9a-f]{64})(?:/(.+))?")
_MANIFEST_KEYS = {
    "schema_version", "layout", "package_name", "package_version", "description", "components",
    "shared_assets", "additional_metadata",
}  # fmt: skip
_VARIANT_KEYS = {
    "variant_directory", "ep", "device", "compatibility_string", "executor_info", "additional_metadata",
}  # fmt: skip


def is_package(path: Path) -> bool:
    """Return whether a folder is a model package: it has ``manifest.json``, of whatever kind."""
    return os.path.lexists(path / MANIFEST)


def has_digests(path: Path) -> bool:
    """Return whether the manifest has the digests of all files, so that its signature is one of the package.

    Raises:
        ModelError: the manifest is malformed.
    """
    return _Reader(path).stored is not None


def read_package(path: Path) -> ModelPackage:
    """Read a package of one component, with the files of all its variants.

    Raises:
        ModelError: it is malformed, hostile or damaged; the message has the place.
    """
    return _Reader(path).read()


class _Reader:
    """A package's folder. Every byte that is used was read through it, and is part of its digest."""

    def __init__(self, root: Path) -> None:
        self.root, self._digests = root, hashlib.sha256()
        self.ours: dict[str, Json] = {}
        self.stored: dict[str, Json] | None = None
        self._read: dict[Path, tuple[bytes, str]] = {}
        manifest = self._json(root / MANIFEST)
        self.manifest = self._table(manifest, MANIFEST)
        about = self.manifest.get("additional_metadata") or {}
        ours = about.get(EDGEKIT) if isinstance(about, dict) else None
        if isinstance(ours, dict) and {"files", "bundle"} <= set(ours):
            self.ours, self.stored = ours, self._table(ours["files"], "edgekit.files")
        self._assets: dict[str, Path] = {}

    def read(self) -> ModelPackage:
        manifest = self.manifest
        is_old = "configs_dir" in manifest  # of olive-ai 0.13
        known = _MANIFEST_KEYS | ({"configs_dir", "producer"} if is_old else set())
        if unknown := sorted(set(manifest) - known):
            self.refuse(f"{MANIFEST}: unknown key {brief(unknown[0])}")
        version = manifest.get("schema_version")
        if not isinstance(version, str) or not _SCHEMA.fullmatch(version):
            self.refuse(f"{MANIFEST}: schema_version is {brief(version)}; EdgeKit reads 1.x")
        base, component = self._component(manifest.get("components"))
        table = self._table(component.get("variants"), "variants")
        if not 0 < len(table) <= VARIANTS_LIMIT:
            self.refuse(f"it has {len(table)} variants; EdgeKit reads 1 to {VARIANTS_LIMIT}")
        variants = [
            self._variant(base, name, self._table(entry, f"variant {brief(name)}"))
            for name, entry in table.items()
        ]
        best = min(variants, key=lambda v: (not v.on_cpu or bool(v.only_there), _EXACT.index(v.precision)))
        title = manifest.get("package_name") or self.root.name
        bundle = None if self.stored is None else self._bundle(variants)
        return ModelPackage(str(title)[:80], self._digests.hexdigest(), variants, best.name, bundle)

    def refuse(self, reason: str) -> NoReturn:
        raise ModelError(f"{self.root.name}: is not a model package that EdgeKit can open: {reason}")

    # --- the manifest ------------------------------------------------------------------------------------

    def _component(self, components: Json) -> tuple[Path, dict[str, Json]]:
        """Return the folder and the table of the only component, which is in the manifest or in a file."""
        names = components if isinstance(components, (dict, list)) else []
        if len(names) != 1:
            shown = ", ".join(brief(name) for name in list(names)[:5])
            self.refuse(f"it has {len(names)} components ({shown}); EdgeKit reads packages of one")
        (name,) = names
        if isinstance(components, list):
            file = self._inside(self.root, f"models/{name}/{METADATA}")
            return file.parent, self._table(self._json(file), METADATA)
        entry = components[name]
        if isinstance(entry, dict):
            return self.root, entry
        file = self._inside(self.root, entry)
        file = file / COMPONENT if file.is_dir() else file
        return file.parent, self._table(self._json(file), COMPONENT)

    def _variant(self, base: Path, name: str, entry: dict[str, Json]) -> PackagedVariant:
        place = f"variant {brief(name)}"
        if unknown := sorted(set(entry) - _VARIANT_KEYS):
            self.refuse(f"{place}: unknown key {brief(unknown[0])}")
        provider, device = entry.get("ep", CPU), entry.get("device") or ""
        if not isinstance(provider, str) or not isinstance(device, str):
            self.refuse(f"{place}: ep and device must be texts")
        folder = self._inside(base, entry.get("variant_directory", name))
        slots = self._table(entry.get("executor_info") or {}, f"{place}: executor_info")
        ort = self._slot(folder, slots.get("ort"), place) or {"model_file": self._genai_file(folder, place)}
        if unknown := sorted(set(ort) - {"model_file", "session_options", "provider_options"}):
            self.refuse(f"{place}: executor_info.ort has the unknown key {brief(unknown[0])}")
        given = self._table(ort.get("session_options") or {}, f"{place}: session_options")
        weights = given.pop(WEIGHTS_FOLDER, None)
        options = self._session_options(given, place)
        model = self._inside(folder, ort.get("model_file"))
        content = self._content(model)
        try:
            proto = onnx.ModelProto.FromString(content)
        except DecodeError:
            self.refuse(f"{place}: {model.name} is not an ONNX model")
        beside = self._inside(folder, weights) if weights is not None else model.parent
        files = {MODEL_FILE: content}
        for location in external_files(proto):
            if location == MODEL_FILE:
                self.refuse(f"{place}: its weights are in a file called {MODEL_FILE}; rename that")
            files[str(location)] = self._content(self._inside(beside, location))
        precision, only_there = _kind_of(proto)
        settings: dict[str, Json] = {"precision": "fp32" if precision in ("fp32", "fp16") else "int8"}
        settings |= {SESSION_OPTIONS: options}
        settings[PROVIDER] = {"ep": provider, "device": device} if device else {"ep": provider}
        return PackagedVariant(name, files, settings, precision, provider, provider == CPU, only_there)

    def _session_options(self, given: Mapping[str, Json], place: str) -> dict[str, str]:
        options = {}
        for key, value in given.items():
            if not isinstance(value, str) or len(value) > VALUE_LIMIT_CHARS:
                self.refuse(f"{place}: session option {brief(key)} is not a short text")
            if key in THREADS:
                if not (value.isascii() and value.isdigit() and int(value[:9]) <= THREADS_LIMIT):
                    self.refuse(f"{place}: {key} is {brief(value)}; at most {THREADS_LIMIT} threads")
            elif key in ALLOWED_SESSION_OPTIONS:
                options[key] = value
            else:
                self.refuse(f"{place}: session option {brief(key)} is not one that EdgeKit allows")
        return options

    def _slot(self, folder: Path, slot: Json, place: str) -> dict[str, Json] | None:
        """Return an entry of ``executor_info``, which may be in a file of the variant's folder."""
        if slot is None:
            return None
        if isinstance(slot, str):
            slot = self._json(self._inside(folder, slot))
        return self._table(slot, f"{place}: executor_info")

    def _genai_file(self, folder: Path, place: str) -> str:
        """Return the name of the graph in the configuration of onnxruntime-genai."""
        file = next((folder / name for name in GENAI_CONFIGS if os.path.lexists(folder / name)), None)
        if file is None:
            self.refuse(f"{place}: it names no file: it has neither executor_info.ort nor {GENAI_CONFIGS[0]}")
        model = self._table(self._table(self._json(file), file.name).get("model"), file.name)
        names = {role: entry["filename"] for role, entry in model.items()
                 if isinstance(entry, dict) and "filename" in entry}  # fmt: skip
        if len(names) != 1:
            self.refuse(f"{place}: {file.name} names {len(names)} graphs; EdgeKit reads variants of one")
        return str(next(iter(names.values())))

    def _bundle(self, variants: Sequence[PackagedVariant]) -> tuple[dict[str, Json], dict[str, bytes]]:
        """Return manifest and entries of the bundle that EdgeKit wrote the package from. Each variant must be
        there as it was verified: with these files, session options and this provider."""
        folder = self._inside(self.root, self.ours["bundle"])
        manifest = self._table(self._json(folder / BUNDLE), BUNDLE)
        beside = folder / ENTRIES
        entries = {
            file.relative_to(beside).as_posix(): self._content(file)
            for file in (self._files(beside) if beside.is_dir() else ())
        }
        present = {variant.name: variant for variant in variants}
        try:
            list_of(VARIANT, VARIANTS_LIMIT)(manifest["variants"], "variants")
            for stored in [entry for entry in manifest["variants"] if entry["files"]]:
                variant = present.pop(stored["name"])
                expected = package_session_options(stored["options"]), place_of(stored["options"])
                if expected != (variant.options[SESSION_OPTIONS], variant.options[PROVIDER]):
                    self.refuse(
                        f"variant {brief(variant.name)}: its options are not those it was verified with"
                    )
                for file, entry in stored["files"].items():
                    whole = partial(self._engine_file, variant)
                    content = part_content(stored["options"].get(JOINED, {}), file, whole)
                    if content is None:
                        content = whole(file)
                    if file == MODEL_FILE and WEIGHTS in variant.files:
                        content = with_weights_inside(content, {WEIGHTS: variant.files[WEIGHTS]})
                    entries[entry] = content
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            self.refuse(f"{BUNDLE} does not fit the package: {type(problem).__name__} {problem}")
        if present:
            self.refuse(f"variant {brief(next(iter(present)))} is not in {BUNDLE}")
        return manifest, entries

    def _engine_file(self, variant: PackagedVariant, file: str) -> bytes:
        """Return what ONNX Runtime opens, or a further file of the variant's folder."""
        if file in variant.files:
            return variant.files[file]
        return self._content(self._inside(self.root, f"{variant.name}/{file}"))

    # --- files -------------------------------------------------------------------------------------------

    def _table(self, value: Json, place: str) -> dict[str, Json]:
        if not isinstance(value, dict):
            self.refuse(f"{place} is {brief(value)}, not an object")
        return value

    def _json(self, file: Path) -> Json:
        try:
            return strict_json.decode(self._content(file, JSON_LIMIT_BYTES), file.name, JSON_LIMIT_BYTES)
        except JsonError as problem:
            self.refuse(str(problem))

    def _content(self, file: Path, limit_bytes: int = FILE_LIMIT_BYTES) -> bytes:
        """Read a file that ``_inside`` returned, once, and compare it with the digest that EdgeKit stored."""
        if file in self._read:  # weights that variants share
            return self._read[file][0]
        name = file.relative_to(self.root).as_posix()
        try:
            content = read_plain(file, limit_bytes, follow_links=False)
        except OSError as problem:
            self.refuse(f"{name} can't be read: {problem.strerror or problem}")
        digest = hashlib.sha256(content).hexdigest()
        if name != MANIFEST and self.stored is not None and self.stored.get(name) != digest:
            known = name in self.stored
            state = "has changed since it was written" if known else "is not in EdgeKit's list of files"
            self.refuse(f"{name} {state}; copy or export the package again")
        self._digests.update(f"{digest}  {name}\n".encode())
        self._read[file] = content, digest
        return content

    def _inside(self, base: Path, reference: Json) -> Path:
        """Return the place of a relative path or ``sha256:`` URI, which may not leave the package."""
        if not isinstance(reference, str) or not reference:
            self.refuse(f"a path is {brief(reference)}, not a text")
        if uri := _URI.fullmatch(reference):
            base, rest = self._asset(uri[1]), uri[2] or "."
        else:
            rest = reference
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        if rest.startswith("/") or ".." in parts or any(c in rest for c in "\\:\0"):
            self.refuse(f"{brief(reference)} is not a path inside the package")
        place = base
        for part in parts:
            place /= part
            if os.path.islink(place):
                self.refuse(f"{place.relative_to(self.root)} is a link; copy the file there")
        return place

    def _asset(self, digest: str) -> Path:
        """Return the folder of a shared asset, once its hash is right."""
        if digest not in self._assets:
            uri = f"sha256:{digest}"
            places = self._table(self.manifest.get("shared_assets") or {}, "shared_assets")
            place = places.get(uri, f"shared_assets/sha256-{digest}")
            if isinstance(place, str) and _URI.fullmatch(place):
                self.refuse(f"shared asset {uri[:19]}... is in another asset, not in a folder")
            folder = self._inside(self.root, place)
            lines = ""
            for name, file in sorted((f.relative_to(folder).as_posix(), f) for f in self._files(folder)):
                self._content(file)
                lines += f"{self._read[file][1]}  {name}\n"
            if hashlib.sha256(lines.encode()).hexdigest() != digest:
                self.refuse(f"shared asset {uri[:19]}... has other content than its name says")
            self._assets[digest] = folder
        return self._assets[digest]

    def _files(self, folder: Path) -> Iterator[Path]:
        """Yield the regular files below a folder; anything else is refused."""
        count = 0
        for parent, folders, names in os.walk(folder):
            for name in (*folders, *names):
                count, path = count + 1, Path(parent, name)
                mode = os.lstat(path).st_mode
                if count > FILES_LIMIT:
                    self.refuse(f"{folder.name} has more than {FILES_LIMIT} files")
                if stat.S_ISREG(mode):
                    yield path
                elif not stat.S_ISDIR(mode):
                    self.refuse(f"{path.relative_to(self.root)} is not a regular file")


_EXACT = ("fp32", "fp16", "int8", "int4")
"""Precisions of graphs, the most exact first."""
_INT8_OPS = ("QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger", "DynamicQuantizeLinear")


def _kind_of(proto: onnx.ModelProto) -> tuple[str, str]:
    """Return the precision of a graph, and why it runs on one provider alone, or ""."""
    ops, types, graphs = set(), set(), [proto.graph]
    while graphs:
        graph = graphs.pop()
        ops |= {node.op_type for node in graph.node}
        types |= {tensor.data_type for tensor in graph.initializer}
        graphs += [inner for node in graph.node for inner in subgraphs_of(node)]
    only_there = "its graph is compiled for it (EPContext)" if "EPContext" in ops else ""
    if "MatMulNBits" in ops:
        return "int4", only_there
    if any(op in _INT8_OPS or op.startswith(("QLinear", "QGemm", "QAttention")) for op in ops):
        return "int8", only_there
    halves = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16}
    return "fp16" if types & halves else "fp32", only_there
