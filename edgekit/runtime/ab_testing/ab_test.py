"""An A/B test of two variants of a bundle on live requests; users keep their variant.

    with Session("detector.edgekit") as session, ABTest(session, "ort-int8") as test:
        outputs = test.run(feeds, key=camera)       # the same key, the same variant
        test.score(camera, accepted)                # the app's own metric, if it has one
        print(test.latency, test.scores)

Both are loaded, which costs the memory of the second. Results stay valid however often they are looked at
(``sequential_test.py``).
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError
from edgekit.runtime.ab_testing.sequential_test import LEAST, Comparison, step
from edgekit.runtime.streaming.replica import Replica
from edgekit.tensor_spec import Array

if TYPE_CHECKING:
    from edgekit.runtime.predictor import SessionProtocol

ALPHA = 0.05
LATENCY_EFFECT, SCORE_EFFECT = 0.1, 0.05
"""Effect sizes: 10 % of the time (its logarithm is compared), 0.05 of a score."""
EQUAL = 0.01
"""Times that differ by less count as equal: the overheads of the two runners differ by some microseconds."""


@dataclass(frozen=True)
class Verdict:
    """The result of a test so far.

    Attributes:
        a: The session's variant.
        b: The other variant.
        answers: Requests run by each.
        difference: Of ``b`` from ``a``: 0.1 is 10 % more time, or 0.1 more score.
        low: Lower confidence limit of the true difference, at level 1 - alpha, valid at all times.
        high: Upper limit.
        p: Always-valid p-value.
        winner: The better one, once the difference is significant, for times beyond 1 %; else "".
    """

    a: str
    b: str
    answers: tuple[int, int]
    difference: float
    low: float
    high: float
    p: float
    winner: str

    def __str__(self) -> str:
        if not math.isfinite(self.high):
            return (
                f"{self.b} against {self.a}: {self.answers[1]} and {self.answers[0]} requests; "
                f"{LEAST} each are needed"
            )
        text = f"{self.b} against {self.a}: {self.difference:+.1%}, {self.low:+.1%} to {self.high:+.1%}"
        return f"{text}, p {self.p:.2g}; {self.winner or 'neither'} is better"


class ABTest:
    """A session whose requests are split between two variants. Thread-safe.

    Requests count only while both variants run as planned, not during a fallback.

    Args:
        session: Runs ``a``, the variant that is active now; it must outlive this.
        variant: Name of ``b``.
        share: Share of the keys that get ``b``.
        alpha: Significance level: at most this share of tests of equal variants finds a difference.
        salt: Changes the assignment of keys. None: derived from the bundle and ``variant``.

    Attributes:
        notes: Why requests are not counted at present.

    Raises:
        UsageError: there is no such variant, it is the active one, or ``share`` or ``alpha`` is invalid.
        MissingDependency, EngineError: it does not load.
    """

    def __init__(
        self,
        session: SessionProtocol,
        variant: str,
        *,
        share: float = 0.5,
        alpha: float = ALPHA,
        salt: str | None = None,
    ) -> None:
        if not 0 < share < 1 or not 0 < alpha < 1:
            raise UsageError(f"share and alpha must be above 0 and below 1, not {share!r} and {alpha!r}")
        self.a, self.b = session.active.variant, variant
        if self.a == self.b:
            raise UsageError(
                f"{variant} is the session's own variant; name another one of {session.bundle.name}"
            )
        self._session, self._share, self._alpha = session, share, alpha
        self._salt = f"{session.bundle.digest}/{variant}" if salt is None else salt
        self._replica = Replica(session, variant, session.threads)
        zeros = {spec.name: spec.zeros() for spec in session.inputs}
        session.run(zeros)  # warm up both
        self._replica.run(zeros)
        self._lock, self._running = threading.Lock(), threading.Lock()
        self._times = Comparison(LATENCY_EFFECT)
        self._scores = Comparison(SCORE_EFFECT)

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self._replica.failed:
            notes.append(f"{self.b} failed, {self.a} runs its requests: {self._replica.failed}")
        if self._session.active.variant != self.a:
            notes.append(f"the session fell back to {self._session.active.variant}")
        return tuple(notes)

    def gets(self, key: str) -> str:
        """The variant of a key: always the same."""
        return self.b if self._is_b(key) else self.a

    def run(self, feeds: Mapping[str, Array], key: str) -> dict[str, Array]:
        """As ``Session.run``, on the variant of the key: a user's, a camera's, a request's."""
        is_b = self._is_b(key)
        runs = self._replica if is_b else self._session
        with self._running:  # one at a time: waiting must not count as run time
            began_s = time.perf_counter()
            outputs = runs.run(feeds)
            took_s = time.perf_counter() - began_s
        if not self.notes:
            with self._lock:
                self._times = step(self._times, is_b, math.log(max(took_s, 1e-9)))
        return outputs

    def predict(self, frame: Array, key: str, order: str = "rgb", **options: Any) -> Any:
        """As ``Session.predict``, on the variant of the key."""
        feeds, placed = self._session.prepare(frame, order)
        return self._session.decode(self.run(feeds, key), placed, **options)

    def score(self, key: str, value: float) -> None:
        """Record a score for a request of that key, by the app's own metric: 0 to 1, more is better."""
        if not 0 <= value <= 1:
            raise UsageError(f"a score is a number from 0 to 1, not {value!r}")
        if not self.notes:
            with self._lock:
                self._scores = step(self._scores, self._is_b(key), float(value))

    @property
    def latency(self) -> Verdict:
        """Of the engine time; the difference is relative to ``a``."""
        with self._lock:
            times = self._times
        low, high = times.interval(self._alpha)
        winner = self.a if low > EQUAL else self.b if high < -EQUAL else ""
        difference, low, high = map(math.expm1, (times.difference, low, high))
        return self._verdict(times, difference, low, high, winner)

    @property
    def scores(self) -> Verdict:
        """Of the app's own metric."""
        with self._lock:
            scores = self._scores
        low, high = scores.interval(self._alpha)
        winner = self.b if low > 0 else self.a if high < 0 else ""
        return self._verdict(scores, scores.difference, low, high, winner)

    def _verdict(self, known: Comparison, difference: float, low: float, high: float, winner: str) -> Verdict:
        answers = (known.a.count, known.b.count)
        return Verdict(self.a, self.b, answers, difference, low, high, known.p, winner)

    def close(self) -> None:
        """Free ``b``; the session stays open. Closing twice is fine."""
        self._replica.close()

    def __enter__(self) -> ABTest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_b(self, key: str) -> bool:
        return hash_fraction(key, self._salt) < self._share


def hash_fraction(key: str, salt: str) -> float:
    """Hash a key to a number from 0 to below 1, uniformly; another salt gives another number.

    >>> hash_fraction("camera", "one") == hash_fraction("camera", "one") != hash_fraction("camera", "two")
    True
    """
    digest = hashlib.sha256(f"{len(salt)}:{salt}{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
