"""Metrics of a text session: tokens, times, ends, speculation and fallbacks. Nothing of a text.

    metrics = TextMetrics()
    with TextSession("chat.edgekit", metrics=metrics) as session:
        ...
    metrics.snapshot()                      # JSON; metrics.append(path, ...) writes it as a line

Memory use is constant.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from edgekit.generate.device.generated_text import GeneratedText
from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.metrics.labelled_counts import FallbackCounts, StageTimes
from edgekit.runtime.session_state import Active
from edgekit.tensor_spec import Json

COUNTS = ("prompt_tokens", "cached_tokens", "tokens", "proposed", "accepted", "steps")
"""Of a ``GeneratedText``, added up."""
FIRST, EACH = "first_token", "token"
"""From the call to the first token, and the mean time of each further one."""


class TextMetrics:
    """The metrics of text sessions. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(COUNTS, 0)
        self._reasons: dict[str, int] = {}
        self._times, self._fallbacks = StageTimes(), FallbackCounts()
        self._active: Active | None = None
        self._speculation: dict[str, Json] = {}
        self._since_s = time.time()

    def ended(
        self,
        result: GeneratedText,
        active: Active,
        history: Sequence[Fallback],
        speculation: Mapping[str, Json] | None = None,
    ) -> None:
        """Count a text that has ended, and the fallbacks since the last one.

        Args:
            active: The variant that ended it.
            speculation: Whether the session speculates, ``on``, and ``why``. None means as before.
        """
        with self._lock:
            self._active = active
            self._speculation = self._speculation if speculation is None else dict(speculation)
            self._reasons[result.reason] = self._reasons.get(result.reason, 0) + 1
            for name in COUNTS:
                self._counts[name] += getattr(result, name)
            if result.tokens:
                self._times.record(FIRST, active.engine, result.first_token_ms / 1000)
            if result.tokens_per_s:
                self._times.record(EACH, active.engine, 1 / result.tokens_per_s)
            self._fallbacks.count_new(history)

    def quantile(self, stage: str, q: float) -> float:
        """Return a quantile of ``first_token`` or ``token`` in seconds, over all engines; 0 if there are no
        values."""
        with self._lock:
            return self._times.quantile(stage, q)

    def snapshot(self) -> dict[str, Json]:
        """Return all metrics, as JSON. Times are in seconds, ``since`` and ``until`` are Unix times."""
        with self._lock:
            return {
                **({} if self._active is None else self._active._asdict()),
                "since": self._since_s,
                "until": time.time(),
                "texts": dict(self._reasons),
                **self._counts,
                "speculation": dict(self._speculation),
                "stages": self._times.as_json(),
                "fallbacks": self._fallbacks.as_json(),
            }
