"""Times by stage and engine, and fallbacks by reason: what all metrics count alike. Not thread-safe.

At most LABELS_LIMIT labels each, so that memory use is constant.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from edgekit.runtime.fallback.policy import Fallback
from edgekit.runtime.metrics.histogram import Histogram
from edgekit.tensor_spec import Json

LABELS_LIMIT = 64
"""Distinct fallbacks, and stages of engines; any further ones are counted together as ``other``."""
OTHER = "other"
REASON_LIMIT_CHARS = 120

# A path, a word with a digit in it, or a number: it may come from the user's machine or image.
_PATH = re.compile(r"""(?:[A-Za-z]:)?[\\/][^\s'",;]*[\\/][^\s'",;]*""")
_NUMBER = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?|\bnan\b|\binf\b", re.IGNORECASE)


class Counts(NamedTuple):
    """Number of results of a model so far.

    Attributes:
        found, empty: Number of predictions with an object at least, and of those without any. Results of
            ``run`` and predictions that are not a list of objects are in neither.
    """

    answers: int = 0
    fallback: int = 0
    failed: int = 0
    found: int = 0
    empty: int = 0

    @property
    def bad(self) -> int:
        return self.fallback + self.failed


class StageTimes:
    """Histograms of times by stage and engine."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], Histogram] = {}

    def record(self, stage: str, engine: str, seconds: float) -> None:
        histogram = self._times.get((stage, engine))
        if histogram is None:
            if len(self._times) >= LABELS_LIMIT:
                stage, engine = OTHER, OTHER
            histogram = self._times.setdefault((stage, engine), Histogram())
        histogram.record(seconds)

    def quantile(self, stage: str, q: float) -> float:
        """Return a quantile of a stage in seconds, over all engines; 0 if there are no values."""
        together = Histogram()
        for (name, _), histogram in self._times.items():
            if name == stage:
                together.add(histogram)
        return together.quantile(q)

    def as_json(self) -> list[Json]:
        return [
            {"stage": stage, "engine": engine, **histogram.as_json()}
            for (stage, engine), histogram in self._times.items()
        ]


class FallbackCounts:
    """Fallbacks by variants and reason."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._counted: Sequence[Fallback] = ()

    def count_new(self, history: Sequence[Fallback]) -> None:
        """Count what came to a session's history since the last call.

        The history may be older than that of the last call: of another thread, or restored after a request on
        which every variant failed.
        """
        if not history or (self._counted and history[-1] is self._counted[-1]):
            return
        counted = {id(fallback) for fallback in self._counted}
        new = [fallback for fallback in history if id(fallback) not in counted]
        for fallback in new:
            self.count(fallback.from_, fallback.to, fallback.reason)
        self._counted = history if new else self._counted

    def count(self, from_: str, target: str, reason: str) -> None:
        key = (from_, target, unspecific(reason))
        if key not in self._counts and len(self._counts) >= LABELS_LIMIT:
            key = (OTHER, OTHER, OTHER)
        self._counts[key] = self._counts.get(key, 0) + 1

    def as_json(self) -> list[Json]:
        return [
            {"from": from_, "to": to, "reason": reason, "count": count}
            for (from_, to, reason), count in self._counts.items()
        ]


def unspecific(reason: str) -> str:
    """Return a reason without numbers and paths, so that equal ones are counted together and nothing leaks.

    >>> unspecific("OSError: /home/kim/m.onnx: 3 of 21 values are NaN")
    'OSError: PATH # of # values are #'
    """
    text = _NUMBER.sub("#", _PATH.sub("PATH", reason))
    return text if len(text) <= REASON_LIMIT_CHARS else text[: REASON_LIMIT_CHARS - 3] + "..."
