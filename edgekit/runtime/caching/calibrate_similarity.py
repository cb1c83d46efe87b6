"""Whether answers may be used again for frames that look the same: measured on an app's own frames.

    permit = measure(session, frames, order="bgr")      # hours of one camera; every frame is answered
    print(permit)
    Path("permit.json").write_bytes(permit.as_json())

Two frames that look the same may have different answers. How often they do depends on the camera, the scene
and the model, so nobody can say without measuring: a gate takes a permit, and none is given away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.formats import strict_json
from edgekit.runtime.caching.frame_signature import distance, signature_of
from edgekit.runtime.caching.same_prediction import same_prediction
from edgekit.tensors import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import Predictor

BOUND = 0.05
CONFIDENCE = 0.95
LIMITS = tuple(0.5 * 2 ** (step / 2) for step in range(15))
"""Distances that are tried: 0.5 to 64 levels."""
REUSES = 100
"""So often an answer is used again before the frame is answered anew, however still it is."""
PERMIT_LIMIT_BYTES = 4096


@dataclass(frozen=True)
class SimilarityCalibration:
    """What was measured, and what it allows.

    Attributes:
        model: Digest of the bundle it was measured on.
        limit: Frames up to this distance (``looks.distance``) are taken as the same; 0: none.
        references: Answers that a frame is compared with: 1 for a motion gate.
        bound: Of the hits so many may be false.
        frames: That proved it: half of those measured, the other half chose the limit.
        hits: Of these frames, those that would have been answered by an earlier answer.
        false_hits: Those of the hits whose own answer was another one.
        false_rate: What the true rate is below, with 95 % confidence; 1.0 of no hits.
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
        """Whether answers may be used again."""
        return self.limit > 0 and self.false_rate <= self.bound

    @property
    def why_not(self) -> str:
        """What stands against it; empty where it is granted."""
        if self.granted:
            return ""
        if not self.limit or not self.hits:
            return f"of {self.frames} frames none would be answered by an earlier answer at that bound"
        told = (
            f"{self.false_hits} of {self.hits} hits were false, so that the rate may be {self.false_rate:.1%}"
        )
        return f"{told}; the bound is {self.bound:.1%}"

    def __str__(self) -> str:
        if not self.granted:
            return f"not granted: {self.why_not}"
        return (
            f"granted: {self.hits} of {self.frames} frames need no run, {self.false_hits} false, "
            f"below {self.false_rate:.1%} with 95 % confidence"
        )

    def as_json(self) -> bytes:
        """To keep it; ``calibration_from_json`` reads it."""
        return strict_json.encode(asdict(self))


def calibration_from_json(content: bytes) -> SimilarityCalibration:
    """A permit as it was kept.

    Raises:
        UsageError: it is none.
    """
    try:
        table = strict_json.decode(content, "permit", PERMIT_LIMIT_BYTES)
        permit = SimilarityCalibration(**table)
        whole = (permit.references, permit.frames, permit.hits, permit.false_hits)
        rates = (permit.limit, permit.bound, permit.false_rate)
        if not all(type(count) is int for count in whole) or not all(type(r) in (int, float) for r in rates):
            raise TypeError
        if permit.false_rate < upper_bound(permit.false_hits, permit.hits):
            raise ValueError
    except (strict_json.JsonError, TypeError, ValueError):
        raise UsageError("this is no permit as Permit.as_json gives one; measure again") from None
    return permit


def measure(
    runs: Predictor,
    frames: Iterable[Array],
    *,
    order: str = "rgb",
    references: int = 1,
    bound: float = BOUND,
    same: Callable[[Any, Any], bool] = same_prediction,
) -> SimilarityCalibration:
    """Answer every frame, and see what using answers again would have cost.

    The first half of the frames chooses the greatest limit whose false hits are within the bound; the second
    half, on which nothing was chosen, proves it: the permit is granted if its rate is below the bound with
    95 % confidence. That takes 59 hits without a false one for a bound of 5 %, 299 for 1 %. The confidence is
    that of independent hits: take frames of many hours, not of one minute.

    Args:
        runs: As it will serve.
        frames: uint8 [rows, columns, 3], in the order in which they come; read once, none is kept.
        order: Of their colours.
        references: Answers that will be kept; 1: a motion gate.
        bound: Of the hits so many may be false, above 0 and below 1.
        same: Whether two answers are the same to the app.

    Raises:
        UsageError: an argument does not fit, or there are fewer than two frames.
        EngineError: as ``Session.run``.
    """
    if not 0 < bound < 1 or references < 1:
        raise UsageError("bound must be above 0 and below 1, and references a whole number from 1")
    seen = [(signature_of(frame), runs.predict(frame, order)) for frame in frames]
    if len(seen) < 2:
        raise UsageError(f"{len(seen)} frames measure nothing; give those of some hours")
    middle = len(seen) // 2
    chosen = 0.0
    for limit in LIMITS:
        hits, false_hits = replayed(seen[:middle], limit, references, same)
        if hits and false_hits <= bound * hits:
            chosen = limit
    hits, false_hits = replayed(seen[middle:], chosen, references, same) if chosen else (0, 0)
    rate = upper_bound(false_hits, hits)
    return SimilarityCalibration(
        runs.bundle.digest, chosen, references, bound, len(seen) - middle, hits, false_hits, rate
    )


def replayed(
    seen: Sequence[tuple[Array, Any]], limit: float, references: int, same: Callable[[Any, Any], bool]
) -> tuple[int, int]:
    """Frames that an earlier answer would have answered, and those of them where it was another one."""
    held = Held(limit, references)
    hits = false_hits = 0
    for look, answer in seen:
        found = held.find(look)
        if found is None:
            held.keep(look, answer)
        else:
            hits += 1
            false_hits += not same(found[0], answer)
    return hits, false_hits


class Held:
    """The answers that may be used again: what gates do, and what measuring them replays."""

    def __init__(self, limit: float, references: int) -> None:
        self._limit, self._references = limit, references
        self._held: list[tuple[Array, Any, int]] = []

    def find(self, look: Array) -> tuple[Any] | None:
        """The answer of the nearest look within the limit, in a tuple; None where there is none."""
        near = [(distance(look, own), place) for place, (own, *_) in enumerate(self._held)]
        least, place = min(near, default=(math.inf, -1))
        if least > self._limit:
            return None
        own, answer, used = self._held.pop(place)
        if used >= REUSES:
            return None
        self._held.append((own, answer, used + 1))
        return (answer,)

    def keep(self, look: Array, answer: Any) -> None:
        """Remember an answer; of too many the one that was used longest ago goes."""
        self._held.append((look, answer, 0))
        del self._held[: -self._references]

    def clear(self) -> None:
        self._held.clear()


def upper_bound(false_hits: int, hits: int) -> float:
    """What a rate is below, with 95 % confidence, where so many of so many were seen.

    Clopper and Pearson 1934: the rate at which so few or fewer would be seen in 5 of 100 cases.

    >>> round(upper_bound(0, 59), 4), round(upper_bound(5, 100), 4), upper_bound(0, 0)
    (0.0495, 0.1023, 1.0)
    """
    if false_hits >= hits:
        return 1.0
    low, high = false_hits / hits, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if _at_most(false_hits, hits, middle) < 1 - CONFIDENCE else (middle, high)
    return high


def _at_most(seen: int, trials: int, rate: float) -> float:
    """The probability of at most so many of so many, each at that rate: the binomial's distribution."""
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(rate) + (trials - k) * math.log1p(-rate)
        for k in range(seen + 1)
    )  # fmt: skip
    return sum(math.exp(log) for log in logs)
