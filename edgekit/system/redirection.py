"""A file descriptor of this process points elsewhere for a while: what engines print from C++."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

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
            kept = os.dup(descriptor)
        except OSError:
            yield
            return
        try:
            os.dup2(target, descriptor)
            yield
        finally:
            os.dup2(kept, descriptor)
            os.close(kept)
