"""Frames that look the same get the same answer: a motion gate, or a cache of what was seen before.

    gate = Similar(session, permit)             # permit.py: measured on frames of this camera
    answer = gate.predict(frame, order="bgr")

With one reference it is a motion gate: a frame is compared with the one that was last answered, not with the
one before it, so that what moves slowly adds up. With more, a near-duplicate cache: a scene that comes back
finds its answer.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.runtime.caching.calibrate_similarity import Held, SimilarityCalibration
from edgekit.runtime.caching.exact import OUTCOME
from edgekit.runtime.caching.frame_signature import signature_of
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.metrics.metrics import Metrics
    from edgekit.runtime.predictor import Predictor


class Similar:
    """A session, or a budget, that answers what looks the same by what it answered. Safe between threads.

    Args:
        runs: What answers; when another variant serves it, all is forgotten.
        permit: Of this model, and granted.
        metrics: Told of each hit, as the outcome ``reused``.

    Attributes:
        hits: Answers that took no run.
        misses: Answers that took one.

    Raises:
        UsageError: the permit is not granted, or of another model.
    """

    def __init__(
        self, runs: Predictor, permit: SimilarityCalibration, metrics: Metrics | None = None
    ) -> None:
        if permit.model != runs.bundle.digest:
            raise UsageError(
                f"the permit was measured on another model than {runs.bundle.name}: measure() it on this one"
            )
        if not permit.granted:
            raise UsageError(f"answers must not be used again: {permit.why_not}")
        self.hits = self.misses = 0
        self._runs, self._metrics = runs, metrics
        self._lock = threading.Lock()
        self._held = Held(permit.limit, permit.references)
        self._serving: object = runs.active

    def predict(self, frame: Array, order: str = "rgb") -> Any:
        """As ``Session.predict``; an answer that is used again is the same object."""
        look = signature_of(frame)
        serving = self._runs.active
        with self._lock:
            if serving != self._serving:
                self._held.clear()
                self._serving = serving
            found = self._held.find(look)
            self.hits += found is not None
            self.misses += found is None
        if found is not None:
            if self._metrics is not None:
                self._metrics.answered(OUTCOME)
            return found[0]
        answer = self._runs.predict(frame, order)
        with self._lock:
            if self._serving == serving == self._runs.active:
                self._held.keep(look, answer)
        return answer
