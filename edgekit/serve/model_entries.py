"""State of a model's version in a server, the bundles of its repository, and their names in URLs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.model_version import model_version
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.schedule import Schedule
from edgekit.runtime.store.health import WatchedBundle
from edgekit.serve.served_model import Paths, ServedModel
from edgekit.serve.served_text import ServedText

READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"
"""States, as Triton's model repository extension names them."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Name of a model in a URL."""
Key = tuple[str, str]
"""A model's name and version."""


class Entry:
    """Known version of a model, loaded or not."""

    def __init__(self, paths: Paths, pinned: bool) -> None:
        self.paths, self.pinned = paths, pinned
        self.state, self.reason = UNAVAILABLE, ""
        self.model: ServedModel | ServedText | None = None
        self.left_by_memory = False
        self.size_bytes = sum(path.stat().st_size for path in paths if path.exists())
        self.used_s = 0.0
        self.schedule: Schedule | None = None

    @property
    def answers(self) -> bool:
        """Return whether it can answer: it is loaded, or is loaded on request."""
        return self.model is not None or self.left_by_memory


class Candidate:
    """Candidate version under observation, and the version before it."""

    def __init__(self, version: str, before: str, now_s: float) -> None:
        self.version, self.before, self.looked_s = version, before, now_s
        self.watched = WatchedBundle(now_s)


def scanned(repository: Path, paths: set[Path]) -> Mapping[Key, Paths]:
    """Return the new bundles of a folder; skip those that are damaged or still being copied."""
    whole: list[str] = []
    for path in sorted(repository.glob("*.edgekit")):
        if path in paths:
            continue
        try:
            bundles_by_name([*whole, str(path)])
            whole.append(str(path))
        except EdgeKitError as problem:
            print(f"{path} is left out: {problem}", file=sys.stderr, flush=True)
    return bundles_by_name(whole)


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
