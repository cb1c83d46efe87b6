"""How many connections there may be, and which one makes room for another."""

from __future__ import annotations

import pytest

from edgekit.errors import UsageError
from edgekit.serve.connections import (
    FILES,
    ConnectionLimits,
    Connections,
    connection_limits,
    raised_open_files,
)
from edgekit.serve.serve_request import CONNECTIONS


class Wire:
    """A transport that notes that it was closed."""

    closed = False

    def abort(self) -> None:
        self.closed = True


def opened(connections: Connections, host: str, count: int) -> list[Wire]:
    wires = [Wire() for _ in range(count)]
    assert all(connections.open(wire, host) for wire in wires)
    return wires


def test_the_oldest_that_waits_makes_room_in_the_share_of_its_address() -> None:
    connections = Connections(ConnectionLimits(total=10, address=4))
    first, second, *others = opened(connections, "192.0.2.1", 4)
    (other,) = opened(connections, "192.0.2.2", 1)
    connections.works(first)  # its client waits for an answer
    opened(connections, "192.0.2.1", 1)
    assert [wire.closed for wire in (first, second, *others, other)] == [False, True, False, False, False]
    connections.waits(first)  # again, and later than the others
    opened(connections, "192.0.2.1", 1)
    assert (others[0].closed, first.closed) == (True, False)
    assert len(connections) == 5


def test_an_address_whose_requests_are_all_being_answered_gets_no_more() -> None:
    connections = Connections(ConnectionLimits(total=10, address=2))
    busy = opened(connections, "192.0.2.1", 2)
    for wire in busy:
        connections.works(wire)
    assert not connections.open(Wire(), "192.0.2.1")
    opened(connections, "192.0.2.2", 2)  # others do
    connections.closed(busy[0])
    opened(connections, "192.0.2.1", 1)


def test_the_address_with_most_connections_makes_room_for_a_new_one() -> None:
    connections = Connections(ConnectionLimits(total=6, address=4))
    few, many = opened(connections, "192.0.2.1", 2), opened(connections, "192.0.2.2", 4)
    opened(connections, "192.0.2.3", 1)
    assert [wire.closed for wire in (*few, *many)] == [False, False, True, False, False, False]
    for wire in many:
        connections.works(wire)
    opened(connections, "192.0.2.4", 1)  # the next address with one that waits
    assert few[0].closed
    for each in list(connections._networks):
        connections.works(each)
    assert not connections.open(Wire(), "192.0.2.5")


def test_a_client_with_many_addresses_of_one_network_has_one_share() -> None:
    connections = Connections(ConnectionLimits(total=10, address=2))
    first, *_ = opened(connections, "2001:db8::1", 1) + opened(connections, "2001:db8::2", 1)
    opened(connections, "2001:db8::3", 1)
    assert first.closed
    opened(connections, "2001:db8:0:1::1", 1)
    assert len(connections) == 3


def test_two_hundred_connections_of_one_address_are_no_attack() -> None:
    connections = Connections(connection_limits(CONNECTIONS, 0.5, 1024))
    wires = opened(connections, "192.0.2.1", 200)
    assert not any(wire.closed for wire in wires)


def test_what_is_closed_is_forgotten() -> None:
    connections = Connections(ConnectionLimits())
    for wire in opened(connections, "192.0.2.1", 3) + opened(connections, "", 3):
        connections.closed(wire)
        connections.closed(wire)
        connections.waits(wire)
    assert (len(connections), connections._counts, connections._waiting) == (0, {}, {})


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
