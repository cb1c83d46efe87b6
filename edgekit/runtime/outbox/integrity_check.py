"""Integrity check of an outbox's file: schema, pages, indexes, types, counts.

A file is not trusted before it is checked: a foreign view, trigger or type can run its author's code, never
end, or crash the reader. A file that fails the check is set aside; the rows that SQLite still reads go on.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
import struct
import zlib
from collections.abc import Collection, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

from edgekit.runtime.outbox.rows import COLUMNS, PRIORITIES, SIZE, Parcel, parcel_of

SCHEMA = """
CREATE TABLE IF NOT EXISTS rows(
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
    priority INTEGER NOT NULL, made_s REAL NOT NULL, made_unix_s REAL NOT NULL, tries INTEGER NOT NULL,
    quarantined INTEGER NOT NULL, why TEXT NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS by_rank ON rows(quarantined, priority, seq);
CREATE INDEX IF NOT EXISTS by_age ON rows(made_s);
CREATE TABLE IF NOT EXISTS counts(name TEXT PRIMARY KEY, value REAL NOT NULL);
"""
COUNTS = (
    "delivered", "dropped_age", "dropped_room", "dropped_memory", "quarantined", "damaged", "rebuilt"
)  # fmt: skip
CHECK = "check"
"""Name of the count that is the checksum of the others. Outboxes of the first release have none."""
PAGE_BYTES = 4096
LOG_HEAD_BYTES, FRAME_HEAD_BYTES = 32, 24
STEPS, STEPS_PER_BYTE = 4_000_000, 4
"""SQLite VM steps to check or read a file; rows without a body take 1.3 steps a byte."""
STEPS_APART = 10_000
HIGHEST_SEQ, HIGHEST_COUNT = 1 << 62, 2.0**53
_TRANSIENT = ("locked", "disk I/O error", "full", "unable to open", "readonly", "out of memory")
_INVALID_ROWS = f"""
SELECT coalesce(sum({SIZE}), 0), coalesce(sum(NOT (
    typeof(key) = 'text' AND typeof(kind) = 'text' AND typeof(body) = 'blob' AND typeof(why) = 'text'
    AND typeof(crc) = 'integer' AND typeof(made_unix_s) = 'real' AND seq BETWEEN 1 AND {HIGHEST_SEQ}
    AND typeof(made_s) = 'real' AND made_s BETWEEN -1.0 AND {HIGHEST_COUNT!r}
    AND typeof(tries) = 'integer' AND tries >= 0 AND quarantined IN (0, 1)
    AND priority IS CASE kind {" ".join(f"WHEN '{k}' THEN {n}" for k, n in PRIORITIES.items())} END
)), 0) FROM rows"""


def connected(path: object, size_bytes: int) -> sqlite3.Connection:
    """Return a connection for an untrusted file: no functions in its schema, bounded work, text as raw bytes.

    Args:
        size_bytes: Size of the file and its log: bounds the work and the size of a value.
    """
    connection = sqlite3.connect(str(path), timeout=0.2, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    # Text that is not UTF-8 must be readable, so that its checksum can be found wrong.
    connection.text_factory = functools.partial(str, encoding="utf-8", errors="replace")
    rounds = (STEPS + STEPS_PER_BYTE * size_bytes) // STEPS_APART
    # A C iterator as the handler: in Python code a Ctrl-C could be raised, which SQLite would swallow.
    connection.set_progress_handler(chain(repeat(0, rounds), repeat(1)).__next__, STEPS_APART)
    if hasattr(connection, "setlimit"):  # Python 3.11
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(size_bytes, 1_000_000))
    return connection


def trust(connection: sqlite3.Connection) -> None:
    """Lift the bounds of ``connected``, after the check."""
    connection.set_progress_handler(None, 0)
    if hasattr(connection, "setlimit"):
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2**31 - 1)  # SQLite's own limit applies


@functools.lru_cache(1)
def _own_schema() -> frozenset[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return frozenset(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


def schema_is_ours(connection: sqlite3.Connection) -> bool:
    """Return whether the tables and indexes are exactly an outbox's, with nothing else.

    Raises: sqlite3.Error: it cannot be read.
    """
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchmany(20)
    return len(rows) == len(_own_schema()) and frozenset(rows) == _own_schema()


def checked_size_bytes(connection: sqlite3.Connection) -> int:
    """Check everything in a file but the bodies, which have checksums of their own; returns the size of its
    rows.

    ``integrity_check`` compares the indexes with the rows, which ``quick_check`` does not: a row missing in
    an index would never be delivered, or delivered and not removed.

    Raises:
        sqlite3.DatabaseError: it is damaged.
    """
    if not schema_is_ours(connection):
        raise sqlite3.DatabaseError("its tables are not an outbox's")
    (state,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if state != "ok":
        raise sqlite3.DatabaseError(str(state))
    size_bytes, invalid = connection.execute(_INVALID_ROWS).fetchone()
    if invalid:
        raise sqlite3.DatabaseError(f"{invalid} rows hold what an outbox does not write")
    counts = connection.execute("SELECT name, value FROM counts").fetchmany(100)
    if not all(plausible(*count) for count in counts) or len(counts) == 100:
        raise sqlite3.DatabaseError("its counts are not an outbox's")
    if dict(counts).get(CHECK, check_of(counts)) != check_of(counts):
        raise sqlite3.DatabaseError("its counts are not those that were written")
    sequence = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchmany(2)
    if any(name != "rows" or not isinstance(n, int) or not 0 <= n <= HIGHEST_SEQ for name, n in sequence):
        raise sqlite3.DatabaseError("its sequence is not an outbox's")
    return int(size_bytes)


def plausible(name: object, value: object) -> bool:
    """Return whether a count is valid."""
    return isinstance(name, str) and isinstance(value, float) and 0.0 <= value <= HIGHEST_COUNT


def check_of(counts: Collection[tuple[str, float]]) -> float:
    """Return the checksum of all other counts."""
    return float(zlib.crc32(repr(sorted(count for count in counts if count[0] != CHECK)).encode()))


def is_damage(problem: Exception) -> bool:
    """Return whether the file itself is damaged, not just its disk failing or another process holding it."""
    if isinstance(problem, UnicodeError):  # raised by Python for an SQLite message that quotes the file
        return True
    if isinstance(problem, sqlite3.ProgrammingError) or not isinstance(problem, sqlite3.DatabaseError):
        return False
    passing = isinstance(problem, sqlite3.OperationalError) and any(w in str(problem) for w in _TRANSIENT)
    return not passing


class Rescue(NamedTuple):
    """Rows and counts that SQLite read from a damaged file."""

    parcels: list[Parcel]
    damaged: int
    counts: dict[str, float]


def rescued(path: Path) -> Rescue:
    """Read the rows of a damaged file from both ends, up to what SQLite cannot read.

    Nothing is read if ``rows`` is not an outbox's table, because a view of that name is somebody's code.
    """
    found: dict[int, Parcel | None] = {}
    counts: dict[str, float] = {}
    with contextlib.closing(connected(path, sum(f.stat().st_size for f in parts_of(path)))) as connection:
        entries = list(_readable(connection, "SELECT type, sql FROM sqlite_master WHERE name = 'rows'"))
        if entries == [(kind, sql) for kind, name, _, sql in _own_schema() if name == "rows"]:
            for order in ("", " DESC"):
                for row in _readable(connection, f"SELECT {COLUMNS} FROM rows ORDER BY seq{order}"):
                    if row[0] in found:
                        break
                    found[row[0]] = parcel_of(row)
        for name, value in _readable(connection, "SELECT name, value FROM counts"):
            if name in COUNTS and plausible(name, value):
                counts[name] = value
    parcels = [parcel for seq in sorted(found) if (parcel := found[seq]) is not None]
    return Rescue(parcels, len(found) - len(parcels), counts)


def parts_of(path: Path) -> list[Path]:
    """Return a file and its log, those of them that exist."""
    return [part for part in (path, path.with_name(path.name + "-wal")) if part.is_file()]


def header_fault(path: Path) -> str:
    """Return a header fault that SQLite does not report, but which makes the file read-only; or empty."""
    if not path.is_file() or path.stat().st_size < PAGE_BYTES:
        return ""
    with open(path, "rb") as file:
        versions = file.read(20)[18:]
    return "" if versions in (b"\1\1", b"\2\2") else f"its header has the versions {versions!r}"


def commits_in_log(path: Path) -> list[bool]:
    """Return whether each frame of a file's write-ahead log ends a transaction.

    Frames of an earlier use of the log, which differ from its header in both salts, do not count.
    https://sqlite.org/fileformat2.html (4) describes the log.

    Raises: OSError: it cannot be read.
    """
    commits: list[bool] = []
    for log in parts_of(path)[1:]:
        with open(log, "rb") as file:
            salts = file.read(LOG_HEAD_BYTES)[16:24]
            while len(frame := file.read(FRAME_HEAD_BYTES + PAGE_BYTES)) == FRAME_HEAD_BYTES + PAGE_BYTES:
                if frame[8:12] != salts[:4] and frame[12:16] != salts[4:]:
                    break
                commits.append(struct.unpack(">I", frame[4:8]) != (0,))
    return commits


def _readable(connection: sqlite3.Connection, query: str) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query up to the first that cannot be read."""
    with contextlib.suppress(sqlite3.Error, UnicodeError):
        yield from connection.execute(query)


def remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).unlink()


def why_of(problem: Exception) -> str:
    if "locked" in str(problem):
        return "another process has it open; give each its own folder"
    text = (problem.strerror if isinstance(problem, OSError) else None) or str(problem)
    return f"{text}; free some space, or use another folder"
