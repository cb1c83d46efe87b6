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


def export_deepstream(bundle: Bundle, name: str | None, folder: Path) -> tuple[list[Path], list[str]]:
    """Write a model and its configuration for Gst-nvinfer, whole or not at all.

    Args:
        name: Variant. None: the only one that DeepStream runs.

    Returns:
        The files, and notes for people.

    Raises:
        UsageError: DeepStream runs no such variant, it can't do what the card says, the folder is not empty,
            or it can't be written to.
        BundleError: an entry is damaged.
    """
    modules = {v.name: module for v in bundle.variants if v.usable and (module := _module(v.target))}
    if not modules:
        raise UsageError(
            f"{bundle.name} has no variant for TensorRT, which DeepStream runs; build it with -t tensorrt"
        )
    if name is None and len(modules) > 1:
        raise UsageError(f"--deepstream writes one variant; give {' or '.join(modules)}")
    name = name or next(iter(modules))
    if name not in modules:
        raise UsageError(f"DeepStream does not run {name}; it runs {', '.join(modules)}")
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
