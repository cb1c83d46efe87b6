"""What a process that is forked from one with an open outbox must not do."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref

from edgekit.errors import UsageError


def stay_in(pid: int) -> None:
    """Raises: UsageError: this process is forked from the one that opened the outbox."""
    if os.getpid() != pid:
        raise UsageError(
            f"the outbox was opened by process {pid}, and this is {os.getpid()}, forked from it, where "
            "nothing stores or delivers; open one here, with a folder of its own"
        )


class Connections(list[sqlite3.Connection]):
    """Open connections that are left alone in a forked process.

    There SQLite would take itself for the last that has the file open, copy the log into it and remove the
    log, while the parent goes on writing to it: what was stored since then would be lost.
    """

    def __init__(self) -> None:
        super().__init__()
        _ALL[id(self)] = self

    def leak(self) -> None:
        """Never end these, also not when Python frees what is left at its exit: they have one owner more."""
        with contextlib.suppress(ImportError):  # a Python without it: the child must end by os._exit
            import ctypes

            for connection in self:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


_ALL: weakref.WeakValueDictionary[int, Connections] = weakref.WeakValueDictionary()


def _leak_all() -> None:
    for connections in list(_ALL.values()):
        connections.leak()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leak_all)
