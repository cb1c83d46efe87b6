"""What a store of bundles remembers on the disk, and what it decides by that: only ``read`` opens a file."""

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
"""Starts that may end unconfirmed before a bundle is given up."""
GOOD_LIMIT = 2
"""Confirmed bundles that are kept: the one that runs and the one before."""
REASONS_LIMIT = 20
"""Bundles given up that are remembered, with the reason."""
STATE_LIMIT_BYTES = 1 << 16
FACTORY = ""


@dataclass(frozen=True)
class StoreState:
    """What a store remembers. Bundles are digests; "" is the factory's.

    Attributes:
        serial: Grows with each change.
        current: What the next start runs.
        starts: How often it was started since it was last confirmed.
        good: What was confirmed, the newest first.
        given_up: What was not well, with the reason: (digest, reason).
        stood_in: Good bundles that were started because the current one could not be opened for a reason that
            may pass, and how often since they were last confirmed: (digest, starts).
    """

    serial: int = 0
    current: str = FACTORY
    starts: int = 0
    good: tuple[str, ...] = ()
    given_up: tuple[tuple[str, str], ...] = ()
    stood_in: tuple[tuple[str, int], ...] = ()


def installed(state: StoreState, digest: str) -> StoreState:
    """A bundle was put into its slot: it runs at the next start. One given up before gets another chance."""
    given_up = tuple(entry for entry in state.given_up if entry[0] != digest)
    return replace(state, current=digest, starts=0, given_up=given_up, stood_in=())


def to_start(state: StoreState, out: Collection[str] = ()) -> str:
    """The bundle to start: the current one, else a good one, the newest first, else the factory's.

    Args:
        state: What is remembered.
        out: What is passed over at this start.
    """
    return next((digest for digest in (state.current, *state.good) if digest not in out), FACTORY)


def started(state: StoreState, out: Collection[str] = ()) -> StoreState:
    """A start begins, of what :func:`to_start` gives afterwards.

    >>> state = installed(StoreState(good=("a",)), "b")
    >>> for _ in range(3):
    ...     state = started(state)
    >>> state.current, started(state).current
    ('b', 'a')
    """
    while (digest := to_start(state, out)) != FACTORY and (
        starts := starts_of(state, digest)
    ) >= STARTS_LIMIT:
        state = given_up(state, f"{starts} starts of it ended before it was confirmed", digest)
    return _counted(state, digest, starts_of(state, digest) + 1)


def excused(state: StoreState, digest: str) -> StoreState:
    """A start of a bundle failed for a reason that is not its own: it does not count."""
    return _counted(state, digest, max(0, starts_of(state, digest) - 1))


def starts_of(state: StoreState, digest: str) -> int:
    """Starts of a bundle since it was last confirmed."""
    return state.starts if digest == state.current else dict(state.stood_in).get(digest, 0)


def confirmed(state: StoreState, digest: str | None = None) -> StoreState:
    """A bundle is well, the current one if none is named; one that was given up meanwhile stays so."""
    digest = state.current if digest is None else digest
    if digest in dict(state.given_up):
        return state
    state = _counted(state, digest, 0)
    if digest == FACTORY:
        return state
    return replace(state, good=(digest, *(known for known in state.good if known != digest))[:GOOD_LIMIT])


def given_up(state: StoreState, reason: str, digest: str | None = None) -> StoreState:
    """A bundle, the current one if none is named, is not well. For the current one the last one that was well
    takes over, in the end the factory's."""
    digest = state.current if digest is None else digest
    if digest == FACTORY:
        return state
    good = tuple(known for known in state.good if known != digest)
    out = (*(entry for entry in state.given_up if entry[0] != digest), (digest, reason))
    state = replace(_counted(state, digest, 0), good=good, given_up=out[-REASONS_LIMIT:])
    if digest != state.current:
        return state
    return replace(state, current=good[0] if good else FACTORY, starts=0, stood_in=())


def fate(blame: str, is_good: bool) -> Literal["give up", "excuse", "count"]:
    """What a bundle that did not open deserves.

    One that was confirmed here goes for its own faults alone. Of one that never was, an engine's refusal is a
    fault of its own, unless another engine was missing beside it: then the start counts.

    Args:
        blame: As ``EdgeKitError.blame``.
        is_good: Whether it was confirmed.

    >>> fate("bundle", True), fate("", True), fate("", False), fate("machine", False), fate("both", False)
    ('give up', 'excuse', 'give up', 'excuse', 'count')
    """
    if blame == "bundle" or (not blame and not is_good):
        return "give up"
    return "excuse" if is_good or blame == "machine" else "count"


def _counted(state: StoreState, digest: str, starts: int) -> StoreState:
    if digest == state.current:
        return replace(state, starts=starts)
    others = tuple(entry for entry in state.stood_in if entry[0] != digest)
    stands_in = starts > 0 and digest != FACTORY  # which is never given up
    return replace(state, stood_in=(*others, (digest, starts)) if stands_in else others)


def encoded(state: StoreState) -> bytes:
    """What a state's file holds: the sha256 of the JSON, and the JSON."""
    content = strict_json.encode(asdict(state))
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def read(path: Path) -> StoreState | None:
    """The state of a file; None where it is not one that :func:`encoded` gave, whole.

    Raises:
        OSError: it is not there, or cannot be read, or is no file of this user's or root's.
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
    """A digest, which becomes a file's name: a state may come from a disk that someone else wrote.

    Raises:
        ValueError: it is none.
    """
    if text != FACTORY and not (len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise ValueError(f"{text!r} is no digest")
    return text
