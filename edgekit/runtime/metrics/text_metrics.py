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
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgekit.runtime.metrics.histogram import Histogram
from edgekit.runtime.metrics.metrics import LABELS_LIMIT, OTHER, unspecific
from edgekit.tensors import Json

if TYPE_CHECKING:
    from edgekit.runtime.fallback.policy import Fallback
    from edgekit.runtime.generate.generated_text import GeneratedText
    from edgekit.runtime.session_state import Active

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
        self._times: dict[tuple[str, str], Histogram] = {}
        self._fallbacks: dict[tuple[str, str, str], int] = {}
        self._seen: Fallback | None = None
        self._active: Active | None = None
        self._since_s = time.time()

    def ended(self, result: GeneratedText, active: Active, history: Sequence[Fallback]) -> None:
        """Count a text that has ended, and the fallbacks since the last one.

        Args:
            result: Of the text.
            active: The variant that ended it.
            history: The session's.
        """
        with self._lock:
            self._active = active
            self._reasons[result.reason] = self._reasons.get(result.reason, 0) + 1
            for name in COUNTS:
                self._counts[name] += getattr(result, name)
            if result.tokens:
                self._record(FIRST, active.engine, result.first_token_ms / 1000)
            if result.tokens_per_s:
                self._record(EACH, active.engine, 1 / result.tokens_per_s)
            at = next((i for i, each in enumerate(history) if each is self._seen), -1)
            for fallback in history[at + 1 :]:
                key = (fallback.from_, fallback.to, unspecific(fallback.reason))
                if key not in self._fallbacks and len(self._fallbacks) >= LABELS_LIMIT:
                    key = (OTHER, OTHER, OTHER)
                self._fallbacks[key] = self._fallbacks.get(key, 0) + 1
            self._seen = history[-1] if history else None

    def _record(self, stage: str, engine: str, seconds: float) -> None:
        key = (stage, engine)
        if key not in self._times and len(self._times) >= LABELS_LIMIT:
            key = (stage, OTHER)
        self._times.setdefault(key, Histogram()).record(seconds)

    def quantile(self, stage: str, q: float) -> float:
        """A quantile of ``first_token`` or ``token`` in seconds, over all engines; 0 if there are no
        values."""
        together = Histogram()
        with self._lock:
            for (name, _), histogram in self._times.items():
                if name == stage:
                    together.add(histogram)
        return together.quantile(q)

    def snapshot(self) -> dict[str, Json]:
        """All metrics, as JSON. Times are in seconds, ``since`` and ``until`` are Unix times."""
        with self._lock:
            stages: list[Json] = [
                {
                    "stage": stage,
                    "engine": engine,
                    **histogram.as_json(),
                    "at_most": [[limit, count] for limit, count in histogram.at_most()],
                }
                for (stage, engine), histogram in self._times.items()
            ]
            fallbacks: list[Json] = [
                {"from": from_, "to": to, "reason": reason, "count": count}
                for (from_, to, reason), count in self._fallbacks.items()
            ]
            return {
                **({} if self._active is None else self._active._asdict()),
                "since": self._since_s,
                "until": time.time(),
                "texts": dict(self._reasons),
                **self._counts,
                "stages": stages,
                "fallbacks": fallbacks,
            }
