"""File access rules of a process, enforced by the Linux kernel (5.13 and later); no privilege is needed.

They apply to this process and all that it starts, and can't be removed:
https://docs.kernel.org/userspace-api/landlock.html
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls; their numbers are the same on every machine."""
_VERSION, _PATH_BENEATH, _NO_NEW_PRIVS = 1, 1, 38
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
"""Rights that a rule on a file, which is not a folder, may name."""
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""Version of the interface -> all rights on files that it knows. 5 adds ioctl on devices: left free."""
_TCP = 0b11
"""bind and connect, from version 4."""
_SCOPES = 0b11
"""Abstract local sockets and signals to processes outside, from version 6."""


def version() -> int:
    """Return the version of the kernel's interface. 0 means that it has none, or it is off."""
    if sys.platform != "linux":
        return 0
    abi = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))
    return max(abi, 0)


def apply(reads: Iterable[str], writes: Iterable[str]) -> str:
    """Confine this process, which has one thread yet, to files.

    Args:
        writes: Those that it may change too, with all that is in them.

    Returns:
        Why it is not confined; "" if it is.
    """
    abi = version()
    if not abi:
        return "this kernel has no Landlock" if sys.platform == "linux" else "only Linux has Landlock"
    rights = _RIGHTS[min(abi, 3)]
    fields = [rights, _TCP if abi >= 4 else 0, _SCOPES if abi >= 6 else 0]
    count = 3 if abi >= 6 else 2 if abi >= 4 else 1
    attributes = ctypes.create_string_buffer(struct.pack(f"={count}Q", *fields[:count]))
    rules = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(8 * count), ctypes.c_uint(0))
    if rules < 0:
        return os.strerror(ctypes.get_errno())
    try:
        for path in reads:
            _allow(rules, path, _READ & rights)
        for path in writes:
            _allow(rules, path, rights & ~(_MAKE_CHAR | _MAKE_BLOCK))
        ctypes.CDLL(None).prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
        if _call(_RESTRICT_SELF, ctypes.c_int(rules), ctypes.c_uint(0)) < 0:
            return os.strerror(ctypes.get_errno())
    finally:
        os.close(rules)
    return ""


def _allow(rules: int, path: str, rights: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)  # type: ignore[attr-defined,unused-ignore]
        try:
            if not stat.S_ISDIR(os.fstat(handle).st_mode):
                rights &= _OF_FILES
            rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, handle))
            _call(_ADD_RULE, ctypes.c_int(rules), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint(0))
        finally:
            os.close(handle)


def _call(number: int, *arguments: object) -> int:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        return int(libc.syscall(ctypes.c_long(number), *arguments))
    except (OSError, AttributeError):  # a libc without syscall
        return -1
