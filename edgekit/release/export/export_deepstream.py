"""A detector for NVIDIA DeepStream: ``edgekit export BUNDLE VARIANT --deepstream DIR``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle.joined_files import engine_files, read
from edgekit.errors import ProfileError, UsageError
from edgekit.processing.card import parse_card
from edgekit.release.export.export import export_title
from edgekit.system.atomic_files import new_folder
from edgekit.target import registry
from edgekit.target.shapes import largest_files

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle


def export_deepstream(bundle: Bundle, name: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Write a model and its configuration for Gst-nvinfer, whole or not at all.

    Returns:
        The files, and notes for people.

    Raises:
        UsageError: DeepStream runs no such variant, it can't do what the card says, the folder is not empty,
            or it can't be written to.
        BundleError: an entry is damaged.
    """
    modules = {v.name: module for v in bundle.variants if v.usable and (module := _module(v.target))}
    if name not in modules:
        known = f"give {' or '.join(modules)}" if modules else "build one with -t tensorrt"
        raise UsageError(f"DeepStream runs variants for TensorRT, not {name}; {known}")
    if bundle.card is None:
        raise UsageError("the bundle has no card, which --deepstream needs; build it with --card")
    variant = bundle[name]
    files = {
        file: read(bundle, variant, file) for file in largest_files(dict.fromkeys(engine_files(variant)))
    }
    title = export_title(bundle.manifest["source"]["file"], name)
    target: Any = import_module(modules[name])
    written, notes = target.deepstream_files(files, variant.options, parse_card(bundle.card), title)
    with new_folder(folder) as draft:
        for file, content in written.items():
            (draft / file).write_bytes(content)
    return [folder / file for file in written], notes


def _module(target: str) -> str:
    try:
        return registry.compiler(target).TARGET.deepstream
    except (ModuleNotFoundError, ProfileError):  # a variant of a target that only the building machine has
        return ""
