"""A filter of system calls: no network, and no hands on other processes. Linux on x86-64 and ARM64.

The kernel applies it to this process and to all that it starts, and nobody can take it off:
https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

MACHINES = {"x86_64": (0xC000003E, 317, 41), "aarch64": (0xC00000B7, 277, 198)}
"""Machine -> AUDIT_ARCH_*, and the numbers of seccomp(2) and socket(2)."""
REFUSED = {
    # name -> its number on x86-64 and on ARM64
    "connect": (42, 203),  # a local socket may be a daemon's, which does what root may
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425),  # a way round this filter
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),  # a way round Landlock
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
}
"""Calls that no engine needs, answered with EACCES like every socket but a local one."""
_OTHER_ABI = 0x40000000
"""x32 marks its calls with this bit."""
_NO_NEW_PRIVS, _MODE_FILTER = 38, 1
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EACCES
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in struct seccomp_data."""


def apply() -> str:
    """Apply the filter to this process, which has one thread yet; returns why it was not, "" if it was."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return f"no filter exists for {sys.platform} on {platform.machine()}"
    code = _program(platform.machine())
    program = ctypes.create_string_buffer(code, len(code))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(code) // 8, ctypes.addressof(program)))
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        libc.syscall.restype = ctypes.c_long
        number = ctypes.c_long(MACHINES[platform.machine()][1])
        refused = libc.syscall(number, _MODE_FILTER, 0, described) != 0
    except (OSError, AttributeError) as problem:  # a libc without these functions
        return str(problem)
    return os.strerror(ctypes.get_errno()) if refused else ""


def _program(machine: str) -> bytes:
    """Return a program in classic BPF. Each instruction has an operation, the jump distances if true and if
    false, and a value."""
    architecture, _, socket_call = MACHINES[machine]
    column = list(MACHINES).index(machine)
    numbers = [row[column] for row in REFUSED.values()]
    refuse = len(numbers) + 3  # instructions between the first of the numbers and the refusal
    code = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 0, refuse + 2, architecture),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, refuse, 0, _OTHER_ABI),
        *((_EQUAL, refuse - index - 1, 0, number) for index, number in enumerate(numbers)),
        (_EQUAL, 0, 3, socket_call),
        (_LOAD, 0, 0, _FIRST_ARGUMENT),
        (_EQUAL, 1, 0, int(getattr(socket, "AF_UNIX", 1))),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
