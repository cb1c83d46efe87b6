"""Runs a command whose processes get no socket but a local one, and tells who asked for one.

Below Python, so that an engine's own threads are seen: a seccomp filter hands each such call to this process,
which notes it and answers EACCES. No packet leaves without a socket, and the ways round the call are closed:
io_uring, and the calls of another architecture. The filter is inherited, whatever the command starts.

It needs Linux 5.9 on x86-64 or ARM64, and no rights: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Machine -> AUDIT_ARCH_*, and the numbers of seccomp(2) and socket(2).
MACHINES = {"x86_64": (0xC000003E, 317, 41), "aarch64": (0xC00000B7, 277, 198)}
IO_URING_SETUP = 425  # on every machine
OTHER_ABI = 0x40000000  # x32 marks its calls with this bit
SET_MODE_FILTER, NEW_LISTENER = 1, 1 << 3
NO_NEW_PRIVS = 38
ALLOW, ASK = 0x7FFF0000, 0x7FC00000
LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
RECEIVE, ANSWER = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and _SEND
REFUSED = 97
"""Exit status of a process that got no filter."""


class Done(NamedTuple):
    """A command that ended, and the sockets that it asked for, e.g. ``AF_INET SOCK_DGRAM by python``."""

    returncode: int
    stdout: str
    stderr: str
    sockets: list[str]


class FilterRefused(Exception):  # noqa: N818
    """This system has no such filter; the text says why."""


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    limit_s: float = 300.0,
    until_first: bool = False,
) -> Done:
    """Run it to its end.

    Args:
        command: The program and its arguments.
        environment: All of its environment.
        folder: Where it runs.
        limit_s: It is killed after that.
        until_first: Kill it as soon as it asks for a socket.

    Raises:
        FilterRefused: sockets can't be watched on this system.
        subprocess.TimeoutExpired: It took longer than ``limit_s``.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise FilterRefused(f"no seccomp filter is known for {sys.platform} on {platform.machine()}")
    ours, theirs = socket.socketpair()
    started = [sys.executable, "-S", __file__, str(theirs.fileno()), *command]
    with (
        ours,
        subprocess.Popen(
            started,
            env=dict(environment),
            cwd=folder,
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child,
    ):
        theirs.close()
        received = socket.recv_fds(ours, 1, 1)[1]
        sockets: list[str] = []
        first = child.kill if until_first else None
        watching = threading.Thread(target=_watch, args=(received, sockets, first), daemon=True)
        watching.start()
        try:
            stdout, stderr = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            child.kill()
            raise
        if not received:
            raise FilterRefused(stderr.strip())
        watching.join(limit_s)  # ends with the last process that has the filter
        return Done(child.returncode, stdout, stderr, sockets)


def _watch(listeners: Sequence[int], sockets: list[str], first: Callable[[], None] | None) -> None:
    for listener in listeners:
        waiting = select.poll()
        waiting.register(listener, select.POLLIN)
        while not any(event & select.POLLHUP for _, event in waiting.poll()):
            notice = bytearray(80)  # struct seccomp_notif
            try:
                fcntl.ioctl(listener, RECEIVE, notice)
                number, thread, _, call, architecture = struct.unpack_from("=QIIiI", notice)
                sockets.append(_told(call, architecture, thread, *struct.unpack_from("=QQ", notice, 32)))
                fcntl.ioctl(listener, ANSWER, struct.pack("=QqiI", number, 0, -errno.EACCES, 0))
            except FileNotFoundError:  # the thread was killed meanwhile
                continue
            if first is not None:
                first()
        os.close(listener)


def _told(call: int, architecture: int, thread: int, family: int, kind: int) -> str:
    what = f"call {call} of architecture {architecture:#x}"
    if (architecture, call) == MACHINES[platform.machine()][::2]:
        names = {int(one): one.name for one in socket.AddressFamily}
        kinds = {int(one): one.name for one in socket.SocketKind}
        what = f"{names.get(family, family)} {kinds.get(kind & 0xF, kind & 0xF)}"
    try:
        return f"{what} by {Path(f'/proc/{thread}/comm').read_text('utf-8').strip()}"
    except OSError:
        return what


def _program() -> bytes:
    """The filter: instructions of classic BPF, each an operation, two jumps and a value."""
    architecture, _, socket_call = MACHINES[platform.machine()]
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (LOAD, 0, 0, ARCHITECTURE),
            (EQUAL, 0, 7, architecture),
            (LOAD, 0, 0, NUMBER),
            (AT_LEAST, 5, 0, OTHER_ABI),
            (EQUAL, 4, 0, IO_URING_SETUP),
            (EQUAL, 0, 2, socket_call),
            (LOAD, 0, 0, FIRST_ARGUMENT),
            (EQUAL, 0, 1, int(socket.AF_UNIX)),
            (RETURN, 0, 0, ALLOW),
            (RETURN, 0, 0, ASK),
        )
    )


def _confine_and_run(channel: int, command: Sequence[str]) -> None:
    """In the new process: the filter, its listener to the one that watches, then the command."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = _program()
    program = ctypes.create_string_buffer(code, len(code))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(program)))
    libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.syscall.restype = ctypes.c_long
    number = MACHINES[platform.machine()][1]
    listener = libc.syscall(ctypes.c_long(number), SET_MODE_FILTER, NEW_LISTENER, described)
    if listener < 0:
        print(f"the kernel refuses a seccomp filter: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        sys.exit(REFUSED)
    with socket.socket(fileno=channel) as told:
        told.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [listener]))])
    os.close(listener)
    os.execvp(command[0], list(command))


if __name__ == "__main__":
    _confine_and_run(int(sys.argv[1]), sys.argv[2:])
