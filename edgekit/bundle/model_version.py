"""The version of a model in its bundle: a whole number that rises with each release, ``extensions.version``.

It is in the manifest, which the bundle's signature covers; a store uses it against old bundles.
"""

from __future__ import annotations

from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError, UsageError

KEY = "version"
LIMIT = 1 << 63


def model_version(bundle: Bundle) -> int | None:
    """Return the version in a bundle; None if it has none.

    Raises:
        BundleError: it is not a whole number of 0 or more.
    """
    version = (bundle.manifest.get("extensions") or {}).get(KEY)
    if version is not None and not is_version(version):
        raise BundleError(
            f"{bundle.name}: extensions.version of its manifest is not a whole number of 0 or more\n"
            "  nothing has changed; build it again"
        )
    return None if version is None else int(version)


def with_version(bundle: Bundle, version: int) -> Bundle:
    """Return the same bundle, in memory, with a version; its digest is another.

    Raises:
        UsageError: the version is not a whole number of 0 or more.
        BundleError: an entry is damaged.
    """
    if not is_version(version):
        raise UsageError(f"a version must be a whole number of 0 or more, not {version!r}")
    extensions = {**(bundle.manifest.get("extensions") or {}), KEY: version}
    entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in bundle.manifest["entries"]}
    return Bundle.create({**bundle.manifest, "extensions": extensions}, entries)


def is_version(value: object) -> bool:
    """Return whether it is a whole number of 0 or more."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT
