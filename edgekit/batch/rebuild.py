"""Rebuild of a bundle by its manifest with today's tools; the result is kept if it is not worse.

The model and the samples are not in a bundle: they are given, and held to the hashes in the manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from edgekit.batch.compare_bundles import Change, compare_variants, other_tools
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import read_card_file
from edgekit.bundle.model_version import model_version, with_version
from edgekit.bundle.report import checked_evidence
from edgekit.compiler.evaluate.samples import load_samples
from edgekit.compiler.hub.address import HubAddress, is_hub_address
from edgekit.compiler.lowering.byte_input import BYTES
from edgekit.compiler.model.external_names import external_names
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.sandbox import public
from edgekit.errors import CrashError, EdgeKitError, UsageError, printable
from edgekit.processing.card import Card, load_card
from edgekit.processing.generation import is_generation
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import locked, private_folder
from edgekit.system.cache_folder import cache_folder
from edgekit.system.declared_options import declared
from edgekit.system.regular_file import read_plain, sha256_of
from edgekit.tensor_spec import Json

OTHERS = ("targets", "precision", "shapes", "io", "assumed_shapes", "no_int8")
"""Other options of the manifest: read one by one, or detected by the build."""


@dataclass(frozen=True)
class Rebuild:
    """Result of a rebuild.

    Attributes:
        tools: Changed package -> version before and after; "" if it was absent.
        size_bytes: Size of the file before and after, in bytes.
        is_written: Whether the new bundle was written.
    """

    bundle: Bundle
    changes: list[Change]
    tools: Mapping[str, tuple[str, str]]
    size_bytes: tuple[int, int]
    notes: list[str]
    is_written: bool

    @property
    def worse(self) -> list[str]:
        return [f"{change['variant']}: {reason}" for change in self.changes for reason in change["worse"]]

    @property
    def unproved(self) -> list[str]:
        """Return why it is not proved that the new bundle is not worse, if it is not."""
        return [f"{change['variant']}: {change['unproved']}" for change in self.changes if change["unproved"]]

    @property
    def same(self) -> bool:
        """Return whether all files that run are unchanged."""
        return all(change["same"] for change in self.changes)

    def as_json(self) -> dict[str, Json]:
        return {
            "kept": self.is_written,
            "same": self.same,
            "worse": list(self.worse),
            "unproved": list(self.unproved),
            "variants": [dict(change) for change in self.changes],
            "tools": {name: list(pair) for name, pair in self.tools.items()},
            "size_bytes": list(self.size_bytes),
            "notes": list(self.notes),
        }


def rebuild(
    path: Path,
    output: Path | None = None,
    *,
    tools: Path | None = None,
    seconds: float = 10.0,
    **overrides: Any,
) -> Rebuild:
    """Build again, compare, and write the new bundle if no variant is worse.

    Args:
        output: Path of the new bundle. None means that the old one is replaced.
        tools: A requirements file, as pip takes it: the build runs with these, installed in a
            folder of their own. None means what is installed here.
        seconds: For timing each variant against the old one.
        overrides: Arguments of the build that a bundle does not hold: ``model``, by default the file next to
            the bundle with the name in the manifest, or the commit of the hub that it names; ``samples``, if
            it was built on some; ``card``, if not the one in the bundle; ``trust_pickle`` and ``trusted``, as
            for the build.

    Raises:
        UsageError: the model or the samples are not those that it was built from, or it is of a kind that
            can't be built again.
        BundleError: it is damaged.
        EdgeKitError: the build failed.
        OSError: a file can't be read or written.
    """
    with Bundle.open(path) as old:
        old.verify_entries()
        with checked_evidence(old.name):
            arguments = recipe(old, path, overrides)
            _need_same_model(old, arguments["model"])
            _need_same_files(old, arguments)
            new_bundle = _built(old, path, tools, arguments)
            version = model_version(old)
            if version is not None:
                new_bundle = with_version(new_bundle, version + 1)
            changes = compare_variants(old, new_bundle, seconds)
            changed = other_tools(old.manifest, new_bundle.manifest)
        size = path.stat().st_size
        worse = any(change["worse"] or change["unproved"] for change in changes)
        same = all(change["same"] for change in changes) and not changed
        notes = _notes(old, path, version)
    is_saved = not worse and not (same and output is None)
    with TemporaryDirectory(prefix="edgekit-") as folder:
        new_size = new_bundle.save(Path(folder) / "made.edgekit").stat().st_size
    if is_saved:
        new_bundle.save(output or path)
    return Rebuild(new_bundle, changes, changed, (size, new_size), notes if is_saved else [], is_saved)


def recipe(old: Bundle, path: Path, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return what to build, as arguments of ``edgekit.build``; the card is the bundle's if none is given."""
    manifest = old.manifest
    joined = manifest.get("cascade") or any(v.target == "deferral" for v in old.variants)
    if joined or is_generation(old.card):
        kind = "a language model" if is_generation(old.card) else "made of several models"
        raise UsageError(f"{old.name} is {kind}; build it again with the command that made it")
    options, source = manifest["options"], manifest["source"]
    model = overrides.get("model") or _pinned(source.get("repository"))
    if model is None:
        model = path.parent / Path(source["file"]).name  # whoever made the bundle says no folder
    if isinstance(model, Path) and not model.exists():
        raise UsageError(f"{model}, which {old.name} was built from, does not exist; add --source")
    stored = [field.name for field in declared(BuildRequest) if field.option.stored]
    unknown = sorted(options.keys() - {*stored, *OTHERS})
    if unknown:
        raise UsageError(
            f"{old.name} was built with {', '.join(map(printable, unknown))}, which this EdgeKit does not "
            "know; rebuild it with the version that built it, or a newer one"
        )
    io: dict[str, str] = dict(options.get("io", {}))
    if BYTES in io.values() and overrides.get("card") is None:
        raise UsageError(
            f"{old.name} takes bytes, so its stored card was changed; pass the card of the build: --card"
        )
    origin = manifest["samples"]["origin"]
    if overrides.get("samples") is None and "random" not in origin:
        raise UsageError(f"{old.name} was built with {origin}; pass them with --samples")
    shapes = {name: shape for name, shape in options["shapes"].items() if io.get(name) != BYTES}
    return {
        **{name: os.fspath(value) if isinstance(value, Path) else value for name, value in overrides.items()},
        "model": str(model),
        "targets": list(options["targets"]),
        "precision": options["precision"],
        "shapes": shapes,
        "io": io or None,
        **{name: options[name] for name in stored if options.get(name) is not None},
    }


