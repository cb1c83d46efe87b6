"""Protection of an open outbox in forked processes."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref

from edgekit.errors import UsageError


def refuse_fork(pid: int) -> None:
    """Check that this process opened the outbox. Raises UsageError if it was forked from the one that did."""
    if os.getpid() != pid:
        raise UsageError(
            f"the outbox was opened by process {pid}, and this is {os.getpid()}, forked from it, where "
            "nothing is stored or delivered; open one here, with a folder of its own"
        )


class ForkedConnections(list[sqlite3.Connection]):
    """Open connections that are left open in a forked process.

    There SQLite would consider itself the last user of the file, checkpoint the log and delete it, while the
    parent continues to write to it: rows stored since then would be lost.
    """

    def __init__(self) -> None:
        super().__init__()
        _ALL[id(self)] = self

    def leak(self) -> None:
        """Keep these open, even at interpreter exit: they get one more reference."""
        with contextlib.suppress(ImportError):  # without ctypes the child must end by os._exit
            import ctypes

            for connection in self:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


_ALL: weakref.WeakValueDictionary[int, ForkedConnections] = weakref.WeakValueDictionary()


def _leak_all() -> None:
    for connections in list(_ALL.values()):
        connections.leak()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_leak_all)
