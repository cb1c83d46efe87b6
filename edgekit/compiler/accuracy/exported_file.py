"""An engine's own file, such as OpenVINO's ``.xml``, as a bundle of one variant that was not verified."""

from __future__ import annotations

import hashlib
import os
from importlib import import_module
from pathlib import Path
from typing import cast

from edgekit.bundle import card_files
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.errors import ModelError, UsageError
from edgekit.processing.card import Card, load_card
from edgekit.target import registry
from edgekit.target.contract import ExportedFile
from edgekit.tensor_spec import Content

NOT_ONNX = {"opset": 1, "nodes": 0}
"""Figures of a source model that the format of bundles requires."""


def exported_bundle(
    model: str | os.PathLike[str], card: Card | str | os.PathLike[str], engine: str | None
) -> Bundle | None:
    """Return the bundle of a file that a target's engine runs as it is; None if it is imported instead.

    Raises:
        UsageError: it is a file of another engine.
        ModelError: it can't be read.
        CardError: the card does not describe it.
    """
    path = Path(model)
    for target in registry.target_names():
        module = registry.engine(target).ENGINE.exported.get(path.suffix.lower())
        if module and path.exists():
            if engine not in (None, target):
                raise UsageError(f"{path} is a file of {target}, not of {engine}; leave --engine out")
            exported = cast(ExportedFile, import_module(module).read_exported(path))
            return _bundle_of(exported, path, card if isinstance(card, Card) else load_card(card), target)
    return None


def _bundle_of(exported: ExportedFile, path: Path, card: Card, target: str) -> Bundle:
    card.check(exported.inputs, exported.outputs)
    try:
        contents = {file: place.read_bytes() for file, place in exported.files.items()}
    except OSError as problem:
        raise ModelError(f"{path} can't be read: {problem.strerror}") from None
    digest = hashlib.sha256()
    for content in contents.values():
        digest.update(content)
    entries: dict[str, Content] = {
        f"artifacts/{target}/{file}": content for file, content in contents.items()
    }
    files = {file: f"artifacts/{target}/{file}" for file in contents}
    entries |= {card_files.entry_of(name): content for name, content in card.files.items()}
    variant = Variant(path.name, target, target, "fp32", files, exported.options)
    manifest = {
        "source": {"file": path.name, "sha256": digest.hexdigest(), **NOT_ONNX},
        "inputs": [spec.as_json() for spec in exported.inputs],
        "outputs": [spec.as_json() for spec in exported.outputs],
        "card": card.as_json(),
        "variants": [variant.as_json()],
    }
    return Bundle.create(manifest, entries)
