"""Calibrate when a prediction may be reused for a similar frame or text.

    calibration = measure(session, frames, order="bgr")      # hours of one camera; every frame is predicted
    calibration = measure(chat, questions, embedder=encoder)   # every question is answered
    print(calibration)
    Path("calibration.json").write_bytes(calibration.as_json())

Two similar frames may have different predictions. How often depends on the camera, the scene and the model,
so it must be measured: reuse for similar inputs requires a calibration, and there is no default one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from edgekit.errors import UsageError
from edgekit.processing.nms import overlaps
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime.caching.frame_signature import frame_distances, signature_of
from edgekit.runtime.caching.text_signature import TextSignature, text_distances
from edgekit.runtime.clopper_pearson import CONFIDENCE, binomial_cdf, upper_bound
from edgekit.runtime.predictor import Predictor, SessionProtocol
from edgekit.system.formats import strict_json
from edgekit.system.formats.declared_json import decode
from edgekit.system.formats.json_schema import ManifestError
from edgekit.tensor_spec import Array

BOUND = 0.05
LIMITS = tuple(0.5 * 2 ** (step / 2) for step in range(15))
"""Distances of frames that are tested: 0.5 to 64 levels."""
TEXT_LIMITS = tuple(0.001 * 2 ** (step / 4) for step in range(37))
"""Distances of texts that are tested: 0.001 to 0.512."""
TEXT_REFERENCES = 1000
REUSES = 100
"""Reuses of a prediction after which it is computed again, even for a still image."""
CALIBRATION_LIMIT_BYTES = 4096
COUNT_LIMIT = 1_000_000
"""Maximum frames or hits of a stored calibration; checking the rate takes time in proportion to them."""
CONFIDENT_SCORE = 0.5
"""Score from which a detection must match; detections around the card's threshold may come and go."""
OVERLAP = 0.5
"""Minimum intersection over union of matching boxes."""


