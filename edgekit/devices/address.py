"""Device addresses of ``--device``: ``[user@]host[:port]``, reached over ssh, or ``adb:SERIAL``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from edgekit.errors import UsageError

_HOST = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9._-]*)@)?"
    r"(?P<host>[A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?\])"
    r"(?::(?P<port>[0-9]{1,5}))?"
)
_SERIAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]*")


@dataclass(frozen=True)
class DeviceAddress:
    """Address of a device.

    Attributes:
        text: Address as the user wrote it.
        kind: ``ssh`` or ``adb``.
        host: ``[user@]host`` for ssh, or adb's serial number. It never begins with a dash.
        port: Port of ssh. None means the port of ssh's configuration.
    """

    text: str
    kind: str
    host: str
    port: int | None = None


def parse_address(text: str) -> DeviceAddress:
    """Read an address.

    >>> parse_address("pi@board:2222").port, parse_address("adb:R5CT").host, parse_address("pi@[::1]").host
    (2222, 'R5CT', 'pi@::1')

    Raises:
        UsageError: it is neither form. Nothing in it can be taken for an option or for a part of a command.
    """
    kind, _, serial = text.partition(":")
    if kind == "adb" and _SERIAL.fullmatch(serial):
        return DeviceAddress(text, "adb", serial)
    match = _HOST.fullmatch(text)
    port = int(match["port"]) if match and match["port"] else None
    if match is None or kind == "adb" or (port is not None and not 0 < port < 65_536):
        raise UsageError(f"{text!r} is not a device: use user@host, user@host:port or adb:SERIAL")
    host = match["host"].strip("[]")
    return DeviceAddress(text, "ssh", f"{match['user']}@{host}" if match["user"] else host, port)
