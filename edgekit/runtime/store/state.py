"""The persistent state of a bundle store, and its decisions. Nothing here opens a file.

installed -> staged --start--> candidate --confirmed--> committed --next one confirmed--> previous
                                   | given up                | given up
                                   v                         v
                              the committed one         the previous one, then the factory's
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

STARTS_LIMIT = 3
"""Unconfirmed starts after which a bundle is given up."""
GOOD_LIMIT = 2
"""Committed bundles that are kept: the newest and the one before."""
REASONS_LIMIT = 20
"""Given-up bundles that are kept in the state, with their reasons."""
FACTORY = ""
NOTHING = ""
"""No bundle is staged."""

Phase = Literal["staged", "candidate", "committed", "previous", "given up", "factory", ""]


@dataclass(frozen=True)
class StoreState:
    """The state of a store. Bundles are digests; "" is the factory's.

    Attributes:
        active: The bundle that was started last: a candidate, a committed one or the factory's.
        starts: Starts of it since it was last confirmed.
        staged: The installed bundle that the next start takes as its candidate; "" for none.
        good: Committed bundles, the newest first.
        stood_in: Committed bundles started as substitutes, because the active one could not be opened for a
            reason that may pass, and their starts since they were last confirmed: (digest, starts).
        minimum: The lowest version that is installed: the highest that was ever committed.
        versions: Versions of the bundles above that have one: (digest, version).
        answers: For committed bundles and the factory's, counts with which
            :mod:`edgekit.runtime.store.health` compares a candidate: (digest, answers, those of them that
            failed or were a fallback's, predictions with an object).
    """

    serial: int = 0
    active: str = FACTORY
    starts: int = 0
    staged: str = NOTHING
    good: tuple[str, ...] = ()
    given_up: tuple[tuple[str, str], ...] = ()
    stood_in: tuple[tuple[str, int], ...] = ()
    minimum: int = 0
    versions: tuple[tuple[str, int], ...] = ()
    answers: tuple[tuple[str, int, int, int], ...] = ()

    @property
    def current(self) -> str:
        """Return the bundle of the next start: the staged one if there is one, else the active one."""
        return self.staged or self.active

    @property
    def candidate(self) -> str:
        """Return the active bundle while it is not committed; "" for none."""
        return "" if self.active in self.good else self.active

    @property
    def named(self) -> set[str]:
        """Return the bundles whose files are needed."""
        return {self.staged, self.active, *self.good} - {FACTORY}

    def phase(self, digest: str) -> Phase:
        """Return the phase of a bundle in this store; "" if it is not known.

        >>> state = StoreState(active="b", good=("b", "a"), staged="c")
        >>> [state.phase(digest) for digest in ("a", "b", "c", "d")]
        ['previous', 'committed', 'staged', '']
        """
        if digest == FACTORY:
            return "factory"
        if digest == self.staged:
            return "staged"
        if digest in self.good:
            return "committed" if digest == self.good[0] else "previous"
        if digest == self.active:
            return "candidate"
        return "given up" if digest in dict(self.given_up) else ""


def installed(state: StoreState, digest: str, version: int | None = None) -> StoreState:
    """Record a bundle put into its slot for the next start; what runs stays as it is. One that was given up
    before gets a new chance, and so does the active one."""
    versions = tuple(entry for entry in state.versions if entry[0] != digest)
    state = replace(
        state,
        staged=digest,
        given_up=tuple(entry for entry in state.given_up if entry[0] != digest),
        stood_in=(),
        versions=versions if version is None else (*versions, (digest, version)),
    )
    return replace(state, staged=NOTHING, starts=0) if digest == state.active else state


def refusal(state: StoreState, digest: str, version: int | None) -> str:
    """Return the reason that a bundle of this version may not be installed, or "". The reason is that a newer
    version was already committed.

    >>> state = StoreState(good=("b", "a"), minimum=7, versions=(("a", 6), ("b", 7)))
    >>> refusal(state, "c", 8), refusal(state, "a", 6)
    ('', '')
    >>> refusal(state, "c", 5)
    'its version is 5, but version 7 was already committed'
    """
    if digest in state.good or state.minimum == 0 or (version or 0) >= state.minimum:
        return ""
    its = "it has no version" if version is None else f"its version is {version}"
    return f"{its}, but version {state.minimum} was already committed"


def to_start(state: StoreState, skipped: Collection[str] = ()) -> str:
    """Choose the bundle to start: staged or active, else the newest committed one, else the factory's."""
    candidates = [state.staged] if state.staged else []
    candidates += [state.active, *state.good]
    return next((digest for digest in candidates if digest not in skipped), FACTORY)


def started(state: StoreState, skipped: Collection[str] = ()) -> StoreState:
    """Count a start of the bundle that :func:`to_start` returns afterwards; the staged one becomes active.

    >>> state = installed(StoreState(active="a", good=("a",)), "b")
    >>> for _ in range(3):
    ...     state = started(state)
    >>> state.active, started(state).active
    ('b', 'a')
    """
    if state.staged and state.staged not in skipped:
        state = replace(state, active=state.staged, staged=NOTHING, starts=0, stood_in=())
    while (digest := to_start(state, skipped)) != FACTORY and (
        starts := starts_of(state, digest)
    ) >= STARTS_LIMIT:
        state = given_up(state, f"{starts} starts ended before it was confirmed", digest)
    return _without_unused(_counted(state, digest, starts_of(state, digest) + 1))


def uncounted(state: StoreState, digest: str) -> StoreState:
    """Take a failed start off the count: the bundle was not the cause."""
    return _counted(state, digest, max(0, starts_of(state, digest) - 1))


def starts_of(state: StoreState, digest: str) -> int:
    """Return the number of starts of a bundle since it was last confirmed."""
    return state.starts if digest == state.active else dict(state.stood_in).get(digest, 0)


def confirmed(state: StoreState, digest: str | None = None) -> StoreState:
    """Commit a working bundle, by default the one of the next start. From now on, no lower version is
    installed. One that was given up meanwhile stays given up."""
    digest = state.current if digest is None else digest
    if digest in dict(state.given_up):
        return state
    if digest == state.staged != NOTHING:
        state = replace(state, active=digest, staged=NOTHING)
    state = _counted(state, digest, 0)
    if digest == FACTORY:
        return state
    committed = (digest, *(other for other in state.good if other != digest))[:GOOD_LIMIT]
    minimum = max(state.minimum, dict(state.versions).get(digest, 0))
    return _without_unused(replace(state, good=committed, minimum=minimum))


def given_up(state: StoreState, reason: str, digest: str | None = None) -> StoreState:
    """Give up a bundle, by default the one of the next start. A staged one is dropped; the active one is
    replaced by the newest committed one, or by the factory's."""
    digest = state.current if digest is None else digest
    if digest == FACTORY:
        return state
    committed = tuple(other for other in state.good if other != digest)
    entries = (*(entry for entry in state.given_up if entry[0] != digest), (digest, reason))
    state = replace(_counted(state, digest, 0), good=committed, given_up=entries[-REASONS_LIMIT:])
    if digest == state.staged:
        state = replace(state, staged=NOTHING)
    if digest == state.active:
        state = replace(state, active=committed[0] if committed else FACTORY, starts=0, stood_in=())
    return _without_unused(state)


def counted(state: StoreState, digest: str, answers: int, bad: int, found: int) -> StoreState:
    """Record the number of answers of a committed bundle or the factory's, how many failed or were a
    fallback's, and how many predictions had an object."""
    if digest not in (*state.good, FACTORY):
        return state
    others = tuple(entry for entry in state.answers if entry[0] != digest)
    return replace(state, answers=(*others, (digest, answers, bad, found)))


def failure_action(blame: str, is_good: bool) -> Literal["give up", "skip", "count"]:
    """Decide what to do about a bundle that did not open.

    A bundle committed here is given up only if it is at fault itself. For a candidate an engine error is its
    own fault too, unless another engine was missing as well: then the start counts.

    Args:
        blame: The error's ``EdgeKitError.blame``.
        is_good: Whether the bundle was committed.

    >>> [failure_action(blame, True) for blame in ("bundle", "")]
    ['give up', 'skip']
    >>> [failure_action(blame, False) for blame in ("", "machine", "both")]
    ['give up', 'skip', 'count']
    """
    if blame == "bundle" or (not blame and not is_good):
        return "give up"
    return "skip" if is_good or blame == "machine" else "count"


def _counted(state: StoreState, digest: str, starts: int) -> StoreState:
    if digest == state.active:
        return replace(state, starts=starts)
    others = tuple(entry for entry in state.stood_in if entry[0] != digest)
    substitutes = starts > 0 and digest != FACTORY  # the factory's is never given up
    return replace(state, stood_in=(*others, (digest, starts)) if substitutes else others)


def _without_unused(state: StoreState) -> StoreState:
    named = state.named
    return replace(
        state,
        versions=tuple(entry for entry in state.versions if entry[0] in named),
        answers=tuple(entry for entry in state.answers if entry[0] in (*state.good, FACTORY)),
    )
