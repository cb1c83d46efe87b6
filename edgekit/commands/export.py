"""Raw export: a variant's engine files, for use without EdgeKit's runtime."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from edgekit.bundle.bundle import Bundle
    from edgekit.bundle.variant import Variant


def export_variant(bundle: Bundle, name: str, folder: Path, *, app: bool = False) -> list[Path]:
    """Write the files of the variant called ``name`` into ``folder``, which is made if absent.

    ``app``: with what the card says inside, for an app without our runtime; coreml and tflite have it.

    Raises:
        UsageError: no such variant, it was rejected, a file of that name is there already, the folder can't
            be written to, or there is no such form; nothing is written.
        BundleError: an entry is damaged; nothing is written.
    """
    variants = {variant.name: variant for variant in bundle.variants}
    if name not in variants:
        raise UsageError(f"unknown variant {name!r}; available: {', '.join(variants)}")
    variant = variants[name]
    if not variant.files:
        raise UsageError(f"{name} has no files in the bundle: {variant.status}")
    files = {file: bytes(bundle.read(entry)) for file, entry in variant.files.items()}
    if app:
        files = _for_apps(bundle, variant, files)
    contents = {folder / file: content for file, content in files.items()}
    there = [str(path) for path in contents if path.exists()]
    if there:
        raise UsageError(f"{', '.join(there)} already exists; choose another folder. Nothing was written")
    made = not folder.exists()
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, [content])
            written.append(path)
    except OSError as problem:
        for path in written:
            path.unlink()
        if made:
            shutil.rmtree(folder, ignore_errors=True)
        raise UsageError(
            f"can't write to {folder}: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
    return written


def _for_apps(bundle: Bundle, variant: Variant, files: dict[str, bytes]) -> dict[str, bytes]:
    """What the target's ``app_files`` makes of them."""
    from edgekit.cards.card import parse_card
    from edgekit.target import registry

    make = registry.compiler(variant.target).TARGET.app_files
    if make is None:
        raise UsageError(f"{variant.target} has no app export; export {variant.name} without --app")
    if bundle.card is None:
        raise UsageError("the bundle has no card, which --app needs; build it with --card")
    return make(files, variant.options, parse_card(bundle.card), bundle.outputs)
