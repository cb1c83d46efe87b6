"""Small JSON files in a cache folder, one per record, named by what they depend on.

Records are optional: one that cannot be read or written is treated as missing. So are records in a folder
that belongs to another user, or that others may write to, because they are untrusted.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from edgekit.system import ownership
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.interrupts import pass_on
from edgekit.system.regular_file import open_regular
from edgekit.tensor_spec import Json


def recall(folder: Path, name: str, limit_bytes: int) -> Json:
    """Return the record of that name, or None if there is no readable one."""
    try:
        ownership.refuse_foreign(folder)
        content = ownership.read_own(folder / f"{name}.json", limit_bytes + 1)
        return strict_json.decode(content, "record", limit_bytes)
    except (OSError, JsonError) as problem:
        pass_on(problem)
        return None


def read_object(path: Path, limit_bytes: int) -> dict[str, Json]:
    """Return a small JSON object that a child process left; empty if missing or invalid."""
    try:
        with open_regular(path, follow_links=False) as file:  # a child may leave anything here
            decoded = strict_json.decode(file.read(limit_bytes + 1), path.name, limit_bytes)
    except (OSError, JsonError):
        return {}
    return decoded if isinstance(decoded, dict) else {}


def why_unused(folder: Path) -> str:
    """Return why the records of a folder are not used, or "" if they are used or the folder does not exist
    yet."""
    try:
        ownership.refuse_foreign(folder)
    except FileNotFoundError:
        return ""
    except OSError as problem:
        return f"{folder} cannot be used: {problem.strerror or problem}"
    return ""


def record(folder: Path, name: str, value: Json, limit: int) -> bool:
    """Write a record, replacing one of that name; above ``limit`` records the oldest are removed.

    Returns:
        False if it could not be written.
    """
    try:
        private_folder(folder)
        write_atomically(folder / f"{name}.json", [strict_json.encode(value)], 0o600)
        _remove_oldest(folder, limit)
    except (OSError, JsonError) as problem:
        pass_on(problem)
        return False
    return True


def remove(folder: Path, name: str) -> None:
    """Remove the record of that name, if there is one."""
    with contextlib.suppress(OSError):
        (folder / f"{name}.json").unlink()


def record_once(folder: Path, name: str, value: Json, limit: int, limit_bytes: int) -> Json:
    """Write a record unless there is one: of processes that measure the same, all use what the first wrote.

    Returns:
        The record that is there now; ``value`` if it could not be written.
    """
    try:
        private_folder(folder)
        draft, path = folder / f".{name}.{os.urandom(4).hex()}.part", folder / f"{name}.json"
        write_atomically(draft, [strict_json.encode(value)], 0o600)
        try:
            os.link(draft, path)
        except FileExistsError:
            stored = recall(folder, name, limit_bytes)
            if stored is not None:
                return stored
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
        _remove_oldest(folder, limit)
    except (OSError, JsonError):
        pass
    return value


def _remove_oldest(folder: Path, limit: int) -> None:
    paths = list(folder.glob("*.json"))
    if len(paths) <= limit:
        return
    ages = []
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # removed by another process
            ages.append((path.stat().st_mtime_ns, path))
    for _, path in sorted(ages)[: len(ages) - limit]:
        path.unlink(missing_ok=True)
