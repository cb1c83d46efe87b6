"""Watch of the open HTTP connections of a server: their number, their share by address, and their times.

uvicorn has no such limits. Its ``Server.server_state`` is not documented; the tests pin what is used.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any

from edgekit.errors import UsageError
from edgekit.serve.serve_request import CONNECTIONS

FILES = 64
"""Open files of a process in addition to its connections: engines, bundles, pipes, the listening sockets."""
UNREAD_SECONDS = 30.0
"""Time in which a client must read some of the data that is ready for it."""
CLOSING_SECONDS = 5.0
"""Time for the last bytes of a connection that is being closed."""
LOOK_SECONDS = 0.5


class Watched:
    """A connection of uvicorn with the attributes that the watch needs.

    Attributes:
        due_s: Time of ``time.monotonic`` by which the client must have sent more. It is infinite while the
            client waits for the server.
        unread_bytes: Size of the data that the client had not read when the watch last looked.
        unread_since_s: Time at which the client last read some of it.
    """

    transport: Any
    client: Any
    due_s = opened_s = unread_since_s = float("inf")
    unread_bytes = 0

    def overdue(self) -> None:
        """Close the connection of a client that took too long."""
        self.transport.abort()


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one process."""

    total: int = CONNECTIONS
    address: int = CONNECTIONS // 2
    grpc: int = 0


def connection_limits(
    connections: int, share: float, open_files: int | None, grpc: bool = False
) -> ConnectionLimits:
    """Compute the limits from the options and from the number of files that a process may open.

    >>> connection_limits(1024, 0.5, 1024)
    ConnectionLimits(total=960, address=480, grpc=0)
    >>> connection_limits(1024, 1.0, None, grpc=True)
    ConnectionLimits(total=768, address=768, grpc=256)

    Args:
        open_files: Limit of open files. None means no limit, or not known.
        grpc: Whether a quarter of them are of the port of gRPC.

    Raises:
        UsageError: so few files may be opened that no connection is left.
    """
    total = connections
    if open_files is not None:
        total = min(connections, open_files - FILES)
        if total < 8:
            raise UsageError(
                f"this process may open {open_files} files, and needs {FILES} of them for other things than "
                "connections; raise the limit (ulimit -n, or LimitNOFILE= of systemd)"
            )
    of_grpc = total // 4 if grpc else 0
    total -= of_grpc
    return ConnectionLimits(total, max(1, int(total * share)), of_grpc)


def raised_open_files(needed: int) -> int | None:
    """Raise this process's soft limit of open files as far as it may and needs to, and return it, or None if
    there is no limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return None if soft == resource.RLIM_INFINITY else soft


@lru_cache(maxsize=4096)  # looked up for each connection, again and again in a flood
def network_of(host: str) -> str:
    """Return what counts as one address: an IPv4 address, or 64 bits of an IPv6 one, which one client has.

    >>> network_of("192.0.2.7"), network_of("::ffff:192.0.2.7"), network_of("2001:db8::1:2%eth0")
    ('192.0.2.7', '192.0.2.7', '2001:db8::')
    """
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket
        return host
    if not isinstance(address, IPv6Address):
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> 64 << 64))


class ConnectionWatch:
    """Watch of one process. Used in its event loop only."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits

    def look(self, connections: Iterable[Watched], now_s: float | None = None) -> None:
        """End the connections that are overdue, not read, or too many. Called each LOOK_SECONDS."""
        now_s = time.monotonic() if now_s is None else now_s
        watched = [connection for connection in connections if connection.transport is not None]
        for connection in watched:
            unread_bytes = connection.transport.get_write_buffer_size()
            if not 0 < connection.unread_bytes <= unread_bytes:
                connection.unread_since_s = now_s
            connection.unread_bytes = unread_bytes
            if unread_bytes and now_s > connection.unread_since_s + UNREAD_SECONDS:
                connection.transport.abort()
            elif now_s > connection.due_s:
                connection.overdue()
        self.make_room(watched)

    def opened(self, connections: Collection[Any]) -> None:
        """Make room for a new connection at once if there are too many."""
        if len(connections) > self.limits.total:
            self.make_room(connections)

    def make_room(self, connections: Iterable[Any]) -> None:
        """End the connections that are too many of one address, or of all."""
        for connection in surplus(connections, self.limits):
            connection.transport.abort()


def surplus(connections: Iterable[Watched], limits: ConnectionLimits) -> list[Watched]:
    """Return the connections beyond the limits: of an address that has more than its share, and of the
    addresses with the most. Those that have waited longest for their client come first, and then the newest.
    """
    by_network: dict[str, list[Watched]] = {}
    for connection in connections:
        network = network_of(connection.client[0]) if connection.client else ""
        by_network.setdefault(network, []).append(connection)
    closing = []
    for group in by_network.values():
        if len(group) > limits.address:
            group.sort(key=_order)
            closing += group[: -limits.address]
            del group[: -limits.address]
    for _ in range(sum(map(len, by_network.values())) - limits.total):
        largest = max(by_network.values(), key=len)
        closing.append(min(largest, key=_order))
        largest.remove(closing[-1])
    return closing


def _order(connection: Watched) -> tuple[float, float]:
    return connection.due_s, -connection.opened_s
