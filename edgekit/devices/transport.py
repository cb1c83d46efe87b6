"""A command run on a device: by the system's ssh or by adb. What runs there is written by EdgeKit alone.

ssh is called with ``StrictHostKeyChecking=yes`` and ``BatchMode=yes``: an unknown or a changed host key, or a
password to be typed, is an error and never a question. Keys, names and jumps come from the user's ssh
configuration and agent. ``EDGEKIT_SSH`` is the command to run instead of ``ssh``, e.g. ``ssh -F board.conf``.

adb was not run on a phone: its commands are checked against a program that stands in for it.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass

from edgekit.errors import MissingDependency, UsageError

SSH_OPTIONS = (
    "-o", "BatchMode=yes",
    "-o", "StrictHostKeyChecking=yes",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3",
    "-o", "ClearAllForwardings=yes",
    "-T", "-a", "-x",
)  # fmt: skip
"""They stand before all others, and ssh takes the first value of an option. A dead connection is noticed
after 15 s."""

_SAID = {
    "Host key verification failed": "its host key is unknown here, or has changed: compare the fingerprint "
    "that `ssh {login}` shows with the device's, and accept it there",
    "Permission denied": "it requires a password: add your key with `ssh-copy-id {login}`",
    "Could not resolve hostname": "unknown host name: check it, or use its address",
    "Connection refused": "nothing listens there: start sshd on the device, or check the port",
    "Connection timed out": "it does not respond: is it switched on and on this network?",
    "No route to host": "it does not respond: is it switched on and on this network?",
    "device unauthorized": "allow this computer on the phone's screen",
    "' not found": "no such phone: `adb devices` lists the connected ones",
}


def command_line(address: DeviceAddress, remote: str) -> list[str]:
    """Return the arguments of ssh or adb that run a command on a device.

    Args:
        address: Address whose parts cannot be options.
        remote: A command for the device's shell; every part of it that varies is quoted by the caller.

    Raises:
        MissingDependency: ssh or adb is not installed here.
        UsageError: ``EDGEKIT_SSH`` is empty or is not a command.
    """
    if address.kind == "adb":
        return [_program("adb", "android-tools-adb"), "-s", address.host, "shell", "-T", remote]
    try:
        ssh_command = shlex.split(os.environ.get("EDGEKIT_SSH") or "ssh")
    except ValueError as problem:
        raise UsageError(f"EDGEKIT_SSH is not a command: {problem}") from None
    program = _program(ssh_command[0], "openssh-client")
    port = ["-p", str(address.port)] if address.port else []
    return [program, *SSH_OPTIONS, *ssh_command[1:], *port, "--", address.host, remote]


def start(address: DeviceAddress, remote: str) -> subprocess.Popen[bytes]:
    """Begin a command on a device, with its three streams as pipes. Raises: as :func:`command_line`."""
    return subprocess.Popen(
        command_line(address, remote),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C ends it through us, once what it does is known
    )


def why_unreachable(address: DeviceAddress, stderr: str) -> str:
    """Return a remedy for an error of ssh or adb, or else its last line."""
    port = f"-p {address.port} " if address.port else ""
    for message, remedy in _SAID.items():
        if message in stderr:
            return remedy.format(login=f"{port}{address.host}")
    lines = [line for line in stderr.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else f"{'adb' if address.kind == 'adb' else 'ssh'} gave no reason"


def _program(name: str, package: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingDependency(name, "reaching the device", f"apt install {package}")
    return path


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
