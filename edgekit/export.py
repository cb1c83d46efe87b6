"""Raw export: a variant's vendor files, for those who don't use our runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.durable import write_whole
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.bundle import Bundle


def export_variant(bundle: Bundle, name: str, folder: Path) -> list[Path]:
    """Write the files of the variant called ``name`` into ``folder``, which is made if absent.

    Raises:
        UsageError: no such variant, it was rejected, a file of that name is there already, or the folder
            can't be written to; nothing is written.
        BundleError: an entry is damaged; nothing is written.
    """
    variants = {variant.name: variant for variant in bundle.variants}
    if name not in variants:
        raise UsageError(f"the bundle has no variant {name!r}; there are {', '.join(variants)}")
    variant = variants[name]
    if not variant.files:
        raise UsageError(f"{name} is not in the bundle, it was {variant.status}")
    contents = {folder / file: bundle.read(entry) for file, entry in variant.files.items()}
    there = [str(path) for path in contents if path.exists()]
    if there:
        raise UsageError(f"{', '.join(there)} exists already; choose another folder. Nothing was written")
    written: list[Path] = []
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, [content])
            written.append(path)
    except OSError as problem:
        for path in written:
            path.unlink()
        raise UsageError(
            f"{folder} can't be written to: {problem.strerror}; choose another folder. Nothing was written"
        ) from None
    return written
