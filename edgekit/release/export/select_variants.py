"""A bundle with some of a bundle's variants, for devices that need no others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from edgekit.bundle import draft_entry
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.kept_variants import kept_variants
from edgekit.errors import UsageError, suggestion


def select_variants(bundle: Bundle, names: Collection[str]) -> Bundle:
    """Return a bundle, in memory, with these variants and the files that they need; its digest is another.

    Evidence, card and golden vectors stay. A draft's variants stay for the targets that are left.

    Raises:
        UsageError: a name is not that of a variant with files.
        BundleError: an entry is damaged.
        NoVariantError: no variant has files.
    """
    known = [variant.name for variant in kept_variants(bundle)]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{bundle.name} has no variant {name!r} with files; it has: {', '.join(known)}"
                f"{suggestion(name, known)}"
            )
    every, extensions = bundle.manifest["variants"], dict(bundle.manifest.get("extensions") or {})
    chosen: list[dict[str, Any]] = [variant for variant in every if variant["name"] in names]
    all_files, files = _entries(every), _entries(chosen)
    draft = extensions.get(draft_entry.KEY)
    if draft:
        targets = {variant["target"] for variant in chosen}
        drafts = [variant for variant in draft["variants"] if variant["target"] in targets]
        all_files, files = all_files | _entries(draft["variants"]), files | _entries(drafts)
        extensions[draft_entry.KEY] = {**draft, "variants": drafts}
    content = [
        entry["name"] for entry in bundle.manifest["entries"] if entry["name"] not in all_files - files
    ]
    manifest = {**bundle.manifest, "variants": chosen}
    if extensions:
        manifest["extensions"] = extensions
    return Bundle.create(manifest, {name: bundle.read(name) for name in content})


def _entries(variants: Collection[dict[str, Any]]) -> set[str]:
    """Return the entries that the files of variants, and their own golden vectors, are stored in."""
    files = {entry for variant in variants for entry in variant["files"].values()}
    pairs = [pair for variant in variants for pair in variant.get("shrunk", {}).get("golden", ())]
    return files | {entry for pair in pairs for entry in pair.values()}
