"""A cache for similar inputs: a motion gate or a near-duplicate cache of frames, a semantic cache of texts.

    gate = Similar(session, calibration)        # calibrate_similarity.py: measured on frames of this camera
    answer = gate.predict(frame, order="bgr")

    semantic = Similar(chat, calibration, embedder=encoder)       # measured on questions of its users
    answer = semantic.predict("How do I reset it?", max_tokens=100)

With one reference it is a motion gate: a frame is compared with the last one that was predicted, not with the
one before it, so slow motion accumulates. With more references it is a near-duplicate cache: a scene that
returns finds its prediction.

Equal texts are found first, without the embedder, and without a calibration too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from edgekit.errors import UsageError
from edgekit.runtime.caching.calibrate_similarity import (
    TEXT_REFERENCES,
    PredictionCache,
    SimilarityCalibration,
    signatures_of,
)
from edgekit.runtime.caching.exact import OUTCOME
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.runtime.predictor import Predictor, SessionProtocol

CUT_SHORT = ("timeout", "cancelled", "failed")
"""Reasons with which a generated text ends that is not the whole answer."""


class Similar:
    """Reuses the predictions of a session or a budget for similar frames or texts. Thread-safe.

    Answers are reused among calls with equal options. Sampled texts (``temperature``) are not reused.

    Args:
        runs: Predicts on a cache miss; when its active variant changes, the cache is cleared.
        calibration: None means that only equal texts reuse an answer.
        metrics: Counts each hit, as the outcome ``reused``.
        embedder: Session on the text encoder with which the calibration was measured.
        ask: Function that returns the answer to an item; by default ``runs.predict``.

    Raises:
        UsageError: the calibration is not granted, or of another model or embedder.
    """

    def __init__(
        self,
        runs: Predictor,
        calibration: SimilarityCalibration | None = None,
        metrics: Metrics | None = None,
        *,
        embedder: SessionProtocol | None = None,
        ask: Callable[..., Any] | None = None,
    ) -> None:
        if calibration is None and embedder is not None:
            raise UsageError("similar texts need a calibration: run measure_similarity(..., embedder=...)")
        if calibration is not None and calibration.model != runs.bundle.digest:
            raise UsageError(
                f"the calibration belongs to another model than {runs.bundle.name}: run measure() on this one"
            )
        kind = signatures_of(embedder)
        if calibration is not None and calibration.embedder != kind.embedder:
            raise UsageError("the calibration belongs to another embedder: pass that one, or measure again")
        if calibration is not None and not calibration.granted:
            raise UsageError(f"predictions must not be reused: {calibration.refusal}")
        self.hits = self.misses = 0
        self._runs, self._metrics, self._embedder = runs, metrics, embedder
        self._ask = runs.predict if ask is None else ask
        self._lock = threading.Lock()
        self._frames = calibration is not None and embedder is None
        self._signature_of = kind.of if calibration is not None else lambda text: None
        limit, references = (
            (0.0, TEXT_REFERENCES) if calibration is None else (calibration.limit, calibration.references)
        )
        self._cache = PredictionCache(limit, references, kind.distances)
        self._active = self._actives()

    def predict(self, item: Any, *order: str, **options: Any) -> Any:
        """Predict like ``predict`` of the session; a reused prediction is the same object.

        Raises:
            UsageError: a text is not a str; or as ``predict`` of the session.
        """
        if not self._frames and not isinstance(item, str):
            raise UsageError(f"a text must be a str, not {type(item).__name__}; frames need a calibration")
        if options.get("temperature"):
            return self._ask(item, *order, **options)
        context, active = repr((order, sorted(options.items()))), self._actives()
        text = b"" if self._frames else item.encode("utf-8", "surrogatepass")
        key = sha256(context.encode("utf-8", "surrogatepass") + text).digest() if text else b""
        with self._lock:
            if active != self._active:
                self._cache.clear()
                self._active = active
            cached = self._cache.find_equal(key)
        signature = None if cached else self._signature_of(item)
        with self._lock:
            cached = cached or self._cache.find(signature, context)
            self.hits += cached is not None
            self.misses += cached is None
        if cached is not None:
            if self._metrics is not None:
                self._metrics.answered(OUTCOME)
            return cached[0]
        answer = self._ask(item, *order, **options)
        with self._lock:
            if self._active == active == self._actives() and getattr(answer, "reason", "") not in CUT_SHORT:
                self._cache.keep(signature, answer, context, key)
        return answer

    def _actives(self) -> tuple[object, object]:
        return self._runs.active, None if self._embedder is None else self._embedder.active
