"""The outbox's file damaged, its disk full or failing, its place taken."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from edgekit.errors import UsageError
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import OutboxLimits, Parcel
from tests.fixtures.threads import until
from tests.runtime.outbox.outbox_parts import ListSink, put_all, quick


def filled(folder: Path, rows: int = 400) -> Path:
    with quick(folder) as outbox:
        put_all(outbox, *(f"k{n}" for n in range(rows)), body=b"x" * 500)
    return folder / "rows-1.db"


@pytest.mark.parametrize("page", [1, 2, 5, 20, -1])
def test_a_damaged_file_is_rebuilt_from_what_can_be_read(tmp_path: Path, page: int) -> None:
    path = filled(tmp_path)
    content = bytearray(path.read_bytes())
    start = 4096 * (page if page >= 0 else len(content) // 4096 - 1)
    content[start : start + 4096] = b"\xa5" * 4096
    path.write_bytes(content)
    with quick(tmp_path) as outbox:
        counts = outbox.counts()
        if counts["rebuilt"]:
            assert (tmp_path / "damaged.db").read_bytes() == content
            assert sorted(p.name for p in tmp_path.glob("rows-*.db")) == ["rows-2.db"]
        put_all(outbox, "new")
        sink = ListSink()
        while outbox.deliver(sink).delivered:
            pass
        assert all(parcel.body == b"x" * 500 for parcel in sink.parcels[:-1])
        # A leaf of the table holds seven rows. SQLite also gives up on neighbours that it reads ahead.
        assert sink.keys[-1] == "new"
        if page not in (1, 2):
            assert len(sink.keys) >= 385
        assert outbox.counts()["disk_errors"] == 0


def test_what_is_no_database_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "rows-1.db").write_bytes(b"not a database" * 1000)
    with quick(tmp_path) as outbox:
        assert outbox.counts()["rebuilt"] == 1
        put_all(outbox, "a")
    with quick(tmp_path) as outbox:
        assert (outbox.counts()["rebuilt"], outbox.counts()["waiting"]) == (1, 1)


def test_a_row_whose_bytes_rotted_is_not_delivered(tmp_path: Path) -> None:
    path = filled(tmp_path, rows=20)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"x" * 500, b"x" * 499 + b"y", 1))
    sink = ListSink()
    with quick(tmp_path) as outbox:
        outbox.deliver(sink)
        counts = outbox.counts()
    assert (len(sink.keys), counts["damaged"], counts["size_bytes"], counts["rebuilt"]) == (19, 1, 0, 0)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with quick(tmp_path), pytest.raises(UsageError) as error:
        Outbox(tmp_path)
    assert str(error.value) == (
        f"the outbox {tmp_path} cannot be opened: another process has it open; give each its own folder"
    )


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as error:
        Outbox(tmp_path / "file")
    assert str(error.value) == (
        f"the outbox {tmp_path / 'file'} cannot be opened: File exists; "
        "free some space, or use another folder"
    )


def test_a_disk_that_fails_for_a_while_loses_nothing(tmp_path: Path) -> None:
    with quick(tmp_path) as outbox:
        store, calls = outbox._store, []
        append = store.append

        def failing(parcels: list[Parcel], lost: int) -> set[str]:
            calls.append(len(parcels))
            if len(calls) < 3:
                raise sqlite3.OperationalError("disk I/O error")
            return append(parcels, lost)

        store.append = failing  # type: ignore[method-assign, assignment]
        put_all(outbox, *"abc")
        assert outbox.counts()["disk_errors"] == 2
        assert outbox.counts()["waiting"] == 3
        assert outbox.trouble == ""


def test_what_was_delivered_and_not_written_down_is_not_sent_again(tmp_path: Path) -> None:
    sink = ListSink()
    with quick(tmp_path) as outbox:
        put_all(outbox, *"abc")
        record, failing = outbox._store.record_results, Mock(side_effect=sqlite3.OperationalError("full"))
        outbox._store.record_results = failing  # type: ignore[method-assign]
        assert outbox.deliver(sink).down == "the disk of the outbox: full"
        assert outbox.deliver(sink).down == "the disk of the outbox: full"
        assert outbox._store.record_results is failing
        outbox._store.record_results = record  # type: ignore[method-assign]
        outbox.deliver(sink)
        assert outbox.counts()["waiting"] == 0
    assert sink.keys == ["a", "b", "c"]


def test_a_full_disk_holds_rows_in_memory_up_to_the_cap_and_drops_the_least_important(tmp_path: Path) -> None:
    with Outbox(tmp_path, limits=OutboxLimits(memory_bytes=10_000), commit_s=0.0) as outbox:
        full = threading.Event()
        append = outbox._store.append

        def failing(parcels: list[Parcel], lost: int) -> set[str]:
            if not full.is_set():
                raise sqlite3.OperationalError("database or disk is full")
            return append(parcels, lost)

        outbox._store.append = failing  # type: ignore[method-assign, assignment]
        logs = [outbox.put(bytes(900), "log") for _ in range(20)]
        results = [outbox.put(bytes(900), "result") for _ in range(5)]
        full.set()
        assert all(receipt.wait(60) for receipt in results)
        assert outbox.flush(60)
        states = [receipt.state for receipt in logs]
        counts = outbox.counts()
        assert counts["dropped_memory"] == states.count("dropped") > 0
        assert counts["waiting"] == states.count("stored") + 5


def test_a_write_that_fails_costs_no_result_that_came_meanwhile(tmp_path: Path) -> None:
    with Outbox(tmp_path, limits=OutboxLimits(memory_bytes=10_000), commit_s=0.0) as outbox:
        begun, end = threading.Event(), threading.Event()
        append = outbox._store.append

        def failing(parcels: list[Parcel], lost: int) -> set[str]:
            if end.is_set():
                return append(parcels, lost)
            begun.set()
            end.wait(60)
            raise sqlite3.OperationalError("database or disk is full")

        outbox._store.append = failing  # type: ignore[method-assign, assignment]
        logs = [outbox.put(bytes(4_000), "log") for _ in range(2)]
        assert begun.wait(60)
        results = [outbox.put(bytes(4_000), "result") for _ in range(2)]
        until(lambda: sum(map(len, outbox._pending.values())) >= 2)
        end.set()
        assert all(receipt.wait(60) for receipt in results)
        assert outbox.flush(60)
        assert [receipt.state for receipt in results] == ["stored"] * 2
        assert "dropped" in [receipt.state for receipt in logs]


def test_a_database_at_its_page_limit_acknowledges_nothing_and_goes_on(tmp_path: Path) -> None:
    with quick(tmp_path) as outbox:
        put_all(outbox, "a")
        outbox._store._connection.execute("PRAGMA max_page_count = 12")
        outbox._store.reopen = lambda: None  # type: ignore[method-assign]  # it would lift the limit
        receipt = outbox.put(bytes(200_000), key="large")
        until(lambda: outbox.trouble == "database or disk is full")
        assert not receipt.wait(0.3)
        assert receipt.state == "waiting"
        outbox._store._connection.execute("PRAGMA max_page_count = 10000")
        assert receipt.wait(20)
