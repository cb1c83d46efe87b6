"""Limits on the number and the times of connections, and the order in which they are closed."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.errors import UsageError
from edgekit.serve.connection_watch import (
    CLOSING_SECONDS,
    FILES,
    UNREAD_SECONDS,
    ConnectionLimits,
    ConnectionWatch,
    Watched,
    connection_limits,
    raised_open_files,
    surplus,
)
from edgekit.serve.serve_request import CONNECTIONS


class Wire(Watched):
    """A connection that is its own transport, and notes how it ended."""

    def __init__(self, host: str = "192.0.2.1", due_s: float = 100.0, opened_s: float = 0.0) -> None:
        self.client, self.due_s, self.opened_s = (host, 1), due_s, opened_s
        self.transport: Any = self
        self.ends: list[str] = []
        self.buffer_bytes = 0

    def abort(self) -> None:
        self.ends.append("aborted")

    def overdue(self) -> None:
        self.ends.append("overdue")

    def get_write_buffer_size(self) -> int:
        return self.buffer_bytes


NEVER = float("inf")


def test_those_that_waited_longest_make_room_in_the_share_of_their_address() -> None:
    works, late, later, other = Wire(due_s=NEVER), Wire(due_s=1), Wire(due_s=2), Wire("192.0.2.2", due_s=0)
    limits = ConnectionLimits(total=10, address=2)
    assert surplus([works, later, late, other], limits) == [late]
    assert surplus([works, later, late, Wire(due_s=3), other], limits) == [late, later]


def test_the_newest_go_if_the_server_works_for_all_of_an_address() -> None:
    wires = [Wire(due_s=NEVER, opened_s=number) for number in range(4)]
    assert surplus(wires, ConnectionLimits(total=10, address=2)) == [wires[3], wires[2]]


def test_the_address_with_most_connections_makes_room() -> None:
    few = [Wire("192.0.2.1", due_s=0) for _ in range(2)]
    many = [Wire("192.0.2.2", due_s=number) for number in range(4)]
    assert surplus([*few, *many], ConnectionLimits(total=5, address=4)) == [many[0]]
    assert surplus([*few, *many], ConnectionLimits(total=4, address=4)) == many[:2]


def test_a_client_with_many_addresses_of_one_network_has_one_share() -> None:
    limits = ConnectionLimits(total=10, address=2)
    wires = [Wire(f"2001:db8::{number}", due_s=number) for number in range(3)]
    assert surplus([*wires, Wire("2001:db8:0:1::1", due_s=0)], limits) == [wires[0]]


def test_two_hundred_connections_of_one_address_are_no_attack() -> None:
    assert surplus([Wire() for _ in range(200)], connection_limits(CONNECTIONS, 0.5, 1024)) == []


def test_times() -> None:
    watch, late, works = ConnectionWatch(ConnectionLimits()), Wire(due_s=9.9), Wire(due_s=NEVER)
    watch.look([late, works], 9.8)
    assert late.ends == []
    watch.look([late, works], 10.0)
    assert (late.ends, works.ends) == (["overdue"], [])


def test_data_that_a_client_does_not_read() -> None:
    watch, stuck, slow, done = ConnectionWatch(ConnectionLimits()), Wire(), Wire(), Wire()
    for wire in (stuck, slow, done):
        wire.due_s, wire.buffer_bytes = NEVER, 1000
    watch.look([stuck, slow, done], 0.0)
    slow.buffer_bytes, done.buffer_bytes, stuck.buffer_bytes = 999, 0, 2000
    watch.look([stuck, slow, done], UNREAD_SECONDS / 2)
    watch.look([stuck, slow, done], UNREAD_SECONDS + 1)
    assert (stuck.ends, slow.ends, done.ends) == (["aborted"], [], [])
    watch.look([slow, done], 2 * UNREAD_SECONDS)
    assert (slow.ends, done.ends) == (["aborted"], [])
    assert CLOSING_SECONDS < UNREAD_SECONDS


def test_the_limit_keeps_within_the_open_files() -> None:
    for files in (128, 256, 1024, 4096):
        limits = connection_limits(CONNECTIONS, 0.5, files)
        assert limits.total + FILES <= files
    assert connection_limits(100, 1.0, 4096) == ConnectionLimits(100, 100)
    with pytest.raises(UsageError) as error:
        connection_limits(CONNECTIONS, 0.5, 64)
    assert str(error.value) == (
        "this process may open 64 files, and needs 64 of them for other things than "
        "connections; raise the limit (ulimit -n, or LimitNOFILE= of systemd)"
    )


def test_the_soft_limit_of_open_files_is_raised_as_far_as_it_may() -> None:
    resource = pytest.importorskip("resource", reason="Windows has no such limit")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        assert raised_open_files(300) == 300
        assert raised_open_files(200) == 300
        if hard != resource.RLIM_INFINITY:
            assert raised_open_files(hard + 1) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
