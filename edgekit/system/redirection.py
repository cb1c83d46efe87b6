"""A file descriptor of this process points elsewhere for a while: what engines print from C++."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import IO

_one_at_a_time = RLock()
"""Two threads that each restored what they found would leave the process with the other's file."""


@contextmanager
def redirected(descriptor: int, target: int) -> Iterator[None]:
    """Point a descriptor at another one's file within the block. Another thread's block waits for its end.

    Args:
        descriptor: 1 (stdout) or 2 (stderr). Nothing happens in a process without it, e.g. a service of
            Windows.
        target: An open descriptor.
    """
    with _one_at_a_time:
        try:
            saved = os.dup(descriptor)
        except OSError:
            yield
            return
        try:
            os.dup2(target, descriptor)
            yield
        finally:
            os.dup2(saved, descriptor)
            os.close(saved)


@contextmanager
def without_lines(prefix: bytes, descriptor: int = 2) -> Iterator[list[bytes]]:
    """Keep lines that begin with ``prefix`` off stderr (or stdout: 1), and yield the list that they are
    collected in. Other text is written once the block ends. Nothing happens in a process without stderr."""
    dropped: list[bytes] = []
    if sys.stderr is None:
        yield dropped
        return
    with _unnamed_file() as aside:
        try:
            with redirected(descriptor, aside.fileno()):
                yield dropped
        finally:
            aside.seek(0)
            for line in aside:
                if line.startswith(prefix):
                    dropped.append(line)
                else:
                    os.write(descriptor, line)


def _unnamed_file() -> IO[bytes]:
    """Open an unnamed file, in memory if the system supports it: importing tempfile takes 4 ms."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("edgekit"), "w+b")
    import tempfile

    return tempfile.TemporaryFile()
