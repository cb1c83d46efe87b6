"""Limits on the work for one model: nodes, bytes and seconds.

A file of a kilobyte can expand to a million nodes (functions that call functions, nested loops) and to
gigabytes (constants computed from constants). ``open_model``, ``run_passes`` and each expansion of ops for a
target have one budget each. The limits are far above the needs of real models: the largest model of the tests
has 900 nodes, 5 MB of computed constants and takes 2 s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from edgekit.errors import ModelError

MADE_NODES = 20_000
"""Most nodes from expanded functions and unrolled loops, including the nodes of the file that call them. This
allows twenty loops of the largest size, for which the passes take about 10 s."""

COMPUTED_BYTES = 256 * 1024 * 1024
COMPUTED_GROWTH = 4
"""Most bytes of computed constants at one time: this many, plus this multiple of the model's weights, which
may be cast, transposed and reshaped."""

SECONDS = 30.0
"""CPU time of the thread, which does not depend on other load. A board takes five times as long as a desktop,
about 10 s."""

VALUE_BYTES = 2**31 - 1
"""Most bytes of one value: the limit of constants in protobuf and FlatBuffers."""


@dataclass
class WorkBudget:
    """The remaining budget. ``until`` is in ``time.thread_time``; ``computed_bytes`` is set when the size of
    the model's weights is known."""

    nodes: int
    until: float
    computed_bytes: int | None = None


_current: ContextVar[WorkBudget | None] = ContextVar("budget", default=None)


@contextmanager
def one_budget() -> Iterator[WorkBudget]:
    """Yield a budget for the work in this context; nested contexts share the outer budget."""
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    token = _current.set(WorkBudget(MADE_NODES, time.thread_time() + SECONDS))
    try:
        yield _current.get() or WorkBudget(0, 0.0)
    finally:
        _current.reset(token)


def take_nodes(count: int) -> bool:
    """Take ``count`` nodes from the budget; False, without taking any, if fewer are left."""
    with one_budget() as budget:
        if count > budget.nodes:
            return False
        budget.nodes -= count
        return True


def computed_limit(weight_bytes: int) -> int:
    """Compute the limit on computed constants, in bytes, for a model with these weights.

    Folded constants become weights, so only the weights at the start of the budget count.
    """
    limit = COMPUTED_BYTES + COMPUTED_GROWTH * weight_bytes
    budget = _current.get()
    if budget is None:
        return limit
    if budget.computed_bytes is None:
        budget.computed_bytes = limit
    return budget.computed_bytes


def check_time(doing: str) -> None:
    """Raise ModelError if the time is used up; its text contains ``doing``."""
    budget = _current.get()
    if budget is not None and time.thread_time() > budget.until:
        raise ModelError(
            f"{doing} takes more than {SECONDS:g} s of CPU time, the limit for a model; export it with "
            "fewer nodes, loops and branches"
        )
