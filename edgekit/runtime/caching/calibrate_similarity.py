"""Calibrate when a prediction may be reused for a similar frame, on the app's cached frames.

    calibration = measure(session, frames, order="bgr")      # hours of one camera; every frame is predicted
    print(calibration)
    Path("calibration.json").write_bytes(calibration.as_json())

Two similar frames may have different predictions. How often depends on the camera, the scene and the model,
so it must be measured: the similarity cache requires a calibration, and there is no default one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgekit.errors import UsageError
from edgekit.processing.nms import overlaps
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime.caching.frame_signature import distance, signature_of
from edgekit.runtime.clopper_pearson import upper_bound
from edgekit.runtime.predictor import Predictor
from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import decode
from edgekit.system.formats.json_schema import ManifestError
from edgekit.tensor_spec import Array

BOUND = 0.05
LIMITS = tuple(0.5 * 2 ** (step / 2) for step in range(15))
"""Distances that are tested: 0.5 to 64 levels."""
REUSES = 100
"""Reuses of a prediction after which it is computed again, even for a still image."""
CALIBRATION_LIMIT_BYTES = 4096
CONFIDENT_SCORE = 0.5
"""Score from which a detection must match; detections around the card's threshold may come and go."""
OVERLAP = 0.5
"""Minimum intersection over union of matching boxes."""


def same_prediction(one: Any, other: Any) -> bool:
    """Return whether the top class is the same, or every confident detection of either matches in the other.

    Raises:
        UsageError: the task has neither classes nor boxes.
    """
    if isinstance(one, Classes) and isinstance(other, Classes):
        return bool(one.indices[0] == other.indices[0])
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _all_matched(one, other) and _all_matched(other, one)
    raise UsageError(f"pass same= to compare two predictions: these are {type(one).__name__}")


def _all_matched(detections: Detections, candidates: Detections) -> bool:
    confident = detections.scores >= CONFIDENT_SCORE
    covered = overlaps(detections.boxes[confident], candidates.boxes, OVERLAP)
    covered &= detections.classes[confident][:, None] == candidates.classes
    return bool(covered.any(axis=1).all())


@dataclass(frozen=True)
class SimilarityCalibration:
    """Measured error rate of the similarity cache, and the limit derived from it.

    Attributes:
        limit: Frames up to this distance (``frame_signature.distance``) count as similar. 0 means none.
        references: Number of cached predictions. 1 means a motion gate.
        frames: Frames of the test half; the other half chose the limit.
        false_rate: Upper bound of the true rate, with 95 % confidence; 1.0 without hits.
    """

    model: str
    limit: float
    references: int
    bound: float
    frames: int
    hits: int
    false_hits: int
    false_rate: float

    @property
    def granted(self) -> bool:
        """Return whether predictions may be reused."""
        return self.limit > 0 and self.false_rate <= self.bound

    @property
    def refusal(self) -> str:
        """Why not; empty if granted."""
        if self.granted:
            return ""
        if not self.limit or not self.hits:
            return f"none of {self.frames} frames would reuse a prediction within that bound"
        text = (
            f"{self.false_hits} of {self.hits} hits were false, "
            f"so the rate may be up to {self.false_rate:.1%}"
        )
        return f"{text}; the bound is {self.bound:.1%}"

    def __str__(self) -> str:
        if not self.granted:
            return f"not granted: {self.refusal}"
        return (
            f"granted: {self.hits} of {self.frames} frames need no run, {self.false_hits} false, "
            f"below {self.false_rate:.1%} with 95 % confidence"
        )

    def as_json(self) -> bytes:
        """Encode the calibration for storage. ``calibration_from_json`` reads it."""
        return strict_json.encode(asdict(self))


def calibration_from_json(content: bytes) -> SimilarityCalibration:
    """Return a stored calibration.

    Raises:
        UsageError: it is invalid.
    """
    try:
        table = strict_json.decode(content, "calibration", CALIBRATION_LIMIT_BYTES)
        calibration: SimilarityCalibration = decode(SimilarityCalibration, table, "calibration")
        if calibration.false_rate < upper_bound(calibration.false_hits, calibration.hits):
            raise ValueError
    except (strict_json.JsonError, ManifestError, ValueError):
        raise UsageError(
            "this is not a calibration that SimilarityCalibration.as_json wrote; measure again"
        ) from None
    return calibration


def measure(
    runs: Predictor,
    frames: Iterable[Array],
    *,
    order: str = "rgb",
    references: int = 1,
    bound: float = BOUND,
    same: Callable[[Any, Any], bool] = same_prediction,
) -> SimilarityCalibration:
    """Predict every frame, and simulate the cache.

    The first half of the frames chooses the greatest limit whose false hits are within the bound; the second
    half tests it. The calibration is granted if the rate there is below the bound with 95 % confidence, which
    takes 59 hits without a false one for a bound of 5 %, and 299 for 1 %. The confidence assumes independent
    hits: use frames of many hours, not of one minute.

    Args:
        frames: uint8 [rows, columns, 3], in order; read once, none is kept.
        bound: Accepted share of false hits, above 0 and below 1.

    Raises:
        UsageError: an argument is invalid, or there are fewer than two frames.
        EngineError: as ``Session.run``.
    """
    if not 0 < bound < 1 or references < 1:
        raise UsageError("bound must be above 0 and below 1, and references a whole number from 1")
    samples = [(signature_of(frame), runs.predict(frame, order)) for frame in frames]
    if len(samples) < 2:
        raise UsageError(f"{len(samples)} frames are too few; use frames from several hours")
    middle = len(samples) // 2
    chosen = 0.0
    for limit in LIMITS:
        hits, false_hits = simulate_cache(samples[:middle], limit, references, same)
        if hits and false_hits <= bound * hits:
            chosen = limit
    hits, false_hits = simulate_cache(samples[middle:], chosen, references, same) if chosen else (0, 0)
    rate = upper_bound(false_hits, hits)
    return SimilarityCalibration(
        runs.bundle.digest, chosen, references, bound, len(samples) - middle, hits, false_hits, rate
    )


def simulate_cache(
    frames: Sequence[tuple[Array, Any]], limit: float, references: int, same: Callable[[Any, Any], bool]
) -> tuple[int, int]:
    """Simulate the cache; returns the hits, and those of them whose cached prediction differs."""
    cache = PredictionCache(limit, references)
    hits = false_hits = 0
    for signature, answer in frames:
        cached = cache.find(signature)
        if cached is None:
            cache.keep(signature, answer)
        else:
            hits += 1
            false_hits += not same(cached[0], answer)
    return hits, false_hits


class PredictionCache:
    """The cached predictions, in the cache itself and in the simulation."""

    def __init__(self, limit: float, references: int) -> None:
        self._limit, self._references = limit, references
        self._entries: list[tuple[Array, Any, int]] = []

    def find(self, signature: Array) -> tuple[Any] | None:
        """Return the prediction of the nearest signature within the limit, in a tuple. None if no signature
        is that near, or the prediction was reused too often."""
        near = [(distance(signature, cached), index) for index, (cached, *_) in enumerate(self._entries)]
        nearest, index = min(near, default=(math.inf, -1))
        if nearest > self._limit:
            return None
        cached, answer, used = self._entries.pop(index)
        if used >= REUSES:
            return None
        self._entries.append((cached, answer, used + 1))
        return (answer,)

    def keep(self, signature: Array, answer: Any) -> None:
        """Add a prediction; the least recently used ones are removed."""
        self._entries.append((signature, answer, 0))
        del self._entries[: -self._references]

    def clear(self) -> None:
        self._entries.clear()
