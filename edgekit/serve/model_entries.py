"""State of a model's version in a server, and the bundles of its repository."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import EdgeKitError
from edgekit.processing.schedule import Schedule
from edgekit.runtime.store.health import WatchedBundle
from edgekit.serve.bundle_names import Key, bundles_by_name
from edgekit.serve.served_model import Paths, ServedModel
from edgekit.serve.served_text import ServedText

READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"
"""States, as Triton's model repository extension names them."""


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
