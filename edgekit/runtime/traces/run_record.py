"""Record of one queued request: when it waited and ran, on which variant, and after which fallbacks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.traces.trace_context import CURRENT, TraceContext


class RunRecord:
    """Record of a request, which the queue fills in.

    Args:
        context: Span of the request: log messages of its run have its id.

    Attributes:
        queued_s: Start of waiting, on the clock of ``time.monotonic``, or 0 if it was not queued.
        run_start_s, run_end_s: Start and end of the run, or 0 if it did not run.
        active: Variant that ran it. None means it did not run.
    """

    def __init__(self, context: TraceContext) -> None:
        self._context = context
        self.queued_s = self.run_start_s = self.run_end_s = 0.0
        self.active: Any = None
        self.fallbacks: Sequence[Fallback] = ()
        self.batch_size = 1

    @contextmanager
    def running(self, runs: Any, batch_size: int = 1) -> Iterator[None]:
        """Record the run while the block runs. A second run, after a batch that failed, replaces the
        first."""
        before = getattr(runs, "history", ())
        token = CURRENT.set(self._context)
        self.run_start_s, self.batch_size = time.monotonic(), batch_size
        try:
            yield
        finally:
            self.run_end_s, self.active = time.monotonic(), runs.active
            self.fallbacks = new_fallbacks(before, getattr(runs, "history", ()))
            CURRENT.reset(token)


def new_fallbacks(before: Sequence[Fallback], after: Sequence[Fallback]) -> Sequence[Fallback]:
    """Return the changes that were added to a session's history, whose oldest ones may be gone."""
    if not before:
        return after
    position = next((i for i, change in enumerate(after) if change is before[-1]), -1)
    return after[position + 1 :]
