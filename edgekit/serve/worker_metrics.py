"""Metrics of several worker processes as one: each writes its own to a folder, whoever is asked adds them up.

A counter must not fall when a worker dies and is started again, so what a process wrote stays until the
server ends.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.tensors import Json

EVERY_S = 1.0
"""A worker's numbers are so old at most."""
SAME = ("model", "version", "variant", "engine", "device", "precision")


class WorkerMetrics:
    """The metrics that the workers share.

    Args:
        folder: Theirs alone; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = folder / f"{os.getpid()}-{os.urandom(4).hex()}.json"

    def write(self, snapshots: Sequence[Mapping[str, Json]]) -> None:
        """Store this process's metrics; on a full disk they stay as old as they are."""
        draft = self._own.with_suffix(".part")
        try:
            draft.write_text(json.dumps(snapshots), "utf-8")
            os.replace(draft, self._own)
        except OSError:
            return

    def with_others(self, snapshots: Sequence[dict[str, Json]]) -> list[dict[str, Any]]:
        """This process's metrics and those that the others wrote, added up."""
        found: list[dict[str, Any]] = list(snapshots)
        for path in sorted(self._folder.glob("*.json")):
            if path != self._own:
                try:
                    found += json.loads(path.read_text("utf-8"))
                except (OSError, ValueError):
                    continue
        return added(found)


def added(snapshots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Snapshots of the same variant of a model as one.

    >>> one = {**dict.fromkeys(SAME, "same"), "stages": [], "fallbacks": [], "outcomes": {"ok": 2}}
    >>> added([one, {**one, "outcomes": {"ok": 1, "failed": 1}}])[0]["outcomes"]
    {'ok': 3, 'failed': 1}
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for snapshot in snapshots:
        key = tuple(snapshot[name] for name in SAME)
        whole = found.setdefault(key, {**snapshot, "stages": [], "outcomes": {}, "fallbacks": []})
        for outcome, count in snapshot["outcomes"].items():
            whole["outcomes"][outcome] = whole["outcomes"].get(outcome, 0) + count
        _add(whole["stages"], snapshot["stages"], ("stage", "engine"))
        _add(whole["fallbacks"], snapshot["fallbacks"], ("from", "to", "reason"))
    return list(found.values())


def _add(whole: list[dict[str, Any]], more: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> None:
    for entry in more:
        same = [each for each in whole if all(each[name] == entry[name] for name in names)]
        if not same:
            whole.append(dict(entry))
            continue
        for name in ("count", "sum"):
            if name in entry:
                same[0][name] += entry[name]
        if "at_most" in entry:  # cumulative counts, of the same limits everywhere
            pairs = zip(same[0]["at_most"], entry["at_most"], strict=True)
            same[0]["at_most"] = [[limit, one + other] for (limit, one), (_, other) in pairs]