def _pinned(repository: Json) -> HubAddress | None:
    """Return the address of a commit that a manifest names; None if it names none."""
    address = HubAddress(repository) if is_hub_address(repository) else None
    return address if address is not None and address.is_pinned else None


def build_here(bundle: Path, arguments: Mapping[str, Any]) -> Bundle:
    """``edgekit.build`` with the arguments of :func:`recipe`."""
    with Bundle.open(bundle) as old:
        card: Card | str | None = arguments.get("card")
        if card is None and old.card is not None:
            card = _card_of(old)
    return public.build(**{**arguments, "card": card})


def _need_same_model(old: Bundle, model: str) -> None:
    """Check the model's file before any work. A folder, an address, and a file whose weights may be in others
    are checked when the build has read them.
    """
    path = Path(model)
    if is_hub_address(model) or not path.is_file() or external_names(path):
        return
    _need_digest(old, model, sha256_of(path))


def _need_digest(old: Bundle, model: str, actual: str) -> None:
    expected = old.manifest["source"]["sha256"]
    if expected != actual:
        raise UsageError(
            f"{model} is another model than the one that {old.name} was built from: sha256 {actual[:16]}... "
            f"instead of {expected[:16]}...; use edgekit build for a new model"
        )


def _need_same_files(old: Bundle, arguments: Mapping[str, Any]) -> None:
    """Check the samples before any work, unless the stored card is not the user's."""
    samples = arguments.get("samples")
    if samples is None or BYTES in (arguments["io"] or {}).values():
        return
    card = arguments.get("card")
    card = _card_of(old) if card is None and old.card is not None else card
    card = load_card(card) if isinstance(card, str | Path) else card
    _need_samples(old, load_samples(samples, old.inputs, card, old.manifest["samples"]["count"]).as_json())


