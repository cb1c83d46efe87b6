"""Metrics of several worker processes as one: each writes its own to a folder, whoever is asked adds them up.

A counter must not fall when a worker dies and is started again, so what a process wrote is kept until the
server ends; who is started adds what the dead ones wrote to one file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.runtime.metrics.histogram import merged
from edgekit.system.atomic_files import locked

if TYPE_CHECKING:
    from edgekit.tensor_spec import Json

LOCK, LOCK_S = "metrics.lock", 5.0
EVERY_S = 1.0
"""A worker's numbers are so old at most."""
SUMS = ("deferrals", "texts")
"""Counts that only some models have."""
SAME = ("model", "version", "variant", "engine", "device", "precision")


class WorkerMetrics:
    """The metrics that the workers share.

    Args:
        folder: Theirs alone; it exists.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{os.getpid()}-{os.urandom(4).hex()}.json"
        with suppress(OSError), locked(folder / LOCK, LOCK_S):
            self._gather_dead()

    def _gather_dead(self) -> None:
        dead = [path for path in self._folder.glob("*-*.json") if _is_dead(path)]
        if dead:
            ended = self._folder / "ended.json"
            _write(ended, added([snapshot for path in (ended, *dead) for snapshot in _read(path)]))
            for path in dead:
                path.unlink()

    def write(self, snapshots: Sequence[Mapping[str, Json]]) -> None:
        """Store this process's metrics; on a full disk they stay as old as they are."""
        with suppress(OSError):
            _write(self._path, snapshots)

    def with_others(self, snapshots: Sequence[dict[str, Json]]) -> list[dict[str, Any]]:
        """Return the sums of this process's metrics and of those that the other processes wrote."""
        all_snapshots: list[dict[str, Any]] = list(snapshots)
        with ExitStack() as stack:
            with suppress(OSError):  # else what moves to another file may count twice
                stack.enter_context(locked(self._folder / LOCK, LOCK_S))
            for path in sorted(self._folder.glob("*.json")):
                if path != self._path:
                    all_snapshots += _read(path)
        return added(all_snapshots)


def _is_dead(path: Path) -> bool:
    """Return whether a file's writer has ended, by the process id in the file's name."""
    if os.name != "posix":  # elsewhere os.kill ends a process
        return False
    try:
        os.kill(int(path.name.partition("-")[0]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError):
        return False
    return False


def _read(path: Path) -> list[dict[str, Any]]:
    try:
        snapshots: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return snapshots


def _write(path: Path, snapshots: Sequence[Mapping[str, Any]]) -> None:
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(snapshots), "utf-8")
    os.replace(draft, path)


def added(snapshots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add up the snapshots of each model. The first of a model has the sums: its series have no label for the
    variant. A further variant that another worker runs has no counts.

    >>> one = {**dict.fromkeys(SAME, "same"), "stages": [], "fallbacks": [], "outcomes": {"ok": 2}}
    >>> other = {**one, "variant": "other", "outcomes": {"ok": 1, "failed": 1}}
    >>> [(each["variant"], each["outcomes"]) for each in added([one, other, one])]
    [('same', {'ok': 5, 'failed': 1}), ('other', {})]
    """
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    sums: dict[tuple[Any, ...], dict[str, Any]] = {}
    for snapshot in snapshots:
        empty = {**snapshot, "stages": [], "outcomes": {}, "fallbacks": []}
        for name in SUMS:
            empty.pop(name, None)
        variant = merged.setdefault(tuple(snapshot[name] for name in SAME), empty)
        whole = sums.setdefault((snapshot["model"], snapshot["version"]), variant)
        _count(whole["outcomes"], snapshot["outcomes"])
        for name in SUMS:
            if name in snapshot:
                _count(whole.setdefault(name, {}), snapshot[name])
        _add(whole["stages"], snapshot["stages"], ("stage", "engine"))
        _add(whole["fallbacks"], snapshot["fallbacks"], ("from", "to", "reason"))
    return list(merged.values())


def _count(whole: dict[str, int], more: Mapping[str, int]) -> None:
    for name, count in more.items():
        whole[name] = whole.get(name, 0) + count


def _add(whole: list[dict[str, Any]], more: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> None:
    for entry in more:
        same = [series for series in whole if all(series[name] == entry[name] for name in names)]
        if not same:
            whole.append(dict(entry))
            continue
        if "bucket_counts" in entry:
            same[0].update(merged(same[0], entry))
        else:
            same[0]["count"] += entry["count"]
