"""What a server knows of a version of a model, and the bundles of its repository."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.errors import EdgeKitError
from edgekit.runtime.store.health import Watched
from edgekit.serve.bundle_names import Key, bundles_by_name

if TYPE_CHECKING:
    from edgekit.processing.schedule import Schedule
    from edgekit.serve.served_model import Paths, ServedModel

READY, LOADING, UNAVAILABLE = "READY", "LOADING", "UNAVAILABLE"
"""States, as Triton's model repository extension names them."""


class Entry:
    """A version that is known, loaded or not."""

    def __init__(self, paths: Paths, pinned: bool) -> None:
        self.paths, self.pinned = paths, pinned
        self.state, self.reason = UNAVAILABLE, ""
        self.model: ServedModel | None = None
        self.left_by_memory = False
        self.size_bytes = sum(path.stat().st_size for path in paths if path.exists())
        self.used_s = 0.0
        self.schedule: Schedule | None = None

    @property
    def answers(self) -> bool:
        """Whether it can: it is loaded, or will be when it is asked for."""
        return self.model is not None or self.left_by_memory


class Candidate:
    """A version that is watched, and the one before it."""

    def __init__(self, version: str, before: str, now_s: float) -> None:
        self.version, self.before, self.looked_s = version, before, now_s
        self.watched = Watched(now_s)


def scanned(repository: Path, known: set[Path]) -> Mapping[Key, Paths]:
    """New bundles of a folder; one that is damaged, or still being copied, is left out."""
    whole: list[str] = []
    for path in sorted(repository.glob("*.edgekit")):
        if path in known:
            continue
        try:
            bundles_by_name([*whole, str(path)])
            whole.append(str(path))
        except EdgeKitError as problem:
            print(f"{path} is left out: {problem}", file=sys.stderr, flush=True)
    return bundles_by_name(whole)