def _built(old: Bundle, path: Path, tools: Path | None, arguments: Mapping[str, Any]) -> Bundle:
    bundle = build_here(path, arguments) if tools is None else _built_with(tools, path, arguments)
    _need_digest(old, arguments["model"], bundle.manifest["source"]["sha256"])
    _need_samples(old, bundle.manifest["samples"])
    return bundle


def _built_with(tools: Path, path: Path, arguments: Mapping[str, Any]) -> Bundle:
    environment = installed_tools(tools)
    with TemporaryDirectory(prefix="edgekit-") as folder:
        bundle_path = Path(folder) / "made.edgekit"
        request = json.dumps(
            {"bundle": str(path.absolute()), "output": str(bundle_path), "arguments": dict(arguments)}
        )
        command = [sys.executable, "-m", "edgekit.batch.build_elsewhere"]
        ended = subprocess.run(
            command, input=request, env=environment, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            last = (ended.stderr.strip() or f"its process exited with code {ended.returncode}").splitlines()
            kind = CrashError if ended.returncode < 0 else EdgeKitError
            raise kind("\n  ".join([f"the build with {tools} failed", *last[-8:]]))
        with Bundle.open(bundle_path) as built:
            entries = {entry["name"]: bytes(built.read(entry["name"])) for entry in built.manifest["entries"]}
            return Bundle.create(built.manifest, entries)


def _card_of(old: Bundle) -> Card:
    from edgekit.processing.card import parse_card

    assert old.card is not None
    return parse_card(old.card, location=old.name, files=lambda name: read_card_file(old, name))


def _need_samples(old: Bundle, samples: Mapping[str, Json]) -> None:
    before = old.manifest["samples"]
    if before.get("sha256") != samples.get("sha256"):
        origins = samples.get("origin", ""), before.get("origin", "those")
        difference = f"{origins[0]}, not {origins[1]} of its build"
        if origins[0] == origins[1]:
            difference = f"{origins[0]}, as for its build, but with other contents"
        raise UsageError(
            f"these are other samples than those of {old.name}: {difference}; pass the same, so that figures "
            "can be compared"
        )


def _notes(old: Bundle, path: Path, version: int | None) -> list[str]:
    notes = [] if version is None else [f"version {version} became {version + 1}"]
    if signature_path(path).exists():
        notes.append(
            f"{signature_path(path)} belongs to the old bundle; sign the new one with edgekit release sign"
        )
    if old.manifest.get("extensions", {}).keys() - {"version", "source_names"}:
        names = sorted(old.manifest["extensions"].keys() - {"version", "source_names"})
        notes.append(f"not copied, because they were measured with the old files: {', '.join(names)}")
    return notes


LOCK_SECONDS = 1800.0
"""Another rebuild may be installing the same."""
REQUIREMENTS_BYTES = 1 << 20


def installed_tools(requirements: Path) -> dict[str, str]:
    """Return environment variables for a process that imports the packages of a requirements file first.

    They are installed once for each content of the file, into the cache folder.
    """
    try:
        content = read_plain(requirements, REQUIREMENTS_BYTES)
    except OSError as problem:
        raise UsageError(
            f"{requirements} can't be read: {problem.strerror}; give a requirements file, as pip takes it"
        ) from None
    digest = hashlib.sha256(f"{sys.version}\n{sys.executable}\n".encode() + content).hexdigest()
    folder = cache_folder() / "tools" / digest[:32]
    private_folder(folder.parent)
    with locked(folder.with_suffix(".lock"), LOCK_SECONDS):
        if not folder.exists():
            _install(requirements, folder)
    search = os.pathsep.join([str(folder), *(os.path.abspath(entry) for entry in sys.path if entry)])
    return {**os.environ, "PYTHONPATH": search}


def _install(requirements: Path, folder: Path) -> None:
    draft = folder.with_suffix(".part")
    shutil.rmtree(draft, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [*pip, "--target", str(draft), "-r", str(requirements.absolute())]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        last = (ended.stderr.strip() or ended.stdout.strip()).splitlines()[-3:]
        raise UsageError("\n  ".join([f"pip can't install {requirements}", *last]))
    os.replace(draft, folder)
