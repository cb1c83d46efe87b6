"""Flipped bits at rest, tampered files."""

from __future__ import annotations

import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from edgekit.runtime.outbox.integrity_check import HIGHEST_SEQ
from tests.runtime.outbox.outbox_flips import after_a_flip, at_rest
from tests.runtime.outbox.outbox_parts import ListSink, put_all, quick

ROWS = 60


def test_rows_that_flipped_bits_lose_are_counted_and_none_repeats_for_ever(tmp_path: Path) -> None:
    made = at_rest(tmp_path)
    seen = Counter[str]()
    for seed in range(30):
        seen += after_a_flip(made, tmp_path, seed)
    assert seen["damaged"] > 5
    assert seen["missing"] <= 30 * 10  # of 78 rows, 28 of them in the log


@pytest.mark.slow
def test_100_more_flipped_bits(tmp_path: Path) -> None:
    made = at_rest(tmp_path)
    for seed in range(30, 130):
        after_a_flip(made, tmp_path, seed)


# --- files that somebody made ----------------------------------------------------------------------------

ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT"
VIEW = (
    f"CREATE VIEW rows AS {ENDLESS} x AS seq, 'k' AS key, 'log' AS kind, 0 AS priority, 0.0 AS made_s,"
    " 0.0 AS made_unix_s, 0 AS tries, 0 AS quarantined, '' AS why, 0 AS crc, x'' AS body FROM n"
)
GROWING = "INSERT INTO counts VALUES(hex(randomblob(8)), 1.0)"
HARMLESS = {
    "a trigger": f"CREATE TRIGGER t BEFORE DELETE ON rows BEGIN {GROWING}; END",
    "a trigger that refuses": "CREATE TRIGGER t BEFORE INSERT ON rows BEGIN SELECT RAISE(ABORT, 'no'); END",
    "a trigger that keeps": "CREATE TRIGGER t BEFORE DELETE ON rows BEGIN SELECT RAISE(IGNORE); END",
    "a trigger without end": f"CREATE TRIGGER t AFTER INSERT ON counts BEGIN DELETE FROM rows WHERE key IN"
    f" ({ENDLESS} x FROM n); END",
    "a view": f"CREATE VIEW v AS {ENDLESS} x FROM n",
    "a table more": "CREATE TABLE more(x)",
    "an index with a function": "CREATE INDEX i ON rows(hex(body))",
    "an index less": "DROP INDEX by_rank",
    "another name": "ALTER TABLE counts RENAME TO other",
    "a priority": "UPDATE rows SET priority = 7",
    "quarantined twice": "UPDATE rows SET quarantined = 2",
    "tries as text": "UPDATE rows SET tries = 'often'",
    "tries below zero": "UPDATE rows SET tries = -9223372036854775808",
    "a time as blob": "UPDATE rows SET made_unix_s = x'00'",
    "an age of ever": "UPDATE rows SET made_s = -1e300",
    "an age as text": "UPDATE rows SET made_s = 'old'",
    "why as blob": "UPDATE rows SET why = zeroblob(100000)",
    "the last number": "UPDATE sqlite_sequence SET seq = 9223372036854775807",
    "no sequence": "DELETE FROM sqlite_sequence",
    "a sequence as text": "UPDATE sqlite_sequence SET seq = 'x'",
    "a clock far ahead": "INSERT OR REPLACE INTO counts VALUES('clock_s', 1e300)",
    "a clock without end": "INSERT OR REPLACE INTO counts VALUES('clock_s', 9e999)",
    "a count as blob": "INSERT OR REPLACE INTO counts VALUES('delivered', x'ff')",
    "a count as text": "INSERT OR REPLACE INTO counts VALUES('delivered', 'NaN')",
    "counts without end": "INSERT INTO counts SELECT hex(randomblob(8)), 1.0 FROM rows AS a, rows",
    "a name with NUL": "INSERT INTO counts VALUES('a' || char(0) || 'b', 1.0)",
    "a name as blob": "INSERT INTO counts VALUES(x'ff00', 1.0)",
    "utf-16 pretended": "PRAGMA user_version = 7",
}
"""Ways to tamper with all that is no row: every row must still come."""
HURTING = {
    "a key as blob": "UPDATE rows SET key = x'ff00' WHERE seq = 7",
    "a key with NUL": "UPDATE rows SET key = 'a' || char(0) || 'b' WHERE seq = 7",
    "a key that is no UTF-8": "UPDATE rows SET key = CAST(x'ff80c0' AS TEXT) WHERE seq = 7",
    "a key that is a path": "UPDATE rows SET key = '../../x' WHERE seq = 7",
    "a kind of another": "UPDATE rows SET kind = 'picture' WHERE seq = 7",
    "a kind as number": "UPDATE rows SET kind = 5 WHERE seq = 7",
    "a body as text": "UPDATE rows SET body = CAST(body AS TEXT) WHERE seq = 7",
    "a body as number": "UPDATE rows SET body = 1e308 WHERE seq = 7",
    "a huge body": "UPDATE rows SET body = zeroblob(50000000) WHERE seq = 7",
    "a checksum as text": "UPDATE rows SET crc = 'x' WHERE seq = 7",
}
"""Of one row: the others must come, and it must be counted."""


