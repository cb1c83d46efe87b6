"""Bundles of a device that is updated: what runs, what ran well before, and what the device came with.

    store = Store("/var/lib/app/models", factory="/usr/share/app/detector.edgekit")
    store.install("new.edgekit")          # the next start tries it
    with store.open() as session:         # each start is counted on the disk before anything is loaded
        ...
        store.confirm()                   # it is well: nothing is counted against it, it is known to be good

    ROOT/slots/<digest>.edgekit           bundles by content, written once
    ROOT/state.0.json, ROOT/state.1.json  written in turns, each with a number and its own sha256: the newest
                                          whole one counts, so one that is torn loses a step and no bundle

A bundle whose third start ends unconfirmed gives way to the last one that was confirmed, that one to the one
before, and the last to the factory's, which is never given up. The pure half stands first: it decides.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit import strict_json
from edgekit.bundle import Bundle
from edgekit.durable import locked, write_whole
from edgekit.errors import BundleError, EdgeKitError, UsageError
from edgekit.runtime.fallback import reason_of
from edgekit.strict_json import JsonError

if TYPE_CHECKING:
    from edgekit.runtime.session import Session

STARTS_LIMIT = 3
"""Starts that may end unconfirmed before a bundle is given up."""
GOOD_LIMIT = 2
"""Confirmed bundles that are kept: the one that runs and the one before."""
REASONS_LIMIT = 20
"""Bundles given up that are remembered, with the reason."""
STATE_LIMIT_BYTES = 1 << 16
LOCK_SECONDS = 10.0
FACTORY = ""


@dataclass(frozen=True)
class State:
    """What a store remembers. Bundles are digests; "" is the factory's.

    Attributes:
        serial: Grows with each change.
        current: What the next start runs.
        starts: How often it was started since it was last confirmed.
        good: What was confirmed, the newest first.
        given_up: What was not well, with the reason: (digest, reason).
    """

    serial: int = 0
    current: str = FACTORY
    starts: int = 0
    good: tuple[str, ...] = ()
    given_up: tuple[tuple[str, str], ...] = ()


def installed(state: State, digest: str) -> State:
    """A bundle was put into its slot: it runs at the next start. One given up before gets another chance."""
    given_up = tuple(entry for entry in state.given_up if entry[0] != digest)
    return replace(state, current=digest, starts=0, given_up=given_up)


def started(state: State) -> State:
    """A start begins. What is current afterwards is what to load.

    >>> state = installed(State(good=("a",)), "b")
    >>> for _ in range(3):
    ...     state = started(state)
    >>> state.current, started(state).current
    ('b', 'a')
    """
    if state.starts >= STARTS_LIMIT and state.current != FACTORY:
        state = given_up(state, f"{state.starts} starts of it ended before it was confirmed")
    return replace(state, starts=state.starts + 1)


def confirmed(state: State) -> State:
    """The current bundle is well."""
    if state.current == FACTORY:
        return replace(state, starts=0)
    good = (state.current, *(digest for digest in state.good if digest != state.current))
    return replace(state, starts=0, good=good[:GOOD_LIMIT])


def given_up(state: State, reason: str) -> State:
    """The current bundle is not well: the last one that was takes over, in the end the factory's."""
    if state.current == FACTORY:
        return state
    good = tuple(digest for digest in state.good if digest != state.current)
    out = (*(entry for entry in state.given_up if entry[0] != state.current), (state.current, reason))
    return replace(
        state, current=good[0] if good else FACTORY, starts=0, good=good, given_up=out[-REASONS_LIMIT:]
    )


