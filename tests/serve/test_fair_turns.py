"""How much received data is processed in one turn of the event loop, and in which order the rest."""

from __future__ import annotations

import asyncio

import pytest

from edgekit.serve.connections import ConnectionLimits, Connections
from edgekit.serve.fair_turns import ADDRESS_PIECES, HELD_BYTES, PIECE_BYTES, TURN_PIECES
from edgekit.serve.paced_protocol import PacedProtocol

Log = list[tuple[int, str, bytes]]
FLOOD, OTHER = "192.0.2.1", "192.0.2.2"


class Wire:
    """A transport that notes what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def abort(self) -> None:
        self.close()

    def close(self) -> None:
        self.asked.append("close")

    def pause_reading(self) -> None:
        self.asked.append("pause")

    def resume_reading(self) -> None:
        self.asked.append("resume")

    def is_closing(self) -> bool:
        return "close" in self.asked


class Connection(PacedProtocol):
    """A connection that notes in which turn its data is processed."""

    scheme, paused = "http", False

    def __init__(self, table: Connections, host: str, log: Log, turn: list[int]) -> None:
        self.open_connections, self.transport = table, Wire()
        self._host, self._log, self._turn = host, log, turn
        assert table.open(self.transport, host)

    def process(self, data: bytes) -> None:
        self._log.append((self._turn[0], self._host, data))

    def reading_is_paused(self) -> bool:
        return self.paused


class Room:
    """A table of connections, and the turns of the running loop."""

    def __init__(self) -> None:
        self.table, self.log, self.turn = Connections(ConnectionLimits()), Log(), [0]

    def connections(self, host: str, count: int) -> list[Connection]:
        return [Connection(self.table, host, self.log, self.turn) for _ in range(count)]

    async def turns(self, count: int) -> None:
        for _ in range(count):
            self.turn[0] += 1
            await asyncio.sleep(0)


def in_loop(test: object) -> None:
    asyncio.run(test())  # type: ignore[operator]


def test_a_flood_of_one_address_delays_that_address_alone() -> None:
    async def test() -> None:
        room = Room()
        for number, connection in enumerate(room.connections(FLOOD, 10)):
            connection.data_received(b"%d" % number)
        room.connections(OTHER, 1)[0].data_received(b"x")
        assert [data for _, host, data in room.log if host == FLOOD] == [b"0", b"1"]
        assert (0, OTHER, b"x") in room.log
        await room.turns(20)
        flood = [entry for entry in room.log if entry[1] == FLOOD]
        assert [data for *_, data in flood] == [b"%d" % n for n in range(10)]
        turns = [sum(entry[0] == turn for entry in flood) for turn in sorted({entry[0] for entry in flood})]
        assert turns == [ADDRESS_PIECES, *[1] * (10 - ADDRESS_PIECES)], "one in a turn beside another address"

    in_loop(test)


def test_many_addresses_share_a_turn_and_alternate() -> None:
    async def test() -> None:
        room = Room()
        hosts = [f"198.51.100.{number}" for number in range(3 * TURN_PIECES)]
        for connection in [room.connections(host, 1)[0] for host in hosts for _ in range(2)]:
            connection.data_received(b"x")
        assert len(room.log) == TURN_PIECES
        await room.turns(20)
        assert len(room.log) == 2 * len(hosts)
        for turn in {entry[0] for entry in room.log}:
            assert sum(entry[0] == turn for entry in room.log) <= TURN_PIECES

    in_loop(test)


def test_a_large_piece_counts_as_several_and_pauses_its_connection() -> None:
    async def test() -> None:
        room = Room()
        one, two, three = room.connections(FLOOD, 3)
        one.data_received(bytes(ADDRESS_PIECES * PIECE_BYTES))
        two.data_received(bytes(HELD_BYTES))
        two.data_received(b"end")
        three.data_received(b"small")
        assert len(room.log) == 1
        assert (two.transport.asked, three.transport.asked) == (["pause"], [])
        await room.turns(5)
        assert [data for *_, data in room.log[1:]] == [bytes(HELD_BYTES) + b"end", b"small"]
        assert (two.transport.asked, two.held_bytes) == (["pause", "resume"], 0)

    in_loop(test)


@pytest.mark.parametrize(("others", "asked"), [(False, []), (True, ["pause", "resume"])])
def test_a_large_piece_is_followed_by_a_turn_of_others_where_there_are_some(
    others: bool, asked: list[str]
) -> None:
    async def test() -> None:
        room = Room()
        if others:
            room.connections(FLOOD, 1)[0].data_received(b"x")
            room.connections(OTHER, 1)[0].data_received(b"x")
            await room.turns(1)
        (large,) = room.connections(FLOOD, 1)
        large.data_received(bytes(HELD_BYTES + 1))
        assert (room.log[-1][2], large.transport.asked) == (bytes(HELD_BYTES + 1), asked[:1])
        await room.turns(3)
        assert large.transport.asked == asked
        large.data_received(b"end")
        assert room.log[-1][2] == b"end"

    in_loop(test)


@pytest.mark.parametrize("paused", [False, True])
def test_a_connection_is_read_on_unless_its_protocol_wants_no_more(paused: bool) -> None:
    async def test() -> None:
        room = Room()
        for connection in room.connections(FLOOD, ADDRESS_PIECES):
            connection.data_received(b"x")
        (held,) = room.connections(FLOOD, 1)
        held.paused = paused
        held.data_received(bytes(HELD_BYTES + 1))
        await room.turns(5)
        assert held.transport.asked == (["pause"] if paused else ["pause", "resume"])

    in_loop(test)


def test_clients_that_leave_at_once_are_closed_in_turns_after_their_data() -> None:
    async def test() -> None:
        room = Room()
        connections = room.connections(FLOOD, 10)
        kept = [bool(connection.eof_received()) for connection in connections]
        assert kept == [False] * ADDRESS_PIECES + [True] * (10 - ADDRESS_PIECES)
        (last,) = room.connections(FLOOD, 1)
        last.data_received(b"x")
        assert last.eof_received()
        await room.turns(10)
        assert all(c.transport.is_closing() for c in connections[ADDRESS_PIECES:])
        assert last.transport.is_closing()
        assert room.log[-1][1:] == (FLOOD, b"x")
        (secure,) = room.connections(FLOOD, 1)
        secure.scheme = "https"  # a connection of TLS can't be kept half open
        assert not secure.eof_received()

    in_loop(test)


def test_a_lost_connection_processes_nothing() -> None:
    async def test() -> None:
        room = Room()
        for connection in room.connections(FLOOD, ADDRESS_PIECES):
            connection.data_received(b"x")
        (lost,) = room.connections(FLOOD, 1)
        lost.data_received(b"lost")
        lost.drop_held()
        await room.turns(5)
        assert len(room.log) == ADDRESS_PIECES

    in_loop(test)


def test_a_rest_is_processed_too_where_others_wait() -> None:
    class Frames(Connection):
        """A connection that processes a byte at a time."""

        def process(self, data: bytes) -> None:
            super().process(data[:1])
            if data[1:]:
                self.hold(data[1:])

    async def test() -> None:
        room = Room()
        connections = [Frames(room.table, FLOOD, room.log, room.turn) for _ in range(ADDRESS_PIECES + 3)]
        for connection in connections:
            connection.data_received(b"abc")
        assert [data for *_, data in room.log] == [b"a"] * ADDRESS_PIECES
        await room.turns(20)
        assert sorted(data for *_, data in room.log) == sorted([b"a", b"b", b"c"] * len(connections))
        assert all(connection.held_bytes == 0 for connection in connections)
        ending = Frames(room.table, FLOOD, room.log, room.turn)
        ending.data_received(b"xyz")
        assert ending.eof_received()
        await room.turns(5)
        assert [data for *_, data in room.log[-3:]] == [b"x", b"y", b"z"]
        assert ending.transport.is_closing()

    in_loop(test)