def filled(folder: Path) -> Path:
    with quick(folder) as outbox:
        put_all(outbox, *(f"k{n}" for n in range(ROWS)), body=b"x" * 700)
    return folder / "rows-1.db"


def drained(folder: Path) -> tuple[list[str], dict[str, int]]:
    """What comes of a folder at two starts, and the counts after it."""
    sink = ListSink()
    for _ in range(2):
        with quick(folder) as outbox:
            while (delivery := outbox.deliver(sink)).delivered:
                pass
            assert not delivery.down
            put_all(outbox, f"new{len(sink.keys)}")
            outbox.deliver(sink)
            counts = outbox.counts()
            assert counts["disk_errors"] == counts["waiting"] == 0
    assert all(parcel.body == b"x" * 700 for parcel in sink.parcels if parcel.key.startswith("k"))
    return [key for key in sink.keys if key.startswith("k")], counts


def tamper(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_a_tampered_file_gives_all_its_rows(tmp_path: Path, name: str) -> None:
    tamper(filled(tmp_path), HARMLESS[name])
    keys, counts = drained(tmp_path)
    assert keys == [f"k{n}" for n in range(ROWS)]
    assert counts["rebuilt"] == (name not in ("no sequence", "utf-16 pretended"))


@pytest.mark.parametrize("column", ["g AS (hex(zeroblob(100000000)))", "more TEXT DEFAULT 'x'"])
def test_a_table_with_a_foreign_column_is_not_read(tmp_path: Path, column: str) -> None:
    tamper(filled(tmp_path), f"ALTER TABLE rows ADD COLUMN {column}")
    keys, counts = drained(tmp_path)
    assert (keys, counts["rebuilt"]) == ([], 1)


@pytest.mark.parametrize("name", sorted(HURTING))
def test_a_tampered_row_is_counted_and_the_others_come(tmp_path: Path, name: str) -> None:
    tamper(filled(tmp_path), HURTING[name])
    keys, counts = drained(tmp_path)
    assert keys == [f"k{n}" for n in range(ROWS) if n != 6]
    assert counts["damaged"] == 1


def test_a_view_in_place_of_the_rows_does_not_run(tmp_path: Path) -> None:
    path = filled(tmp_path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("DROP TABLE rows")
    connection.execute(VIEW)
    connection.close()
    assert drained(tmp_path)[1]["rebuilt"] == 1  # the view would never end


def test_any_change_of_the_schemas_text_ends_and_takes_new_rows(tmp_path: Path) -> None:
    """Bytes of the first page, where the schema is, overwritten at random."""
    filled(tmp_path / "made")
    draw = random.Random(3)
    for number in range(25):
        folder = tmp_path / f"{number}"
        shutil.copytree(tmp_path / "made", folder)
        with open(folder / "rows-1.db", "r+b") as file:
            for _ in range(draw.randrange(1, 9)):
                file.seek(draw.randrange(4096))
                file.write(draw.randbytes(draw.randrange(1, 9)))
        keys, counts = drained(folder)
        assert len(keys) == ROWS or counts["rebuilt"], number


def test_pages_that_point_in_circles_end(tmp_path: Path) -> None:
    path = filled(tmp_path)
    content = bytearray(path.read_bytes())
    root = 4096  # of the rows: page 2, an inner one
    assert content[root] == 5
    (cells,) = struct.unpack_from(">H", content, root + 3)
    for cell in range(cells):
        (place,) = struct.unpack_from(">H", content, root + 12 + 2 * cell)
        struct.pack_into(">I", content, root + place, 2)
    path.write_bytes(content)
    assert drained(tmp_path)[1]["rebuilt"] == 1


def test_the_highest_number_still_takes_rows(tmp_path: Path) -> None:
    path = filled(tmp_path)
    tamper(path, f"UPDATE rows SET seq = {HIGHEST_SEQ * 2 - 1} WHERE seq = {ROWS}")
    assert drained(tmp_path)[0] == [f"k{n}" for n in range(ROWS)]


# --- what an earlier version wrote, and what is flushed --------------------------------------------------


def test_an_outbox_of_the_first_release_is_taken_as_it_is(tmp_path: Path) -> None:
    tamper(filled(tmp_path), "DELETE FROM counts WHERE name = 'check'")
    (tmp_path / "lock").unlink()
    keys, counts = drained(tmp_path)
    assert (len(keys), counts["rebuilt"]) == (ROWS, 0)


def test_a_log_with_a_torn_end_is_a_log(tmp_path: Path) -> None:
    """Frames that a kill left unfinished, and those of the log's earlier use, are no damage."""
    with quick(tmp_path / "made") as outbox:
        put_all(outbox, *(f"k{n}" for n in range(ROWS)), body=b"x" * 700)
        shutil.copytree(tmp_path / "made", tmp_path / "torn")
    log = tmp_path / "torn" / "rows-1.db-wal"
    frame = bytearray(log.read_bytes()[32 : 32 + 4120])
    frame[8:16] = b"\0" * 8
    with open(log, "ab") as file:
        file.write(bytes(frame) + frame[:1000])
    keys, counts = drained(tmp_path / "torn")
    assert (keys, counts["rebuilt"]) == ([f"k{n}" for n in range(ROWS)], 0)


def test_writes_after_a_damaged_part_of_the_log_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with quick(tmp_path / "made") as outbox:
        for n in range(3):
            put_all(outbox, f"k{n}", body=b"x" * 700)
        shutil.copytree(tmp_path / "made", tmp_path / "flipped")
    log = tmp_path / "flipped" / "rows-1.db-wal"
    content = bytearray(log.read_bytes())
    content[-1] ^= 1
    log.write_bytes(content)
    keys, counts = drained(tmp_path / "flipped")
    assert (keys, counts["damaged"], counts["rebuilt"]) == (["k0", "k1"], 1, 0)
    assert "its log is damaged, and 1 writes in it are lost" in caplog.text


def damaged(folder: Path) -> Path:
    tamper(filled(folder), "CREATE TABLE more(x)")
    return folder


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_system_is_asked_to_flush_a_rebuilt_file(tmp_path: Path) -> None:
    damaged(tmp_path / "box")
    act = "import sys; from edgekit.runtime.outbox.outbox import Outbox; Outbox(sys.argv[1]).close()"
    trace = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(tmp_path / "trace"),
        "-e",
        "trace=fsync,fdatasync,pwrite64,rename",
    ]
    command = [*trace, sys.executable, "-c", act, str(tmp_path / "box")]
    subprocess.run(command, check=True, timeout=60)
    calls = [line for line in (tmp_path / "trace").read_text().splitlines() if str(tmp_path) in line]
    (renamed,) = (n for n, line in enumerate(calls) if "rename" in line and "rows-2.db" in line)
    draft = [line for line in calls[:renamed] if "draft.db>" in line]
    assert "pwrite64" in "".join(draft)
    assert "sync(" in draft[-1], draft[-3:]  # nothing is written to it after its last flush
    moved = next(n for n, line in enumerate(calls) if "rename" in line and "damaged.db" in line)
    assert any("sync(" in line and line.rstrip().endswith("= 0") for line in calls[renamed:moved]), calls
