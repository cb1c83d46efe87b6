"""Addresses of ``--listen``."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.errors import UsageError

PORT = 8080


@dataclass(frozen=True)
class Address:
    """Address on which a server listens."""

    host: str = "127.0.0.1"
    port: int = PORT

    @property
    def loopback(self) -> bool:
        return self.host in ("127.0.0.1", "localhost", "::1")

    @property
    def shown(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def address_of(listen: str | None, option: str = "--listen") -> Address:
    """``HOST:PORT``, ``HOST`` or ``:PORT``. None means loopback.

    >>> address_of("0.0.0.0:9000"), address_of(":0").port, address_of("[::1]:80").host
    (Address(host='0.0.0.0', port=9000), 0, '::1')

    Raises:
        UsageError: it is none of them.
    """
    if listen is None:
        return Address()
    host, colon, port = listen.rpartition(":")
    if not colon or listen.endswith("]"):
        host, port = listen, str(PORT)
    if not port.isdecimal() or int(port[:6]) > 65535:
        raise UsageError(f"{option} is {listen!r}; it must be HOST:PORT, e.g. 0.0.0.0:{PORT}")
    return Address(host.strip("[]") or Address.host, int(port))
