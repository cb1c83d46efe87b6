"""Open HTTP connections of one server process: how many there may be, of one address and of all.

A connection that waits for its client makes room for a new one. The oldest goes first: of the same address
where that has its share, else of the address with the most connections.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from edgekit.errors import UsageError
from edgekit.serve.fair_turns import FairTurns
from edgekit.serve.serve_request import CONNECTIONS

FILES = 64
"""Open files of a process beside its connections: engines, bundles, pipes, the listening sockets."""


class Transport(Protocol):
    """Methods of an asyncio transport that are used here."""

    def abort(self) -> None: ...


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of one process.

    Attributes:
        total: Maximum number of connections over HTTP.
        address: Maximum number of them of one address.
        grpc: Maximum number of connections over gRPC.
    """

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
        connections: Requested maximum number of connections.
        share: Share of them that an address may have.
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
    """Raise this process's soft limit of open files as far as it may and needs to, and return it.

    None where there is no such limit.
    """
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return None if soft == resource.RLIM_INFINITY else soft


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


class Connections:
    """Open connections of one process. Used in its event loop only.

    Args:
        limits: See there.

    Attributes:
        turns: Shares of the addresses in a turn of the event loop.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.turns = FairTurns()
        self._limits = limits
        self._networks: dict[Transport, str] = {}
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, dict[Transport, None]] = {}  # in the order in which they began to wait

    def __len__(self) -> int:
        return len(self._networks)

    def open(self, transport: Transport, host: str) -> bool:
        """Count a new connection, which waits for its client; False: there are too many that do not wait.

        Args:
            transport: Transport of the connection.
            host: Address of its client.
        """
        network = network_of(host)
        count = self._counts.get(network, 0)
        if count >= self._limits.address:
            if not self._drop_oldest([network]):
                return False
        elif len(self._networks) >= self._limits.total:
            by_count = sorted(self._counts, key=self._counts.__getitem__, reverse=True)
            if not self._drop_oldest(by_count):
                return False
        self._networks[transport] = network
        self._counts[network] = self._counts.get(network, 0) + 1
        self.waits(transport)
        return True

    def network(self, transport: Transport) -> str:
        """Return the address of a connection, as ``network_of`` has it; "" for one that was refused."""
        return self._networks.get(transport, "")

    def _drop_oldest(self, networks: list[str]) -> bool:
        for network in networks:
            oldest = next(iter(self._waiting.get(network, ())), None)
            if oldest is not None:
                self.closed(oldest)
                oldest.abort()
                return True
        return False

    def waits(self, transport: Transport) -> None:
        """Note that the server waits for the client of a connection from now on."""
        network = self._networks.get(transport)
        if network is not None:
            self._waiting.setdefault(network, {})[transport] = None

    def works(self, transport: Transport) -> None:
        """Note that the client of a connection waits for the server."""
        network = self._networks.get(transport)
        if network is not None and network in self._waiting:
            self._waiting[network].pop(transport, None)

    def closed(self, transport: Transport) -> None:
        """Count a connection no more."""
        self.works(transport)
        network = self._networks.pop(transport, None)
        if network is None:
            return
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]
            self._waiting.pop(network, None)
