"""When a candidate is committed, and when it is worse than the model before it. Decisions only: no clock.

A candidate is committed after a health window: so many seconds and so many answers since its start or its
last failure. It is given up before that if it burns its error budget faster than the committed model: Wald's
sequential probability ratio test (Ann. Math. Statist. 16, 1945) on bad answers, i.e. those that failed or
that a fallback gave, with p0 the committed model's share and p1 a share that matters:

    log ratio = bad * log(p1 / p0) + (answers - bad) * log((1 - p1) / (1 - p0))

By Ville's inequality it ever exceeds log(1 / alpha) with probability at most alpha for a candidate that is
no worse, however often it is looked at. The test of :mod:`edgekit.release.fleet.sequential_test`
estimates a variance, and a candidate whose every answer fails has none.

A candidate that finds nothing is held back if the committed model found something: its outputs may be right
and its card wrong. No test says how soon it should find something, since consecutive frames are alike and a
room may be empty all night. So it is given up after a day.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from edgekit.runtime.metrics.labelled_counts import Counts

ALPHA = 0.01
"""At most this share of candidates that are no worse is given up."""
PRIOR_ANSWERS, PRIOR_BAD = 20, 1
"""What is assumed of a model before its first answer: one of twenty is bad."""
LEAST_RATE, LEAST_RISE = 0.01, 0.05
"""A committed model's share of bad answers counts as one percent at least; 5 points more, and twice as many,
are a difference that matters."""
LEAST_FOUND = 0.01
"""A committed model that found something in a smaller share of its answers is not compared: one that finds as
seldom may find nothing for days."""
COUNTS_FROM = 100
"""Answers of a committed model before they are stored; then whenever they have doubled."""
COUNTS_LIMIT = 100_000
Progress = Literal["candidate", "committed", "rolled back"]


class HealthWindow(NamedTuple):
    """Trial that a candidate must pass before it is committed.

    Attributes:
        seconds: Time without a failed answer, in seconds.
        answers: Minimum number of answers in that time, from any variant.
        empty_seconds: Time in seconds after which a candidate that found nothing is rolled back, if the model
            before it found something. Until then it is held back.
    """

    seconds: float = 300.0
    answers: int = 100
    empty_seconds: float = 86_400.0


class CandidateWatch(NamedTuple):
    """A candidate that is watched.

    Attributes:
        since_s: Its start or its last failure, in seconds of the caller's monotonic clock.
    """

    since_s: float
    start_counts: Counts = Counts()
    counts: Counts = Counts()


def watched(watch: CandidateWatch, counts: Counts, now_s: float) -> CandidateWatch:
    """Return the watch with the current counts. A new failure begins a new window."""
    if counts.failed > watch.counts.failed:
        return CandidateWatch(now_s, counts, counts)
    return watch._replace(counts=counts)


def is_healthy(watch: CandidateWatch, window: HealthWindow, now_s: float) -> bool:
    """Return whether the window is over.

    >>> watch = watched(CandidateWatch(0.0), Counts(100, 0, 1), 10.0)
    >>> is_healthy(watch, HealthWindow(60, 50), 100.0)
    False
    >>> is_healthy(watched(watch, Counts(150, 0, 1), 100.0), HealthWindow(60, 50), 100.0)
    True
    """
    answers = watch.counts.answers - watch.start_counts.answers
    return now_s - watch.since_s >= window.seconds and answers >= window.answers


def burns_faster(counts: Counts, before: tuple[int, int]) -> bool:
    """Return whether a candidate has a larger share of bad answers than the committed model.

    Args:
        before: Number of answers of the committed model, and of its bad ones.

    >>> burns_faster(Counts(3, 0, 3), (10_000, 4)), burns_faster(Counts(1000, 0, 10), (10_000, 100))
    (True, False)
    """
    answers, bad = before
    p0 = max(LEAST_RATE, (bad + PRIOR_BAD) / (answers + PRIOR_ANSWERS))
    p1 = max(2 * p0, p0 + LEAST_RISE)
    if p1 >= 1:
        return False  # the committed model is no better than this one can be
    successes = counts.answers - counts.bad
    log_ratio = counts.bad * math.log(p1 / p0) + successes * math.log((1 - p1) / (1 - p0))
    return log_ratio >= math.log(1 / ALPHA)


def finds_nothing(counts: Counts, before: Counts) -> bool:
    """Return whether a candidate has found nothing so far, and the committed model found something.

    >>> before = Counts(1000, found=300, empty=700)
    >>> finds_nothing(Counts(9, empty=9), before), finds_nothing(Counts(9, found=1, empty=8), before)
    (True, False)
    >>> finds_nothing(Counts(9), before), finds_nothing(Counts(9, empty=9), Counts(1000, empty=1000))
    (False, False)
    """
    return counts.empty > 0 == counts.found and before.found >= max(1, LEAST_FOUND * before.answers)


def worth_storing(answers: int, stored: int) -> bool:
    """Return whether a committed model's counts are written to disk: seldom, as flash wears out.

    >>> [answers for answers in range(1, 500) if worth_storing(answers, 0)][0], worth_storing(199, 100)
    (100, False)
    """
    return COUNTS_FROM <= answers <= COUNTS_LIMIT and answers >= 2 * stored


class WatchedBundle:
    """The bundle that a store has opened, from its start on.

    Args:
        now_s: The time of its start, in seconds of a monotonic clock.
    """

    def __init__(self, now_s: float) -> None:
        self._start_s, self._watch = now_s, CandidateWatch(now_s)
        self._before: Counts | None = None

    def since_start(self, counts: Counts) -> Counts:
        """Return the counts of metrics that may be older than the start: without those of the first call."""
        if self._before is None or counts.answers < self._before.answers:
            self._before = counts
        return Counts(*(now - before for now, before in zip(counts, self._before, strict=True)))

    def judge(
        self, counts: Counts, before: Counts, window: HealthWindow, now_s: float
    ) -> tuple[Progress, str]:
        """Decide whether a candidate is committed or rolled back now, with the reason if it is rolled back or
        held back.

        Args:
            before: Counts of the committed model.
        """
        self._watch = watched(self._watch, counts, now_s)
        if burns_faster(counts, (before.answers, before.bad)):
            reason = f"{counts.bad} of {counts.answers} answers failed or used a fallback"
            return "rolled back", f"{reason}; of the bundle before {before.bad} of {before.answers}"
        if not is_healthy(self._watch, window, now_s):
            return "candidate", ""
        if finds_nothing(counts, before):
            reason = f"it found nothing; the bundle before did in {before.found} of {before.answers} answers"
            return ("rolled back" if now_s - self._start_s >= window.empty_seconds else "candidate"), reason
        return "committed", ""
