"""Progress of work that takes long: events from the code that runs, for the one listener of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Stage(NamedTuple):
    """Progress event: a stage runs (``seconds`` is None) or has ended.

    Attributes:
        detail: Description. A stage that ends without one leaves no line.
        seconds: Duration in seconds, or None while it runs.
        total: Number of items in all; 0 if it is unknown.
        left_s: Seconds left of the whole build, or of a time limit. None means unknown.
        best: Best result so far, or "".
        part: Part of a stage that runs, for the estimate of the time (compiler/pipeline/forecast.py), or "".
        to_come: Number of parts that are expected from this one on, by group and kind. None means as planned.
        step: Number of this step of the whole build, from 1; 0 if the stages were not counted.
        steps: Number of steps in all.
    """

    name: str
    detail: str
    seconds: float | None = None
    done: int = 0
    total: int = 0
    unit: str = ""
    left_s: float | None = None
    best: str = ""
    part: str = ""
    step: int = 0
    steps: int = 0
    to_come: Mapping[str, Mapping[str, float]] | None = None

    def __str__(self) -> str:
        count = f"{self.done} of {self.total} {self.unit}".rstrip() if self.total else ""
        ended = "" if self.seconds is None else f"{self.seconds:.1f} s"
        return "  ".join(filter(None, (self.name, count, self.detail, self.best, ended)))


Progress = Callable[[Stage], None]


class Notify(Protocol):
    """Function that describes the running stage."""

    def __call__(
        self,
        detail: str,
        done: int = 0,
        total: int = 0,
        unit: str = "",
        left_s: float | None = None,
        best: str = "",
        part: str = "",
        to_come: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None: ...


def ignore(stage: Stage) -> None:
    """Ignore an event."""


def unwatched(detail: str, *figures: object, **more: object) -> None:
    """Describe a stage that nobody watches."""


_listener: Progress | None = None


@contextmanager
def listening(listener: Progress) -> Iterator[None]:
    """Call ``listener`` with the events of this process that have no listener of their own."""
    global _listener
    before, _listener = _listener, listener
    try:
        yield
    finally:
        _listener = before


def listener(progress: Progress | bool) -> Progress:
    """Return the callback for the events of a call: this process's for True, none for False."""
    if isinstance(progress, bool):
        return report if progress else ignore
    return progress


def is_heard() -> bool:
    """Return whether somebody listens."""
    return _listener is not None


def report(stage: Stage) -> None:
    """Pass an event to the listener of this process, if there is one."""
    if _listener is not None:
        _listener(stage)


@contextmanager
def stage(progress: Progress, name: str, *, live: bool = False) -> Iterator[Notify]:
    """Report that a stage begins and, with its last description, that it ended. The memory that it no longer
    uses is returned to the system.

    Args:
        live: Whether the descriptions given in between are reported too.
    """
    from edgekit.system.memory import release_unused  # here: ctypes, which the command line lacks

    description = ""
    started = time.perf_counter()

    def update(detail: str, *figures: object, **more: object) -> None:
        nonlocal description
        description = detail
        if live:
            progress(Stage(name, detail, None, *figures, **more))  # type: ignore[arg-type]

    progress(Stage(name, ""))
    yield update
    release_unused()
    progress(Stage(name, description, time.perf_counter() - started))


@contextmanager
def step(name: str) -> Iterator[Notify]:
    """Report work that leaves no line when it ends, for commands whose result is all that stays."""

    def update(detail: str, *figures: object, **more: object) -> None:
        report(Stage(name, detail, None, *figures, **more))  # type: ignore[arg-type]

    report(Stage(name, ""))
    try:
        yield update
    finally:
        report(Stage(name, "", 0.0))


def counted(
    items: Sequence[T], unit: str, *, name: str = "running", describe: Callable[[T], str] = lambda item: ""
) -> Iterator[T]:
    """Yield the items, and report before each how many are done."""
    with step(name) as update:
        for done, item in enumerate(items):
            update(describe(item), done, len(items), unit)
            yield item
