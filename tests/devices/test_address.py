from __future__ import annotations

import pytest

from edgekit.devices.transport import parse_address
from edgekit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "kind", "host", "port"),
    [
        ("board", "ssh", "board", None),
        ("pi@192.168.1.5", "ssh", "pi@192.168.1.5", None),
        ("pi@board.local:2222", "ssh", "pi@board.local", 2222),
        ("pi@[fe80::1%eth0]:22", "ssh", "pi@fe80::1%eth0", 22),
        ("adb:R5CT20ABCDE", "adb", "R5CT20ABCDE", None),
        ("adb:192.168.1.5:5555", "adb", "192.168.1.5:5555", None),
    ],
)
def test_an_address_is_read(text: str, kind: str, host: str, port: int | None) -> None:
    found = parse_address(text)
    assert (found.text, found.kind, found.host, found.port) == (text, kind, host, port)


@pytest.mark.parametrize(
    "text",
    [
        "", "-oProxyCommand=reboot", "pi@-oProxyCommand=reboot", "-l@board", "pi@board;reboot",
        "pi@$(reboot)", "pi@board reboot", "pi@board\nreboot", "pi@board:0", "pi@board:70000", "pi@board:x",
        "adb:", "adb:-d", "adb:a b", "pi@", "a@b@c",
    ],
)  # fmt: skip
def test_what_is_none_is_refused(text: str) -> None:
    """Nothing that ssh could take for an option, or a shell for more than a word, gets any further."""
    with pytest.raises(UsageError, match=r"is not a device: use user@host, user@host:port or adb:SERIAL"):
        parse_address(text)
