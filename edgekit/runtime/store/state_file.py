"""The two files of a store's state: the sha256 of a JSON object, and the object."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

from edgekit.runtime.store.state import FACTORY, NOTHING, StoreState
from edgekit.system import ownership
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError

STATE_LIMIT_BYTES = 1 << 16


def encoded(state: StoreState) -> bytes:
    """Return the content of a state file. ``current`` is there for releases that know no staged bundles."""
    content = strict_json.encode({"current": state.current, **asdict(state)})
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def read(path: Path) -> StoreState | None:
    """Return the state in a file; None if it is not exactly what :func:`encoded` wrote.

    Raises:
        OSError: it is missing, cannot be read, or does not belong to this user or root.
    """
    return decoded(ownership.read_own(path, STATE_LIMIT_BYTES + 1))


def decoded(content: bytes) -> StoreState | None:
    """Return the state in the content of a file; None if it is torn."""
    digest, _, text = content.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode("ascii") != digest:
        return None
    try:
        table = strict_json.decode(text, "state", STATE_LIMIT_BYTES)
        committed = tuple(checked_digest(digest) for digest in table["good"])
        active, staged, starts = _running(table, committed)
        return StoreState(
            int(table["serial"]),
            checked_digest(active),
            starts,
            checked_digest(staged),
            committed,
            tuple((checked_digest(digest), str(reason)) for digest, reason in table["given_up"]),
            tuple((checked_digest(digest), int(count)) for digest, count in table.get("stood_in", ())),
            int(table.get("minimum", 0)),
            tuple((checked_digest(digest), int(version)) for digest, version in table.get("versions", ())),
            tuple(
                (checked_digest(digest), int(answers), int(bad), int(found))
                for digest, answers, bad, found in table.get("answers", ())
            ),
        )
    except (JsonError, KeyError, TypeError, ValueError):
        return None


def _running(record: dict[str, Any], committed: tuple[str, ...]) -> tuple[str, str, int]:
    """Return the active and the staged bundle, and the active one's starts. A file of an older release has
    one ``current`` for both: it was staged if it was never started."""
    if "active" in record:
        return record["active"], record["staged"], int(record["starts"])
    current, starts = record["current"], int(record["starts"])
    if starts or current == FACTORY or current in committed:
        return current, NOTHING, starts
    return (committed[0] if committed else FACTORY), current, 0


def checked_digest(text: str) -> str:
    """Validate a digest, which becomes a file name: a state file may have been tampered with.

    Raises:
        ValueError: it is not a digest.
    """
    if text != FACTORY and not (len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise ValueError(f"{text!r} is not a digest")
    return text
