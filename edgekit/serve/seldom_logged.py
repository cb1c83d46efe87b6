"""Rate limit for warnings that any client can cause: otherwise one client fills the disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY_S = 60.0
CAUSED = ("Invalid HTTP request received.", "Exceeded concurrency limit.", "Unsupported upgrade request.")
"""uvicorn's warnings about requests."""


class Seldom(logging.Filter):
    """Filter that passes each of uvicorn's request warnings once a minute, with the number of dropped ones.

    Args:
        clock: Monotonic clock in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._last_logged: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.msg
        if text not in CAUSED:
            return True
        now_s = self._clock()
        passed_s, since = self._last_logged.get(text, (float("-inf"), 0))
        if now_s < passed_s + EVERY_S:
            self._last_logged[text] = passed_s, since + 1
            return False
        self._last_logged[text] = now_s, 0
        if since:
            record.msg = f"{text} {since} more since the last time."
        return True


def log_seldom() -> None:
    """Install the filter, once per process."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(log_filter, Seldom) for log_filter in logger.filters):
        logger.addFilter(Seldom())
