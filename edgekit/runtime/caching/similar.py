"""A cache for similar frames: a motion gate, or a near-duplicate cache.

    gate = Similar(session, calibration)        # calibrate_similarity.py: measured on frames of this camera
    answer = gate.predict(frame, order="bgr")

With one reference it is a motion gate: a frame is compared with the last one that was predicted, not with the
one before it, so slow motion accumulates. With more references it is a near-duplicate cache: a scene that
returns finds its prediction.
"""

from __future__ import annotations

import threading
from typing import Any

from edgekit.errors import UsageError
from edgekit.runtime.caching.calibrate_similarity import PredictionCache, SimilarityCalibration
from edgekit.runtime.caching.exact import OUTCOME
from edgekit.runtime.caching.frame_signature import signature_of
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.predictor import Predictor
from edgekit.tensor_spec import Array


class Similar:
    """Reuses the predictions of a session or a budget for similar frames. Thread-safe.

    Args:
        runs: Predicts on a cache miss; when its active variant changes, the cache is cleared.
        metrics: Counts each hit, as the outcome ``reused``.

    Raises:
        UsageError: the calibration is not granted, or of another model.
    """

    def __init__(
        self, runs: Predictor, calibration: SimilarityCalibration, metrics: Metrics | None = None
    ) -> None:
        if calibration.model != runs.bundle.digest:
            raise UsageError(
                f"the calibration belongs to another model than {runs.bundle.name}: run measure() on this one"
            )
        if not calibration.granted:
            raise UsageError(f"predictions must not be reused: {calibration.refusal}")
        self.hits = self.misses = 0
        self._runs, self._metrics = runs, metrics
        self._lock = threading.Lock()
        self._cache = PredictionCache(calibration.limit, calibration.references)
        self._active: object = runs.active

    def predict(self, frame: Array, order: str = "rgb") -> Any:
        """Predict like ``Session.predict``; a reused prediction is the same object."""
        signature = signature_of(frame)
        active = self._runs.active
        with self._lock:
            if active != self._active:
                self._cache.clear()
                self._active = active
            cached = self._cache.find(signature)
            self.hits += cached is not None
            self.misses += cached is None
        if cached is not None:
            if self._metrics is not None:
                self._metrics.answered(OUTCOME)
            return cached[0]
        answer = self._runs.predict(frame, order)
        with self._lock:
            if self._active == active == self._runs.active:
                self._cache.keep(signature, answer)
        return answer
