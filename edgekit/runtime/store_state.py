"""The persistent state of a bundle store, and its decisions. Only ``read`` opens a file."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.formats import strict_json
from edgekit.formats.strict_json import JsonError
from edgekit.system import ownership

STARTS_LIMIT = 3
"""Unconfirmed starts after which a bundle is given up."""
GOOD_LIMIT = 2
"""Confirmed bundles that are kept: the current one and the one before."""
REASONS_LIMIT = 20
"""Given-up bundles that are kept in the state, with their reasons."""
STATE_LIMIT_BYTES = 1 << 16
FACTORY = ""


@dataclass(frozen=True)
class StoreState:
    """The state of a store. Bundles are digests; "" is the factory's.

    Attributes:
        serial: Incremented by each change.
        current: The bundle of the next start.
        starts: Starts of it since it was last confirmed.
        good: Confirmed bundles, the newest first.
        given_up: Given-up bundles: (digest, reason).
        stood_in: Confirmed bundles started as substitutes, because the current one could not be opened for a
            reason that may pass, and their starts since they were last confirmed: (digest, starts).
    """

    serial: int = 0
    current: str = FACTORY
    starts: int = 0
    good: tuple[str, ...] = ()
    given_up: tuple[tuple[str, str], ...] = ()
    stood_in: tuple[tuple[str, int], ...] = ()


def installed(state: StoreState, digest: str) -> StoreState:
    """A bundle was put into its slot for the next start. One that was given up before gets a new chance."""
    given_up = tuple(entry for entry in state.given_up if entry[0] != digest)
    return replace(state, current=digest, starts=0, given_up=given_up, stood_in=())


def to_start(state: StoreState, skipped: Collection[str] = ()) -> str:
    """The bundle to start: the current one, else the newest confirmed one, else the factory's.

    Args:
        state: The state.
        skipped: Bundles skipped at this start.
    """
    return next((digest for digest in (state.current, *state.good) if digest not in skipped), FACTORY)


def started(state: StoreState, skipped: Collection[str] = ()) -> StoreState:
    """Count a start of the bundle that :func:`to_start` returns afterwards.

    >>> state = installed(StoreState(good=("a",)), "b")
    >>> for _ in range(3):
    ...     state = started(state)
    >>> state.current, started(state).current
    ('b', 'a')
    """
    while (digest := to_start(state, skipped)) != FACTORY and (
        starts := starts_of(state, digest)
    ) >= STARTS_LIMIT:
        state = given_up(state, f"{starts} starts ended before it was confirmed", digest)
    return _counted(state, digest, starts_of(state, digest) + 1)


def uncounted(state: StoreState, digest: str) -> StoreState:
    """A start failed for a reason that is not the bundle's: take it off the count."""
    return _counted(state, digest, max(0, starts_of(state, digest) - 1))


def starts_of(state: StoreState, digest: str) -> int:
    """Starts of a bundle since it was last confirmed."""
    return state.starts if digest == state.current else dict(state.stood_in).get(digest, 0)


def confirmed(state: StoreState, digest: str | None = None) -> StoreState:
    """A bundle works, by default the current one; one that was given up meanwhile stays given up."""
    digest = state.current if digest is None else digest
    if digest in dict(state.given_up):
        return state
    state = _counted(state, digest, 0)
    if digest == FACTORY:
        return state
    return replace(state, good=(digest, *(known for known in state.good if known != digest))[:GOOD_LIMIT])


def given_up(state: StoreState, reason: str, digest: str | None = None) -> StoreState:
    """A bundle, by default the current one, does not work. The current one is replaced by the newest
    confirmed one, or by the factory's."""
    digest = state.current if digest is None else digest
    if digest == FACTORY:
        return state
    good = tuple(known for known in state.good if known != digest)
    entries = (*(entry for entry in state.given_up if entry[0] != digest), (digest, reason))
    state = replace(_counted(state, digest, 0), good=good, given_up=entries[-REASONS_LIMIT:])
    if digest != state.current:
        return state
    return replace(state, current=good[0] if good else FACTORY, starts=0, stood_in=())


def failure_action(blame: str, is_good: bool) -> Literal["give up", "skip", "count"]:
    """What to do about a bundle that did not open.

    A bundle confirmed here is given up only if it is at fault itself. For an unconfirmed one an engine error
    is its own fault too, unless another engine was missing as well: then the start counts.

    Args:
        blame: As ``EdgeKitError.blame``.
        is_good: Whether it was confirmed.

    >>> [failure_action(blame, True) for blame in ("bundle", "")]
    ['give up', 'skip']
    >>> [failure_action(blame, False) for blame in ("", "machine", "both")]
    ['give up', 'skip', 'count']
    """
    if blame == "bundle" or (not blame and not is_good):
        return "give up"
    return "skip" if is_good or blame == "machine" else "count"


def _counted(state: StoreState, digest: str, starts: int) -> StoreState:
    if digest == state.current:
        return replace(state, starts=starts)
    others = tuple(entry for entry in state.stood_in if entry[0] != digest)
    substitutes = starts > 0 and digest != FACTORY  # the factory's is never given up
    return replace(state, stood_in=(*others, (digest, starts)) if substitutes else others)


def encoded(state: StoreState) -> bytes:
    """The content of a state file: the sha256 of the JSON, and the JSON."""
    content = strict_json.encode(asdict(state))
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def read(path: Path) -> StoreState | None:
    """The state in a file; None if it is not exactly what :func:`encoded` wrote.

    Raises:
        OSError: it is missing, cannot be read, or does not belong to this user or root.
    """
    digest, _, content = ownership.read_own(path, STATE_LIMIT_BYTES + 1).partition(b"\n")
    if hashlib.sha256(content).hexdigest().encode("ascii") != digest:
        return None
    try:
        known = strict_json.decode(content, path.name, STATE_LIMIT_BYTES)
        return StoreState(
            int(known["serial"]),
            checked_digest(known["current"]),
            int(known["starts"]),
            tuple(checked_digest(digest) for digest in known["good"]),
            tuple((checked_digest(digest), str(reason)) for digest, reason in known["given_up"]),
            tuple((checked_digest(digest), int(starts)) for digest, starts in known.get("stood_in", ())),
        )
    except (JsonError, KeyError, TypeError, ValueError):
        return None


def checked_digest(text: str) -> str:
    """Validate a digest, which becomes a file name: a state file may have been tampered with.

    Raises:
        ValueError: it is not a digest.
    """
    if text != FACTORY and not (len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise ValueError(f"{text!r} is not a digest")
    return text
