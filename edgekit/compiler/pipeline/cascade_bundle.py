"""A cascade's bundle, made of the bundles of its stages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import CardError
from edgekit.processing.card import Card, parse_card
from edgekit.processing.cascade import read_stages, stage_name
from edgekit.system.formats.strict_tables import get, load_toml
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Content, Json

CASCADE_LIMIT_BYTES = 1 << 20


def build_cascade(path: str | os.PathLike[str]) -> Bundle:
    """Join the bundles of stages to one that a single ``Session`` runs.

    Each stage was built and verified on its own; its variants, evidence and golden vectors are in the result
    as they are.

    Args:
        path: A TOML file with ``[[stages]]`` (edgekit/processing/cascade.py); bundles are relative to its
            folder.

    Returns:
        The first stage's bundle, which holds those of the others.

    Raises:
        CardError: the file is malformed, or a stage's card does not fit its place.
        BundleError: a bundle can't be opened.
    """
    path = Path(path)
    table = load_toml(_text(path), str(path), CardError)
    for key in table:
        if key != "stages":
            raise CardError(f"{path} has an unknown key {key!r}; the only key is stages")
    entries = get(table, "stages", list, str(path))
    bundles = {}
    for number, entry in enumerate(entries):
        location = f"{path}: stages[{number}]"
        if not isinstance(entry, dict):
            raise CardError(f"{location} must be a table")
        name = stage_name(entry, location)
        bundle = Bundle.open(path.parent / get(entry, "bundle", str, location))
        if name in bundles:
            raise CardError(f"{path}: stages: two stages are called {name!r}")
        bundles[name] = bundle
    later = [{key: value for key, value in entry.items() if key != "bundle"} for entry in entries[1:]]
    stages = read_stages(later, f"{path}: stages")
    if entries[0].keys() - {"name", "bundle"}:
        odd = sorted(entries[0].keys() - {"name", "bundle"})[0]
        raise CardError(
            f"{path}: stages[0].{odd}: the first stage gets the whole frame, so it has name and bundle only"
        )
    for name, bundle in bundles.items():
        _card(bundle, f"{path}: stage {name}")
    first, *others = bundles.items()
    manifest, contents = _contents(first[1])
    members: dict[str, Json] = {}
    for name, bundle in others:
        content = b"".join(bytes(piece) for piece in bundle.pieces())
        entry_name = f"stages/{name}.edgekit"
        contents[entry_name] = content
        members[name] = {"entry": entry_name, "digest": bundle.digest}
    manifest["cascade"] = {"stages": [stage.as_json() for stage in stages], "bundles": members}
    return Bundle.create(manifest, contents)


def _contents(bundle: Bundle) -> tuple[dict[str, Any], dict[str, Content]]:
    """Return a bundle's manifest without the fields that depend on the file, and its entries."""
    manifest = {k: v for k, v in bundle.manifest.items() if k not in ("format", "version", "entries")}
    return manifest, {e["name"]: bytes(bundle.read(e["name"])) for e in bundle.manifest["entries"]}


def _card(bundle: Bundle, location: str) -> Card:
    if bundle.stages:
        raise CardError(f"{location}: {bundle.name} is a cascade; name the bundles of its stages instead")
    if bundle.card is None:
        raise CardError(f"{location}: {bundle.name} has no card; build it with --card")
    card = parse_card(bundle.card, bundle.inputs, bundle.outputs)
    card.image_input()
    if card.task is None:
        raise CardError(
            f"{location}: the card of {bundle.name} has no task; "
            "add a [task], since a cascade needs predictions"
        )
    return card


def _text(path: Path) -> str:
    try:
        return read_plain(path, CASCADE_LIMIT_BYTES).decode("utf-8")
    except FileNotFoundError:
        raise CardError(f"{path}: file not found") from None
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise CardError(f"{path} can't be read as a cascade: {reason}") from None
