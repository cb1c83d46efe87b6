"""The rows of an outbox on disk: one SQLite file that survives kills, full disks and its own corruption.

    FOLDER/rows-1.db      the rows; of several files the highest number counts
    FOLDER/damaged.db     the last file found damaged; never opened again
    FOLDER/lock           empty; held by the process that has the outbox open

Write-ahead log with ``synchronous = FULL``: committed rows survive a power cut. One process at a time: the
lock is SQLite's own and is released when the process dies. A file is checked when it is opened
(integrity_check.py). A damaged one is set aside, and the rows that SQLite still reads go on under the next
number, by one rename: a kill at any moment leaves the old file or the new one, and the log of one cannot be
applied to the other. SQLite has no checksums, so every row has one, and the counts share one.

Not thread-safe; outbox.py holds a lock.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError
from edgekit.runtime.outbox import integrity_check as integrity
from edgekit.runtime.outbox.integrity_check import COUNTS, PAGE_BYTES, connected, remove
from edgekit.runtime.outbox.rows import COLUMNS, PRIORITIES, SIZE, OutboxLimits, Parcel, crc_of, parcel_of
from edgekit.runtime.session_state import log
from edgekit.system.atomic_files import flush_folder
from edgekit.system.forked import keep, tell_of_fork

DISK_RATIO = 3
"""Disk space per byte of rows: a body slightly larger than half a page takes a whole one."""
LOG_PAGES = 256
"""Size of the write-ahead log at which it is checkpointed."""
WHOLE_YEAR = 1_700_000_000.0
"""Nov 2023. An earlier clock was never set, so it does not give a row's age."""


