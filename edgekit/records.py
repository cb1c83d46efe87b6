"""Small JSON files in a folder of the cache, one a record, named by what they depend on.

A record is a convenience: one that cannot be read or written is as if it had never been there.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from edgekit import strict_json
from edgekit.durable import write_whole
from edgekit.strict_json import JsonError
from edgekit.target import Json


def recall(folder: Path, name: str, limit_bytes: int) -> Json:
    """The record of that name, or None where there is none that can be read."""
    try:
        with open(folder / f"{name}.json", "rb") as file:
            content = file.read(limit_bytes + 1)
        return strict_json.decode(content, "record", limit_bytes)
    except (OSError, JsonError):
        return None


def record(folder: Path, name: str, value: Json, limit: int) -> bool:
    """Write a record; the one of that name is replaced, and of more than ``limit`` the oldest go.

    Returns:
        False where it could not be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{name}.json", [strict_json.encode(value)])
        _forget_oldest(folder, limit)
    except (OSError, JsonError):
        return False
    return True


def _forget_oldest(folder: Path, limit: int) -> None:
    paths = list(folder.glob("*.json"))
    if len(paths) <= limit:
        return
    ages = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # another process forgot it first
            ages.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(ages)[: len(ages) - limit]:
        path.unlink(missing_ok=True)