def same_prediction(one: Any, other: Any) -> bool:
    """Return whether the top class is the same, every confident detection of either matches in the other, or
    the texts are equal but for white space around them.

    Raises:
        UsageError: they are neither classes nor boxes nor texts.
    """
    if isinstance(one, Classes) and isinstance(other, Classes):
        return bool(one.indices[0] == other.indices[0])
    if isinstance(one, Detections) and isinstance(other, Detections):
        return _all_matched(one, other) and _all_matched(other, one)
    texts = [getattr(answer, "text", answer) for answer in (one, other)]
    if all(isinstance(text, str) for text in texts):
        return bool(texts[0].strip() == texts[1].strip())
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
        model: Digest of the bundle that predicts.
        limit: Inputs up to this distance (``frame_distances``, ``text_distances``) count as similar. 0 means
            none.
        references: Number of cached predictions. 1 means a motion gate.
        frames: Frames or texts of the test half; the other half chose the limit.
        false_rate: Upper bound of the true rate, with 95 % confidence; 1.0 without hits.
        embedder: Digest of the text encoder's bundle; "" means frames.
    """

    model: str
    limit: float
    references: int
    bound: float
    frames: int
    hits: int
    false_hits: int
    false_rate: float
    embedder: str = ""

    @property
    def _items(self) -> str:
        return f"{self.frames} {'texts' if self.embedder else 'frames'}"

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
            return f"none of {self._items} would reuse a prediction within that bound"
        text = (
            f"{self.false_hits} of {self.hits} hits were false, "
            f"so the rate may be up to {self.false_rate:.1%}"
        )
        return f"{text}; the bound is {self.bound:.1%}"

    def __str__(self) -> str:
        if not self.granted:
            return f"not granted: {self.refusal}"
        return (
            f"granted: {self.hits} of {self._items} need no run, {self.false_hits} false, "
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
        if isinstance(table, dict):
            table = {"embedder": "", **table}  # older ones are for frames
        read: SimilarityCalibration = decode(SimilarityCalibration, table, "calibration")
        counts = 0 <= read.false_hits <= read.hits <= read.frames <= COUNT_LIMIT
        ranges = 0 <= read.limit < np.inf and read.references >= 1 and 0 < read.bound < 1
        if not (counts and ranges and 0 < read.false_rate <= 1):
            raise ValueError
        hits, rate = read.hits, read.false_rate
        if rate < 1 and not (hits and binomial_cdf(read.false_hits, hits, rate) <= 1 - CONFIDENCE):
            raise ValueError
    except (strict_json.JsonError, ManifestError, ValueError):
        raise UsageError(
            "this is not a calibration that SimilarityCalibration.as_json wrote; measure again"
        ) from None
    return read


class Signatures(NamedTuple):
    """How inputs are compared, and the digest of the embedder; "" means frames."""

    of: Callable[[Any], Array | None]
    distances: Callable[[Array, Array], Array]
    limits: Sequence[float]
    references: int
    embedder: str


def signatures_of(embedder: SessionProtocol | None) -> Signatures:
    """Return how texts are compared by an embedder, or frames by None. Raises as ``TextSignature``."""
    if embedder is None:
        return Signatures(signature_of, frame_distances, LIMITS, 1, "")
    of = TextSignature(embedder).signature_of
    return Signatures(of, text_distances, TEXT_LIMITS, TEXT_REFERENCES, embedder.bundle.digest)


def measure(
    runs: Predictor,
    items: Iterable[Any],
    *,
    embedder: SessionProtocol | None = None,
    ask: Callable[..., Any] | None = None,
    references: int | None = None,
    bound: float = BOUND,
    same: Callable[[Any, Any], bool] = same_prediction,
    **options: Any,
) -> SimilarityCalibration:
    """Predict every frame or text, and simulate the cache.

    The first half chooses the greatest limit whose false hits are within the bound with 95 % confidence; the
    second half tests it. The calibration is granted if the rate there is below the bound with 95 %
    confidence, which takes 59 hits without a false one for a bound of 5 %, and 299 for 1 %. The confidence
    assumes independent hits: use frames of many hours, not of one minute.

    Args:
        items: uint8 [rows, columns, 3], in order; read once, none is kept. With ``embedder``, texts as users
            write them, in order; repeated ones count once, because equal texts are not similar ones.
        embedder: Session on a text encoder, for texts.
        ask: Function that returns the answer to an item, e.g. ``labels.get`` of your own labels; by default
            ``runs.predict``.
        references: Maximum number of cached predictions; by default 1 for frames and 1,000 for texts. A cache
            never has more than the simulation had: a fuller one has more false hits.
        bound: Accepted share of false hits, above 0 and below 1.
        same: Returns whether two answers are equal.
        options: Options of ``ask``, e.g. ``order="bgr"``.

    Raises:
        UsageError: an argument is invalid, or there are fewer than two items.
        EngineError: as ``Session.run``.
    """
    kind = signatures_of(embedder)
    references = kind.references if references is None else references
    if not 0 < bound < 1 or references < 1:
        raise UsageError("bound must be above 0 and below 1, and references a whole number from 1")
    if embedder is not None:
        items = list(dict.fromkeys(items))
        if other := next((item for item in items if not isinstance(item, str)), None):
            raise UsageError(f"with embedder=, pass texts, not a {type(other).__name__}")
    ask = runs.predict if ask is None else ask
    samples = [(kind.of(item), ask(item, **options)) for item in items]
    if len(samples) < 2:
        few = "texts are too few; use texts of" if embedder else "frames are too few; use frames from"
        raise UsageError(f"{len(samples)} {few} several hours")
    first, tested = samples[: len(samples) // 2], samples[len(samples) // 2 :]

    def simulated(half: Sequence[tuple[Array | None, Any]], limit: float) -> tuple[int, int]:
        return simulate_cache(half, PredictionCache(limit, references, kind.distances), same)

    tried = [(limit, *simulated(first, limit)) for limit in kind.limits]
    likely = [(limit, hits, false) for limit, hits, false in tried if hits and false <= bound * hits]
    sure = [limit for limit, hits, false in likely if upper_bound(false, hits) <= bound]
    chosen = max(sure or [limit for limit, *_ in likely], default=0.0)
    hits, false_hits = simulated(tested, chosen) if chosen else (0, 0)
    kept, rate = max(1, min(references, len(tested) - hits)), upper_bound(false_hits, hits)
    return SimilarityCalibration(
        runs.bundle.digest, chosen, kept, bound, len(tested), hits, false_hits, rate, kind.embedder
    )


def simulate_cache(
    samples: Sequence[tuple[Array | None, Any]], cache: PredictionCache, same: Callable[[Any, Any], bool]
) -> tuple[int, int]:
    """Simulate a cache; returns the hits, and those of them whose cached prediction differs."""
    hits = false_hits = 0
    for signature, answer in samples:
        cached = cache.find(signature)
        if cached is None:
            cache.keep(signature, answer)
        else:
            hits += 1
            false_hits += not same(cached[0], answer)
    return hits, false_hits


class PredictionCache:
    """The cached predictions, in the cache itself and in the simulation.

    Args:
        distances: Returns the distances of signatures [n, ...] from another one.
    """

    def __init__(
        self,
        limit: float,
        references: int,
        distances: Callable[[Array, Array], Array] = frame_distances,
    ) -> None:
        self._limit, self._references, self._distances = limit, references, distances
        self._entries: list[_Entry] = []

    def find_equal(self, key: bytes) -> tuple[Any] | None:
        """Return the prediction that was kept with this key, in a tuple."""
        entry = next((entry for entry in self._entries if key and entry.key == key), None)
        return None if entry is None else self._used(entry)

    def find(self, signature: Array | None, context: str = "") -> tuple[Any] | None:
        """Return the prediction of the nearest signature within the limit, in a tuple. None if no signature
        of this context and shape is that near, or the prediction was reused too often."""
        if signature is None:
            return None
        comparable = [e for e in self._entries if e.alike == (context, signature.shape)]
        if not comparable:
            return None
        distances = self._distances(np.stack([entry.signature for entry in comparable]), signature)
        nearest = int(distances.argmin())
        return self._used(comparable[nearest], 1) if distances[nearest] <= self._limit else None

    def _used(self, entry: _Entry, times: int = 0) -> tuple[Any] | None:
        self._entries = [other for other in self._entries if other is not entry]
        if entry.used + times > REUSES:
            return None
        self._entries.append(entry._replace(used=entry.used + times))
        return (entry.answer,)

    def keep(self, signature: Array | None, answer: Any, context: str = "", key: bytes = b"") -> None:
        """Add a prediction; the least recently used ones are removed."""
        alike = (context, None if signature is None else signature.shape)
        self._entries.append(_Entry(key, alike, signature, answer))
        del self._entries[: -self._references]

    def clear(self) -> None:
        self._entries.clear()


class _Entry(NamedTuple):
    """``alike``: the options of its call and the shape of its signature, without which it is not reused."""

    key: bytes
    alike: tuple[str, Any]
    signature: Any
    answer: Any
    used: int = 0
