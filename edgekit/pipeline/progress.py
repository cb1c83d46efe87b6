"""The stages of a build, told while they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """Progress: a stage begins or goes on (``seconds`` is None) or ended, and words that describe it."""

    name: str
    detail: str
    seconds: float | None = None


Progress = Callable[[Stage], None]


@contextmanager
def stage(progress: Progress, name: str, *, live: bool = False) -> Iterator[Callable[[str], None]]:
    """Tell ``progress`` that a stage begins and, with the last words it said, that it ended.

    ``live``: and all that it says in between.
    """
    words = [""]
    started = time.perf_counter()

    def say(text: str) -> None:
        words.append(text)
        if live:
            progress(Stage(name, text))

    progress(Stage(name, ""))
    yield say
    progress(Stage(name, words[-1], time.perf_counter() - started))
