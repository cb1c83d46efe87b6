"""What making something of one model may cost in all: nodes, bytes and seconds.

A file of a kilobyte can ask for a million nodes (functions that call functions, loops in loops) and for
gigabytes (constants made of constants). Each of ``open_model``, ``run_passes`` and one expansion of ops for a
target has one budget, which all that happens inside shares. The figures are far above what real models need:
of the models that the tests know the largest has 900 nodes, computes 5 MB ahead and takes 2 s.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from edgekit.errors import ModelError

MADE_NODES = 20_000
"""Nodes that functions, and loops that are unrolled, may become, together with those of the file that call
them. Twenty loops of the largest size; the passes take about 10 s for so many."""

COMPUTED_BYTES = 256 * 1024 * 1024
COMPUTED_GROWTH = 4
"""Bytes of values that are computed ahead at one time: so many, and so many times the model's weights, which
may be cast, transposed and reshaped."""

SECONDS = 30.0
"""CPU time of the thread, so that a busy machine changes nothing. A board takes five times what a desktop
takes, and that is 10 s."""

VALUE_BYTES = 2**31 - 1
"""One value, in any run: what one constant of an artifact can hold (protobuf and FlatBuffers end there)."""


@dataclass
class Budget:
    """What is left. ``until`` is on the clock of ``time.thread_time``; ``computed_bytes`` is known once the
    model's weights are."""

    nodes: int
    until: float
    computed_bytes: int | None = None


_current: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def one_budget() -> Iterator[Budget]:
    """The budget of all that happens inside; inside another one, that one."""
    outer = _current.get()
    if outer is not None:
        yield outer
        return
    token = _current.set(Budget(MADE_NODES, time.thread_time() + SECONDS))
    try:
        yield _current.get() or Budget(0, 0.0)
    finally:
        _current.reset(token)


def take_nodes(count: int) -> bool:
    """Take ``count`` nodes of the budget; False, and nothing taken, where it has not so many left."""
    with one_budget() as budget:
        if count > budget.nodes:
            return False
        budget.nodes -= count
        return True


def computed_limit(weight_bytes: int) -> int:
    """Bytes that may be computed ahead at one time for a model with these weights.

    What is folded becomes weights: those that are there first in a budget count.
    """
    limit = COMPUTED_BYTES + COMPUTED_GROWTH * weight_bytes
    budget = _current.get()
    if budget is None:
        return limit
    if budget.computed_bytes is None:
        budget.computed_bytes = limit
    return budget.computed_bytes


def check_time(doing: str) -> None:
    """Raises: ModelError where the time is used up; ``doing`` is in its text."""
    budget = _current.get()
    if budget is not None and time.thread_time() > budget.until:
        raise ModelError(
            f"{doing} takes more than {SECONDS:g} s of CPU time, which is more than EdgeKit gives a model;"
            " export it with fewer nodes, loops and branches"
        )
