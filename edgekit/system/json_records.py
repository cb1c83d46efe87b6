"""Small JSON files in a folder of the cache, one a record, named by what they depend on.

A record is a convenience: one that cannot be read or written is as if it had never been there. So is one in a
folder that is another user's or that others may write to: what they say is not believed.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from edgekit.formats import strict_json
from edgekit.formats.strict_json import JsonError
from edgekit.system import ownership
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.tensors import Json


def recall(folder: Path, name: str, limit_bytes: int) -> Json:
    """The record of that name, or None where there is none that can be read."""
    try:
        ownership.refuse_foreign(folder)
        content = ownership.read_own(folder / f"{name}.json", limit_bytes + 1)
        return strict_json.decode(content, "record", limit_bytes)
    except (OSError, JsonError):
        return None


def why_unused(folder: Path) -> str:
    """Why records of a folder are neither believed nor written; "" where they are, or it is not there yet."""
    try:
        ownership.refuse_foreign(folder)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return f"{folder} cannot be used: {problem.strerror or problem}"
    return ""


def record(folder: Path, name: str, value: Json, limit: int) -> bool:
    """Write a record; the one of that name is replaced, and of more than ``limit`` the oldest go.

    Returns:
        False where it could not be written.
    """
    try:
        private_folder(folder)
        write_atomically(folder / f"{name}.json", [strict_json.encode(value)], 0o600)
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
