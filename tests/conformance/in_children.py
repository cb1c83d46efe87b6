"""Run a function on one key after the other, where any of them may end the process.

child 1:  a, b, ends          -> a, b, None
child 2:  d, e                -> d, e
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

Run = Callable[[str, str, Path], Any]


def in_children(
    run: Run, keys: Sequence[str], column: str, folder: Path
) -> Iterator[tuple[str, Any | Exception | None]]:
    """Each key with what ``run(key, column, folder)`` returned or raised; None where it ended the process."""
    left, context = list(keys), multiprocessing.get_context("spawn")
    while left:
        receiving, sending = context.Pipe(duplex=False)
        child = context.Process(target=_run, args=(run, left, column, folder, sending), daemon=True)
        child.start()
        sending.close()
        for key in list(left):
            left.remove(key)
            try:
                yield key, receiving.recv()
            except EOFError:
                yield key, None
                break
        child.join()


def _run(run: Run, keys: Sequence[str], column: str, folder: Path, sending: Connection) -> None:
    for key in keys:
        try:
            sending.send(run(key, column, folder))
        except Exception as crash:  # the next ones run
            sending.send(RuntimeError(f"{type(crash).__name__}: {crash}"))
    sending.close()
    os._exit(0)  # nothing of an engine's own end
