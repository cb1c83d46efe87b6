"""Names of bundles in URLs, and pairs of bundles that are one model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import model_version
from edgekit.errors import UsageError
from edgekit.serve.served_model import Paths

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Name of a model in a URL."""
Key = tuple[str, str]
"""A model's name and version."""


def bundles_by_name(arguments: Sequence[str]) -> dict[tuple[str, str], Paths]:
    """Parse the bundles of a command line: ``PATH``, named as its file, or ``NAME=PATH``. Versions are those
    in the bundles (``edgekit build --bundle-version``), or 1. A file's name may end with the bundle's version
    or batch size: ``net-3.edgekit`` and ``net-8.edgekit`` are then bundles of ``net``. Two bundles with the
    same name and version are one model if one of them has a larger batch size.

    Raises:
        UsageError: a name is malformed, or two bundles have the same name and version.
        BundleError: a bundle can't be opened.
    """
    paths_by_key: dict[tuple[str, str], list[Path]] = {}
    sizes: dict[Path, tuple[str, int]] = {}
    for argument in arguments:
        before, equals, after = argument.partition("=")
        named = bool(equals) and not Path(argument).exists()
        path = Path(after if named else argument)
        with Bundle.open(path) as bundle:
            version = str(model_version(bundle) or 1)
            size = min((spec.shape[0] if spec.shape else 1 for spec in bundle.inputs), default=1)
            name = before if named else _name_of(path, version, size)
            sizes[path] = (str(bundle.manifest["source"]["sha256"]), size)
        if not NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} can't be a name in a URL (letters, digits, '.', '_', '-'): give NAME={path}"
            )
        paths = paths_by_key.setdefault((name, version), [])
        if paths and (len(paths) > 1 or not _batches(sizes[paths[0]], sizes[path])):
            raise UsageError(
                f"{paths[0]} and {path} are both {name} {version}; name one of them (NAME=PATH), "
                "or build it with --bundle-version"
            )
        paths.append(path)
        paths.sort(key=lambda file: sizes[file][1])
    return {key: tuple(paths) for key, paths in paths_by_key.items()}


def _name_of(path: Path, version: str, size: int) -> str:
    """Return the name of a file without its bundle's version or batch size, if it ends with one.

    >>> _name_of(Path("net-3.edgekit"), "3", 1), _name_of(Path("net-3.edgekit"), "2", 1)
    ('net', 'net-3')
    """
    name, dash, number = path.stem.rpartition("-")
    return name if dash and number in (version, str(size)) else path.stem


def _batches(one: tuple[str, int], other: tuple[str, int]) -> bool:
    """Return whether two bundles, by source and batch size, are one model for single and batched requests."""
    return one[0] == other[0] and min(one[1], other[1]) == 1 < max(one[1], other[1])