class OutboxStore:
    """The open file.

    Raises:
        UsageError: the folder cannot be used, or another process has it open.
    """

    def __init__(
        self,
        folder: Path,
        limits: OutboxLimits,
        monotonic_s: Callable[[], float] = time.monotonic,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        self.folder, self._limits = folder, limits
        self._monotonic_s, self._wall_s = monotonic_s, wall_s
        self._size_bytes, self._flushed, self._log_frames = 0, True, 0
        self._connections: list[sqlite3.Connection] = []  # of the lock, then of the file
        tell_of_fork(self)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._open()
        except BaseException as problem:
            self.close()
            if not isinstance(problem, (OSError, sqlite3.Error)):
                raise
            raise UsageError(f"the outbox {folder} cannot be opened: {integrity.why_of(problem)}") from None

    def close(self) -> None:
        """Close the store. Closing twice is allowed."""
        while self._connections:
            self._close_all()

    def forked(self) -> None:
        """Leave the connections open in a forked process.

        There SQLite would consider itself the last user of the file, checkpoint the log and delete it, while
        the parent continues to write to it: rows stored since then would be lost.
        """
        for connection in self._connections:
            keep(connection)
        self._connections = []

    def _close_all(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connections[-1].close()
        self._connections.pop()

    def _close_file(self) -> None:
        while len(self._connections) > 1:
            self._close_all()

    def reopen(self) -> None:
        """Close and open the store again after an error. Raises OSError or sqlite3.Error if it fails
        again."""
        if not self._connections:
            self._take_lock()
        self._close_file()
        self._open()

    # --- input -------------------------------------------------------------------------------------------

    def append(self, parcels: Sequence[Parcel], lost: int = 0) -> set[str]:
        """Store rows in one transaction; when this returns they survive a power cut.

        A row whose key exists already is ignored.

        Returns:
            The keys of rows dropped for lack of room, because all others are more important.

        Raises:
            sqlite3.Error: nothing was stored.
        """
        now_s = self._now_s()
        if not self._flushed:
            self._flush()
        with self._transaction() as run:
            self._count("dropped_memory", lost)
            for parcel in parcels:
                self._insert(run, parcel, now_s)
            return self._trim({parcel.key for parcel in parcels}, now_s)

    def _trim(self, new_keys: Collection[str], now_s: float) -> set[str]:
        """Drop rows that are too old, then those above the size limit; returns the new keys among them."""
        run = self._connection.execute
        dropped = set()
        for seq, size_bytes in run(
            f"SELECT seq, {SIZE} FROM rows WHERE made_s < ?", (now_s - self._limits.age_s,)
        ).fetchall():
            self._drop(seq, size_bytes, "dropped_age")
        for quarantined in (1, 0):
            ranked = (
                f"SELECT seq, key, {SIZE} FROM rows WHERE quarantined = ? ORDER BY priority, seq LIMIT 64"
            )
            while self._size_bytes > self._limits.size_bytes:
                rows = run(ranked, (quarantined,)).fetchall()
                for seq, key, size_bytes in rows:
                    if self._size_bytes > self._limits.size_bytes:
                        self._drop(seq, size_bytes, "dropped_room")
                        if key in new_keys:
                            dropped.add(key)
                if not rows:
                    break
        return dropped

    def _drop(self, seq: int, size_bytes: int, name: str) -> None:
        self._connection.execute("DELETE FROM rows WHERE seq = ?", (seq,))
        self._size_bytes -= size_bytes
        self._count(name)

    # --- output ------------------------------------------------------------------------------------------

    def waiting(self, limit: int, limit_bytes: int, excluded: Collection[str] = ()) -> list[Parcel]:
        """Return the next rows to deliver: the most important first, of these the oldest.

        A row whose checksum is wrong is removed and counted as ``damaged``.
        """
        parcels: list[Parcel] = []
        damaged: list[int] = []
        with contextlib.closing(self._ranked()) as ranked:
            for row in ranked:
                if len(parcels) == limit or limit_bytes <= 0:
                    break
                if row[1] in excluded:
                    continue
                parcel = parcel_of(row)
                if parcel is None:
                    damaged.append(row[0])
                else:
                    parcels.append(parcel)
                    limit_bytes -= parcel.size_bytes
        if damaged:
            with self._transaction() as run:
                run(f"DELETE FROM rows WHERE seq IN ({','.join(map(str, damaged))})")
                self._count("damaged", len(damaged))
            self._measure_size()
        return parcels

    def _ranked(self) -> Generator[tuple[Any, ...], None, None]:
        query = f"SELECT {COLUMNS} FROM rows WHERE quarantined = 0 AND priority = ? ORDER BY seq"
        for priority in sorted(set(PRIORITIES.values()), reverse=True):  # one query would sort all bodies
            with contextlib.closing(self._connection.execute(query, (priority,))) as rows:
                yield from rows

    def quarantined(self) -> list[Parcel]:
        """Return the rows that a backend refused too often."""
        query = f"SELECT {COLUMNS} FROM rows WHERE quarantined = 1 ORDER BY seq"
        return [p for row in self._connection.execute(query).fetchall() if (p := parcel_of(row)) is not None]

    def release(self) -> int:
        """Queue the quarantined rows again; returns how many."""
        with self._transaction() as run:
            return run("UPDATE rows SET quarantined = 0, tries = 0 WHERE quarantined = 1").rowcount

    def record_results(self, delivered: Sequence[Parcel], refused: Sequence[tuple[Parcel, str]]) -> None:
        """Remove delivered rows; count a failed try of refused ones, and quarantine them at the limit."""
        with self._transaction() as run:
            for parcel in delivered:
                removed = run("DELETE FROM rows WHERE key = ?", (parcel.key,)).rowcount
                self._size_bytes -= removed * parcel.size_bytes
            self._count("delivered", len(delivered))
            for parcel, reason in refused:
                last = parcel.tries + 1 >= self._limits.tries
                updated = run(
                    "UPDATE rows SET tries = ?, why = ?, quarantined = ? WHERE key = ?",
                    (parcel.tries + 1, reason.encode("utf-8", "replace").decode(), int(last), parcel.key),
                ).rowcount  # 0: dropped meanwhile
                self._count("quarantined", int(last) * updated)

    def counts(self) -> dict[str, int]:
        """Return the waiting rows and bytes, and the counts since the folder was created."""
        totals = dict(self._connection.execute("SELECT name, value FROM counts").fetchall())
        (rows,) = self._connection.execute("SELECT count(*) FROM rows WHERE quarantined = 0").fetchone()
        return {"waiting": rows, "size_bytes": self._size_bytes} | {n: int(totals.get(n, 0)) for n in COUNTS}

    # --- the file ----------------------------------------------------------------------------------------

    @property
    def _connection(self) -> sqlite3.Connection:
        if len(self._connections) < 2:
            raise sqlite3.ProgrammingError("the outbox's file is not open")
        return self._connections[-1]

    def _take_lock(self) -> None:
        self._connections.append(connected(self.folder / "lock", 0))
        self._connections[-1].execute("BEGIN EXCLUSIVE")

    def _open(self) -> None:
        number, path = self._newest()
        commits = integrity.commits_in_log(path)
        # A transient I/O error can look like corruption, so it must be seen twice.
        if self._fault(path) and (fault := self._fault(path)):
            self._rebuild(number, path, fault)
        elif lost := sum(commits[self._log_frames :]):
            log().warning("%s: its log is damaged, and %d writes in it are lost", path, lost)
            with contextlib.suppress(sqlite3.OperationalError), self._transaction():  # e.g. a full disk
                self._count("damaged", lost)
        self._clear(self._newest()[0])

    def _fault(self, path: Path) -> str:
        """Connect; returns the corruption found, or "". Raises: OSError, sqlite3.Error: transient errors."""
        if fault := integrity.header_fault(path):
            return fault
        try:
            self._connect(path)
        except (sqlite3.Error, UnicodeError) as problem:
            self._close_file()
            if not integrity.is_damage(problem):
                raise
            return str(problem)
        return ""

    def _newest(self) -> tuple[int, Path]:
        numbers = [int(p.stem[5:]) for p in self.folder.glob("rows-*.db") if p.stem[5:].isdecimal()]
        number = max(numbers, default=1)
        return number, self.folder / f"rows-{number}.db"

    def _connect(self, path: Path) -> None:
        size_bytes = sum(part.stat().st_size for part in integrity.parts_of(path))
        connection = connected(path, size_bytes)
        self._connections.append(connection)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")  # and no shared memory file
        if size_bytes <= PAGE_BYTES:  # a new file
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the lock
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_PAGES * PAGE_BYTES}")
        if tables or size_bytes > PAGE_BYTES:
            self._size_bytes = integrity.checked_size_bytes(connection)
        integrity.trust(connection)
        self._flushed = False
        self._log_frames = sys.maxsize
        with contextlib.suppress(sqlite3.OperationalError):  # a full disk: rows can still be delivered
            (_, self._log_frames, _) = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            self._flush()
        if not tables:
            connection.executescript(f"BEGIN IMMEDIATE;{integrity.SCHEMA}COMMIT;")
            flush_folder(self.folder)
            self._size_bytes = 0
        pages = DISK_RATIO * self._limits.size_bytes // PAGE_BYTES + 64
        connection.execute(f"PRAGMA max_page_count = {pages}")
        self._set_clock()

    def _flush(self) -> None:
        """Copy the log into the file with a checkpoint, and flush the file. After a failed flush the log in
        memory may differ from the disk, and a row in it must not be reported as stored."""
        (busy, *_) = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise sqlite3.OperationalError("database is locked")
        self._flushed = True

    def _measure_size(self) -> None:
        query = f"SELECT coalesce(sum({SIZE}), 0) FROM rows"
        (self._size_bytes,) = self._connection.execute(query).fetchone()

    def _set_clock(self) -> None:
        run = self._connection.execute
        stored = dict(run("SELECT name, value FROM counts").fetchall())
        wall_s, was_s = self._wall_s(), stored.get("clock_wall_s", 0.0)
        away_s = wall_s - was_s if min(wall_s, was_s) >= WHOLE_YEAR else 0.0
        self._start_s: float = stored.get("clock_s", 0.0) + max(away_s, 0.0) - self._monotonic_s()

    def _now_s(self) -> float:
        return self._start_s + self._monotonic_s()

    def _rebuild(self, number: int, path: Path, fault: str) -> None:
        """Set a damaged file aside, and put what can be read of it into a new one, under the next number.

        Columns without a checksum are reset: age, tries, and quarantine.
        """
        draft, new = self.folder / "draft.db", self.folder / f"rows-{number + 1}.db"
        self._clear(number)
        try:
            rescue = integrity.rescued(path)
            self._connect(draft)
            now_s = self._now_s()
            with self._transaction() as run:
                for name, value in rescue.counts.items():
                    run("INSERT OR REPLACE INTO counts VALUES(?, ?)", (name, value))
                self._count("rebuilt")
                self._count("damaged", rescue.damaged)
                for parcel in rescue.parcels:
                    self._insert(run, parcel, now_s)
            self._flush()
            self._close_file()
        except BaseException:
            self._close_file()
            self._clear(number)  # frees its space
            raise
        known = len(rescue.parcels)
        log().warning("%s is damaged (%s): %d rows were read; it is kept as damaged.db", path, fault, known)
        os.replace(draft, new)
        flush_folder(self.folder)
        remove(self.folder / "damaged.db")
        for suffix in ("", "-wal"):
            with contextlib.suppress(FileNotFoundError):
                os.replace(f"{path}{suffix}", self.folder / f"damaged.db{suffix}")
        self._connect(new)

    def _clear(self, number: int) -> None:
        remove(self.folder / "draft.db")
        for path in self.folder.glob("rows-*.db*"):
            if not path.name.startswith(f"rows-{number}.db"):
                with contextlib.suppress(OSError):
                    path.unlink()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        run, before = self._connection.execute, self._size_bytes
        run("BEGIN IMMEDIATE")
        try:
            yield run
            for name, value in (("clock_s", self._now_s()), ("clock_wall_s", max(self._wall_s(), 0.0))):
                run("INSERT OR REPLACE INTO counts VALUES(?, ?)", (name, value))
            check = integrity.check_of(run("SELECT name, value FROM counts").fetchall())
            run("INSERT OR REPLACE INTO counts VALUES(?, ?)", (integrity.CHECK, check))
            run("COMMIT")
        except BaseException:
            self._size_bytes = before
            if self._connection.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    run("ROLLBACK")
            raise

    def _insert(self, run: Callable[..., sqlite3.Cursor], parcel: Parcel, now_s: float) -> None:
        row = (None, parcel.key, parcel.kind, now_s, parcel.made_unix_s, 0, 0, "", crc_of(parcel))
        inserted = run(
            f"INSERT OR IGNORE INTO rows({COLUMNS}, priority) VALUES(?,?,?,?,?,?,?,?,?,?,?)",
            (*row, parcel.body, PRIORITIES[parcel.kind]),
        ).rowcount
        self._size_bytes += inserted * parcel.size_bytes

    def _count(self, name: str, change: int = 1) -> None:
        if change:
            self._connection.execute(
                "INSERT INTO counts VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET value = value + ?",
                (name, change, change),
            )
