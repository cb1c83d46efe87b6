"""Rows go in, survive, come out under their keys, and go only by rules that are counted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgekit.errors import UsageError
from edgekit.runtime.outbox.outbox import Outbox
from edgekit.runtime.outbox.rows import PRIORITIES, OutboxLimits, Parcel
from edgekit.runtime.outbox.sinks import RowRefusedError, SinkDownError
from edgekit.runtime.outbox.sqlite_store import OutboxStore
from tests.runtime.outbox.outbox_parts import ListSink, put_all, quick


def test_what_is_put_in_comes_out_in_order_and_once(tmp_path: Path) -> None:
    sink = ListSink()
    with quick(tmp_path) as outbox:
        receipts = [outbox.put(f"row {n}".encode()) for n in range(150)]
        assert all(receipt.wait(20) for receipt in receipts)
        rounds = [outbox.deliver(sink).delivered for _ in range(4)]
        assert rounds == [64, 64, 22, 0]
        assert [parcel.body for parcel in sink.parcels] == [f"row {n}".encode() for n in range(150)]
        assert len(set(sink.keys)) == 150
        counts = outbox.counts()
        assert (counts["waiting"], counts["size_bytes"], counts["delivered"]) == (0, 0, 150)
        assert (counts["pending"], counts["disk_errors"], outbox.trouble) == (0, 0, "")


def test_a_thread_delivers_what_an_earlier_process_left_and_what_comes(tmp_path: Path) -> None:
    with quick(tmp_path) as outbox:
        put_all(outbox, "left")
    sink = ListSink()
    with Outbox(tmp_path, sink, commit_s=0.0) as outbox:
        assert sink.came.wait(20)
        sink.came.clear()
        outbox.put(b"new", key="new")
        assert sink.came.wait(20)
    assert sink.keys == ["left", "new"]
    assert sink.closed


def test_rows_that_arrive_together_share_a_flush(tmp_path: Path) -> None:
    groups: list[int] = []
    with Outbox(tmp_path, commit_s=0.2) as outbox:
        append = outbox._store.append

        def counted(parcels: list[Parcel], lost: int) -> set[str]:
            groups.append(len(parcels))
            return append(parcels, lost)

        outbox._store.append = counted  # type: ignore[method-assign, assignment]
        put_all(outbox, *"abcdefgh")
    assert groups == [8]


def test_the_same_key_is_the_same_row(tmp_path: Path) -> None:
    sink = ListSink()
    with quick(tmp_path) as outbox:
        put_all(outbox, "a", body=b"first")
        assert outbox.put(b"second", key="a").wait(20)
        outbox.deliver(sink)
    assert [parcel.body for parcel in sink.parcels] == [b"first"]


def test_the_important_kinds_go_first(tmp_path: Path) -> None:
    sink = ListSink()
    with quick(tmp_path) as outbox:
        put_all(outbox, "l", kind="log")
        put_all(outbox, "m", kind="metric")
        put_all(outbox, "r1", "r2")
        outbox.deliver(sink)
    assert sink.keys == ["r1", "r2", "m", "l"]


def test_no_room_drops_the_least_important_then_the_oldest_and_counts(tmp_path: Path) -> None:
    row = 100 + 2 + 900  # what a row of a two letter key takes
    with quick(tmp_path, OutboxLimits(size_bytes=4 * row)) as outbox:
        for key, kind in (("l1", "log"), ("r1", "result"), ("l2", "log"), ("m1", "metric"), ("r2", "result")):
            put_all(outbox, key, kind=kind, body=bytes(900))
        put_all(outbox, "r3", body=bytes(900))  # l2 goes
        late = outbox.put(bytes(900), "log", "l3")
        assert not late.wait(20)
        assert late.state == "dropped"
        sink = ListSink()
        outbox.deliver(sink)
        assert sink.keys == ["r1", "r2", "r3", "m1"]
        assert outbox.counts()["dropped_room"] == 3
    with quick(tmp_path) as outbox:
        assert outbox.counts()["dropped_room"] == 3


@settings(max_examples=12)
@given(st.lists(st.tuples(st.sampled_from(sorted(PRIORITIES)), st.integers(0, 3000)), max_size=40))
def test_whatever_comes_the_caps_hold_and_nothing_more_important_goes(rows: list[tuple[str, int]]) -> None:
    import tempfile

    limit_bytes = 10_000
    with tempfile.TemporaryDirectory() as folder:
        store = OutboxStore(Path(folder), OutboxLimits(size_bytes=limit_bytes))
        for number, (kind, size_bytes) in enumerate(rows):
            before = {p.key: p for p in store.waiting(100, 1 << 30)}
            new = Parcel(f"k{number}", kind, bytes(size_bytes), 0.0)
            dropped = store.append([new])
            after = {p.key: p for p in store.waiting(100, 1 << 30)}
            held = sum(p.size_bytes for p in after.values())
            assert held == store.counts()["size_bytes"] <= limit_bytes
            gone = [p for p in (*before.values(), new) if p.key not in after]
            assert (new.key in dropped) == (new.key not in after)
            stays = min((PRIORITIES[p.kind] for p in after.values()), default=2)
            assert all(PRIORITIES[p.kind] <= stays for p in gone)
        counts = store.counts()
        assert counts["waiting"] + counts["dropped_room"] == len(rows)
        store.close()


def test_the_file_and_its_log_stay_within_the_disk_cap(tmp_path: Path) -> None:
    limits = OutboxLimits(size_bytes=1 << 20, memory_bytes=1 << 20)
    with quick(tmp_path, limits) as outbox:
        for size_bytes in (100, 2100, 4100):
            for _ in range(2_000_000 // size_bytes // 200):
                for _ in range(200):
                    outbox.put(bytes(size_bytes))
                assert outbox.flush(20)
                held = sum(path.stat().st_size for path in tmp_path.iterdir())
                assert held < 3 * limits.size_bytes + 2 * limits.memory_bytes + (1 << 20)
        assert outbox.counts()["disk_errors"] == 0


class Clocks:
    def __init__(self, wall_s: float) -> None:
        self.wall_s, self.monotonic_s = wall_s, 50.0

    def store(self, folder: Path) -> OutboxStore:
        return OutboxStore(folder, OutboxLimits(age_s=100.0), lambda: self.monotonic_s, lambda: self.wall_s)


def test_what_is_too_old_is_dropped_and_counted(tmp_path: Path) -> None:
    clocks = Clocks(1.8e9)
    store = clocks.store(tmp_path)
    store.append([Parcel("a", "result", b"", 0.0)])
    clocks.monotonic_s += 60
    clocks.wall_s += 60
    store.append([Parcel("b", "result", b"", 0.0)])
    store.close()
    clocks.wall_s += 45  # while it was off
    clocks.monotonic_s = 3.0
    store = clocks.store(tmp_path)
    store.append([Parcel("c", "result", b"", 0.0)])
    assert keys_of(store) == ["b", "c"]
    assert store.counts()["dropped_age"] == 1
    store.close()


def keys_of(store: OutboxStore) -> list[str]:
    return [parcel.key for parcel in store.waiting(10, 1 << 20)]


@pytest.mark.parametrize("reopened", [False, True])
def test_a_clock_that_is_set_makes_nothing_old(tmp_path: Path, reopened: bool) -> None:
    """A board without a battery wakes up in 1970, and learns later what time it is."""
    clocks = Clocks(0.0)
    store = clocks.store(tmp_path)
    store.append([Parcel("a", "result", b"", 0.0)])
    if reopened:
        store.close()
    clocks.wall_s = 1.8e9
    if reopened:
        store = clocks.store(tmp_path)
    store.append([Parcel("b", "result", b"", 0.0)])
    assert keys_of(store) == ["a", "b"]
    store.close()


def test_a_clock_that_is_set_back_keeps_nothing_for_ever(tmp_path: Path) -> None:
    clocks = Clocks(2.8e9)
    store = clocks.store(tmp_path)
    store.append([Parcel("a", "result", b"", 0.0)])
    store.close()
    clocks.wall_s = 1.8e9
    store = clocks.store(tmp_path)
    clocks.monotonic_s += 150
    store.append([Parcel("b", "result", b"", 0.0)])
    assert keys_of(store) == ["b"]
    store.close()


# --- rows that nobody wants ------------------------------------------------------------------------------


def test_a_row_that_is_refused_again_and_again_is_quarantined_and_can_be_released(tmp_path: Path) -> None:
    def refuse(parcel: Parcel) -> None:
        if parcel.key == "bad":
            raise RowRefusedError("no such field")

    sink = ListSink(refuse)
    with quick(tmp_path, OutboxLimits(tries=3)) as outbox:
        put_all(outbox, "a", "bad", "b")
        assert [outbox.deliver(sink).refused for _ in range(4)] == [1, 1, 1, 0]
        assert sink.keys == ["a", "b"]
        (row,) = outbox.quarantined()
        assert (row.key, row.tries, row.reason, row.body) == ("bad", 3, "no such field", b"body")
        assert outbox.counts()["quarantined"] == 1
        sink.fails = lambda parcel: None
        assert outbox.release() == 1
        outbox.deliver(sink)
    assert sink.keys == ["a", "b", "bad"]


def test_a_row_that_kills_the_backend_holds_nobody_up_and_is_found_out(tmp_path: Path) -> None:
    def crash(parcel: Parcel) -> None:
        if parcel.key == "poison":
            raise OSError("it answered 500")

    sink = ListSink(crash)
    with quick(tmp_path, OutboxLimits(tries=2)) as outbox:
        put_all(outbox, "poison", "a", "b")
        for _ in range(4):
            outbox.deliver(sink)
            put_all(outbox, f"more{len(sink.keys)}")
        assert {"a", "b"} <= set(sink.keys)
        assert [row.key for row in outbox.quarantined()] == ["poison"]


@pytest.mark.parametrize("problem", [OSError("it answered 500"), SinkDownError("no route", 3.0)])
def test_an_outage_quarantines_nothing(tmp_path: Path, problem: Exception) -> None:
    def fail(parcel: Parcel) -> None:
        raise problem

    sink = ListSink(fail)
    with quick(tmp_path, OutboxLimits(tries=2)) as outbox:
        put_all(outbox, *"abc")
        for _ in range(20):
            delivery = outbox.deliver(sink)
            assert (delivery.delivered, delivery.refused) == (0, 0)
            assert delivery.down.endswith(str(problem))
            assert delivery.retry_after_s == getattr(problem, "retry_after_s", None)
        sink.fails = lambda parcel: None
        for _ in range(3):
            outbox.deliver(sink)
        assert sorted(sink.keys) == ["a", "b", "c"]
        assert outbox.quarantined() == []


# --- use -------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    with quick(tmp_path, OutboxLimits(row_bytes=10)) as outbox:
        with pytest.raises(UsageError) as error:
            outbox.put(bytes(11))
        assert str(error.value) == "the body is 11 bytes; expected at most 10 bytes"
        with pytest.raises(UsageError, match="the body is a str; expected at most 10 bytes"):
            outbox.put("text")  # type: ignore[arg-type]
        with pytest.raises(UsageError) as error:
            outbox.put(b"", "picture")
        assert str(error.value) == "unknown kind 'picture'; available: result, metric, log"
        for key in ("", "../a", ".a", "a/b", "a" * 129, "a b", "a\n"):
            with pytest.raises(UsageError, match=r"invalid key"):
                outbox.put(b"", key=key)
    with pytest.raises(UsageError, match="the outbox is closed; open a new one to put rows in"):
        outbox.put(b"")
    outbox.close()


def test_a_short_job_delivers_at_its_close(tmp_path: Path) -> None:
    sink = ListSink()
    with Outbox(tmp_path, sink) as outbox:
        for number in range(150):
            outbox.put(b"body", key=f"{number}")
    assert sorted(sink.keys, key=int) == [f"{number}" for number in range(150)]
    with quick(tmp_path) as outbox:
        assert (outbox.counts()["waiting"], outbox.counts()["delivered"]) == (0, 150)


def test_a_row_that_fails_at_the_close_holds_no_other_up(tmp_path: Path) -> None:
    def fails(parcel: Parcel) -> None:
        if parcel.key == "bad":
            raise OSError("the backend answered 500")

    sink = ListSink(fails)
    with Outbox(tmp_path, sink) as outbox:
        outbox.put(b"body", key="bad")
        outbox.put(b"body", key="good")
    assert sink.keys == ["good"]
    with quick(tmp_path) as outbox:
        assert outbox.counts()["waiting"] == 1


def test_a_sink_that_is_down_or_hangs_bounds_the_close(tmp_path: Path) -> None:
    tried: list[str] = []
    freed = threading.Event()

    def down(parcel: Parcel) -> None:
        tried.append(parcel.key)
        raise SinkDownError("no network")

    with Outbox(tmp_path, ListSink(down)) as outbox:
        outbox.put(b"body", key="a")
    assert 1 <= len(tried) <= 3

    def hang(parcel: Parcel) -> None:
        freed.wait(60)

    with Outbox(tmp_path, ListSink(hang), close_s=0.2):
        pass  # `freed` is not set before the end of the block
    assert not freed.is_set()
    freed.set()
    with quick(tmp_path) as outbox:
        assert outbox.counts()["waiting"] == 1