class Store:
    """The bundles of one app on one device. Several processes may use it; changes wait for each other.

    Args:
        root: A folder of the store's own; it need not exist.
        factory: The bundle that came with the device, outside of ``root`` and best on a read-only disk.

    Attributes:
        notes: What went wrong with the store itself, e.g. a full disk. The app goes on meanwhile.
    """

    def __init__(self, root: str | os.PathLike[str], factory: str | os.PathLike[str]) -> None:
        self.root, self.factory = Path(root), Path(factory)
        self.notes: tuple[str, ...] = ()
        self._unsaved: State | None = None

    # --- for apps ----------------------------------------------------------------------------------------

    def install(self, bundle: str | os.PathLike[str]) -> str:
        """Put a bundle into its slot; the next start tries it. Every entry is hashed on the way.

        Returns:
            Its digest.

        Raises:
            BundleError: it is damaged, or cannot be written; nothing changed.
        """
        with Bundle.open(bundle) as opened:
            digest = opened.digest
            try:
                with self._locked():
                    opened.save(self._slot(digest))
                    self._write(installed(self.state, digest))
            except OSError as problem:
                raise BundleError(
                    f"{opened.name} cannot be installed\n  {self._cannot(problem)}\n"
                    "  nothing changed; make room, or choose another folder"
                ) from None
        return digest

    def open(self, **options: Any) -> Session:
        """A session on the current bundle, or on the next one that opens.

        Args:
            options: Of Session. What was never confirmed is probed in a child, unless ``probe=False``.

        Raises:
            BundleError: nothing opens, the factory's bundle included.
            EdgeKitError: as Session.
        """
        from edgekit.runtime.session import Session

        while True:
            path = self.begin()
            state = self.state
            try:
                return Session(path, **{"probe": state.current not in (*state.good, FACTORY), **options})
            except UsageError:
                raise  # the app's own mistake
            except EdgeKitError as problem:
                if path == self.factory:
                    raise
                self.give_up(reason_of(problem))

    def begin(self) -> Path:
        """Count a start, on the disk, and return the bundle to load: for apps that don't use ``open``."""
        while True:
            state = self._change(started)
            path = self._path(state)
            if path == self.factory or path.is_file():
                return path
            self.give_up("its file is gone")

    def confirm(self) -> None:
        """The current bundle is well: call it after some minutes, or answers, that were right."""
        self._change(confirmed)

    def give_up(self, reason: str) -> None:
        """The current bundle is not well, e.g. by the app's own measure; the next start runs another."""
        self._change(lambda state: given_up(state, reason))

    @property
    def state(self) -> State:
        """What is remembered; that of a new store where nothing whole is."""
        found = [_read(self._state_path(number)) for number in (0, 1)]
        return max((state for state in (self._unsaved, *found) if state), key=_serial, default=State())

    @property
    def path(self) -> Path:
        """The current bundle."""
        return self._path(self.state)

    # --- on the disk -------------------------------------------------------------------------------------

    def _change(self, change: Callable[[State], State]) -> State:
        """The state after a change: on the disk, or for this process where the disk takes nothing."""
        try:
            with self._locked():
                return self._write(change(self.state))
        except OSError as problem:
            note = f"{self._cannot(problem)}; what happens is remembered by this process only"
            if note not in self.notes:
                self.notes += (note,)
            known = self.state
            self._unsaved = replace(change(known), serial=known.serial + 1)
            return self._unsaved

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        (self.root / "slots").mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(self.root / ".lock", LOCK_SECONDS):
            yield

    def _write(self, state: State) -> State:
        """Under the lock: write a state beside the one that counts, and remove what no start needs now."""
        known = self.state
        if state == known and self._unsaved is None:
            return state
        state = replace(state, serial=known.serial + 1)
        write_whole(self._state_path(state.serial % 2), [_encoded(state)])
        self._unsaved = None
        kept = {self._slot(digest).name for digest in (state.current, *state.good)}
        drafts = self.root.glob(".state.*.part")
        for path in [*drafts, *(p for p in (self.root / "slots").iterdir() if p.name not in kept)]:
            with contextlib.suppress(OSError):  # Windows: a session has it open; a later change removes it
                path.unlink()
        return state

    def _cannot(self, problem: OSError) -> str:
        return f"{self.root} cannot be written: {problem.strerror or problem}"

    def _path(self, state: State) -> Path:
        return self.factory if state.current == FACTORY else self._slot(state.current)

    def _slot(self, digest: str) -> Path:
        return self.root / "slots" / f"{digest}.edgekit"

    def _state_path(self, number: int) -> Path:
        return self.root / f"state.{number}.json"


def _serial(state: State) -> int:
    return state.serial


def _encoded(state: State) -> bytes:
    content = strict_json.encode(asdict(state))
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def _read(path: Path) -> State | None:
    """The state of a file; None where it is not one that this module wrote, whole."""
    try:
        with open(path, "rb") as file:
            digest, _, content = file.read(STATE_LIMIT_BYTES + 1).partition(b"\n")
        if hashlib.sha256(content).hexdigest().encode("ascii") != digest:
            return None
        known = strict_json.decode(content, path.name, STATE_LIMIT_BYTES)
        return State(
            int(known["serial"]),
            _digest(known["current"]),
            int(known["starts"]),
            tuple(_digest(digest) for digest in known["good"]),
            tuple((_digest(digest), str(reason)) for digest, reason in known["given_up"]),
        )
    except (OSError, JsonError, KeyError, TypeError, ValueError):
        return None


def _digest(text: str) -> str:
    """It becomes a file's name, and a state may come from a disk that someone else wrote."""
    if text != FACTORY and not (len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise ValueError(f"{text!r} is no digest")
    return text
