"""Progress of a build: its stages are reported while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from edgekit.system.resident_memory import release_unused


@dataclass(frozen=True)
class Stage:
    """A progress report with a description: a stage runs (``seconds`` is None) or has ended."""

    name: str
    detail: str
    seconds: float | None = None


Progress = Callable[[Stage], None]


@contextmanager
def stage(progress: Progress, name: str, *, live: bool = False) -> Iterator[Callable[[str], None]]:
    """Report that a stage begins and, with its last description, that it ended. The memory that it no longer
    uses is returned to the system.

    Args:
        progress: Called with each report.
        name: Name of the stage.
        live: Whether the descriptions given in between are reported too.
    """
    description = ""
    started = time.perf_counter()

    def say(text: str) -> None:
        nonlocal description
        description = text
        if live:
            progress(Stage(name, text))

    progress(Stage(name, ""))
    yield say
    release_unused()
    progress(Stage(name, description, time.perf_counter() - started))
