"""Bundles of a device that is updated: what runs, what ran well before, and what the device came with.

    store = Store("/var/lib/app/models", factory="/usr/share/app/detector.edgekit")
    store.install("new.edgekit")          # the next start tries it
    with store.open() as session:         # each start is counted on the disk before anything is loaded
        ...
        store.confirm()                   # what this store opened is well: nothing is counted against it

    ROOT/slots/<digest>.edgekit           bundles by content, written once
    ROOT/state.0.json, ROOT/state.1.json  written in turns, each with a number and its own sha256: the newest
                                          whole one counts, so one that is torn loses a step and no bundle

A bundle whose third start ends unconfirmed gives way to the last one that was confirmed, that one to the one
before, and the last to the factory's, which is never given up. What fails to open is given up for its own
faults only (``EdgeKitError.blame``): where an engine is missing, a disk full or memory short, the next one
stands in for that start, and no start is counted. A slot's file is removed once neither state names it, so
never in the step that gives it up. store_state.py decides, without a disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import HEADER, Bundle
from edgekit.errors import BundleError, EdgeKitError, UsageError, reason_of
from edgekit.runtime.fallback.policy import blame_of
from edgekit.runtime.store_state import FACTORY, checked_digest, encoded, excused, fate, read, to_start
from edgekit.runtime.store_state import STARTS_LIMIT as STARTS_LIMIT
from edgekit.runtime.store_state import StoreState as StoreState
from edgekit.runtime.store_state import confirmed as confirmed
from edgekit.runtime.store_state import given_up as given_up
from edgekit.runtime.store_state import installed as installed
from edgekit.runtime.store_state import started as started
from edgekit.system import ownership
from edgekit.system.atomic_files import locked, private_folder, write_atomically

if TYPE_CHECKING:
    from edgekit.runtime.session import Session

NOTES_LIMIT = 20
LOCK_SECONDS = 10.0


class Store:
    """The bundles of one app on one device. Several processes may use it; changes wait for each other.

    Args:
        root: A folder of the store's own; it need not exist. It is this user's or root's and nobody else may
            write to it, or nothing of it is used: the factory's bundle runs.
        factory: The bundle that came with the device, outside of ``root`` and best on a read-only disk.

    Attributes:
        notes: What went wrong with the store itself, e.g. a full disk, and what was passed over and why. The
            app goes on meanwhile.
        opened: The digest of what ``open`` or ``begin`` of this object gave last, "" the factory's; None
            where they have given nothing.
    """

    def __init__(self, root: str | os.PathLike[str], factory: str | os.PathLike[str]) -> None:
        self.root, self.factory = Path(root), Path(factory)
        self.notes: tuple[str, ...] = ()
        self.opened: str | None = None
        self._unsaved: StoreState | None = None

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
                    opened.save(self._slot(digest), 0o600)
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

        self.opened = None
        out: list[str] = []
        while True:
            digest, path = self._begin(out)
            try:
                session = Session(path, **{"probe": digest not in (*self.state.good, FACTORY), **options})
            except UsageError:  # the app's own mistake
                self._excuse(digest)
                raise
            except (EdgeKitError, OSError, MemoryError) as problem:
                if digest == FACTORY:
                    raise
                self._pass_over(digest, blame_of(problem), reason_of(problem), out)
            else:
                self.opened = digest
                return session

    def begin(self) -> Path:
        """Count a start, on the disk, and return the bundle to load: for apps that don't use ``open``."""
        self.opened = None
        self.opened, path = self._begin([])
        return path

    def confirm(self, digest: str | None = None) -> None:
        """A bundle is well: call it after some minutes, or answers, that were right.

        Args:
            digest: Which one; None: what this object opened, though another one was installed since. One that
                was given up meanwhile, or whose file is gone, is not confirmed, and ``notes`` says so.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        meant = self._meant(digest, "confirm()")

        def change(state: StoreState) -> StoreState:
            why = dict(state.given_up).get(meant, "")
            if not why and meant != FACTORY:
                blame, fault = self._fault_of(meant)
                why = fault if blame == "bundle" else ""
            if why:
                self._note(f"bundle {meant[:12]} is not confirmed: {why}")
            return state if why else confirmed(state, meant)

        self._change(change)

    def give_up(self, reason: str, digest: str | None = None) -> None:
        """A bundle is not well, e.g. by the app's own measure; the next start runs another.

        Args:
            reason: Why, to be remembered.
            digest: Which one; None: what this object opened, though another one was installed since.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        meant = self._meant(digest, "give_up()")
        self._change(lambda state: given_up(state, reason, meant))

    @property
    def state(self) -> StoreState:
        """What is remembered; that of a new store where nothing whole is."""
        states, problem = self._on_disk()
        if problem is not None:
            self._note(f"{self._cannot(problem, 'read')}; what cannot be read is left as it is")
        return max((state for state in (self._unsaved, *states) if state), key=_serial, default=StoreState())

    @property
    def path(self) -> Path:
        """The current bundle."""
        return self._path(self.state.current)

    # --- starting ----------------------------------------------------------------------------------------

    def _begin(self, out: list[str]) -> tuple[str, Path]:
        """Count a start; what to load, by digest and path."""
        while True:
            digest = to_start(self._change(lambda state: started(state, out)), out)
            blame, why = self._fault_of(digest) if digest != FACTORY else ("", "")
            if not why:
                return digest, self._path(digest)
            self._pass_over(digest, blame, why, out)

    def _pass_over(self, digest: str, blame: str, why: str, out: list[str]) -> None:
        """A bundle did not open: give it up, or pass it over at this start."""
        due = fate(blame, digest in self.state.good)
        if due == "give up":  # unless another process did, and its file is gone for that
            self._change(
                lambda state: (
                    given_up(state, why, digest) if digest in (state.current, *state.good) else state
                )
            )
        if due == "excuse":
            self._excuse(digest)
        if due != "give up":
            self._note(f"bundle {digest[:12]} is passed over at this start: {why}")
        out.append(digest)

    def _excuse(self, digest: str) -> None:
        self._change(lambda state: excused(state, digest))

    def _fault_of(self, digest: str) -> tuple[str, str]:
        """What a look at a slot's file says against it: whose doing it is, and why. ("", "") for nothing."""
        try:
            header = ownership.read_own(self._slot(digest), HEADER.size)
        except FileNotFoundError:
            return "bundle", "its file is gone"
        except OSError as problem:
            return "machine", f"its file cannot be used: {problem.strerror or problem}"
        if header[-32:].hex() != digest:  # of the manifest; Bundle.open checks that
            return "bundle", "its file is not the bundle that was installed"
        return "", ""

    def _meant(self, digest: str | None, what: str) -> str:
        if digest is None:
            if self.opened is None:
                raise UsageError(
                    f"{what} is about the bundle that this store opened, and it has opened none\n"
                    "  call open() or begin() of the same object first, or give the bundle's digest, e.g. "
                    "store.state.current"
                )
            return self.opened
        try:
            return checked_digest(digest)
        except (TypeError, ValueError) as problem:
            raise UsageError(f"{what}: {problem} of a bundle; store.state has those that it knows") from None

    # --- on the disk -------------------------------------------------------------------------------------

    def _change(self, change: Callable[[StoreState], StoreState]) -> StoreState:
        """The state after a change: on the disk, or for this process where the disk takes nothing."""
        try:
            with self._locked():
                return self._write(change(self.state))
        except OSError as problem:
            self._note(f"{self._cannot(problem)}; what happens is remembered by this process only")
            known = self.state
            self._unsaved = replace(change(known), serial=known.serial + 1)
            return self._unsaved

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        private_folder(self.root, parents=False)
        private_folder(self.root / "slots", parents=False)
        with locked(self.root / ".lock", LOCK_SECONDS):
            states, problem = self._on_disk()
            if problem is not None and not states:
                raise problem  # to write now would be to forget what stands there
            yield

    def _on_disk(self) -> tuple[list[StoreState], OSError | None]:
        """The states that are whole, and why one that is there cannot be read: torn ones are no reason."""
        states: list[StoreState] = []
        problem: OSError | None = None
        try:
            for folder in (self.root, self.root / "slots"):
                ownership.refuse_foreign(folder, parents=False)
            for number in (0, 1):
                try:
                    state = read(self._state_path(number))
                except FileNotFoundError:
                    continue
                except OSError as found:
                    problem = found
                else:
                    states += [state] if state is not None else []
        except FileNotFoundError:
            pass
        except OSError as found:
            problem = found
        return states, problem

    def _write(self, state: StoreState) -> StoreState:
        """Under the lock: write a state beside the one that counts, and remove what neither of them names."""
        known = self.state
        if state == known and self._unsaved is None:
            return state
        state = replace(state, serial=known.serial + 1)
        write_atomically(self._state_path(state.serial % 2), [encoded(state)], 0o600)
        self._unsaved = None
        states, problem = self._on_disk()
        if problem is not None:
            return state  # it may name what would be removed
        named = {digest for known in states for digest in (known.current, *known.good)} | {self.opened or ""}
        kept = {self._slot(digest).name for digest in named}
        drafts = self.root.glob(".state.*.part")
        for path in [*drafts, *(p for p in (self.root / "slots").iterdir() if p.name not in kept)]:
            with contextlib.suppress(OSError):  # Windows: a session has it open; a later change removes it
                path.unlink()
        return state

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes = (*self.notes, note)[-NOTES_LIMIT:]

    def _cannot(self, problem: OSError, what: str = "written") -> str:
        return f"{self.root} cannot be {what}: {problem.strerror or problem}"

    def _path(self, digest: str) -> Path:
        return self.factory if digest == FACTORY else self._slot(digest)

    def _slot(self, digest: str) -> Path:
        return self.root / "slots" / f"{digest}.edgekit"

    def _state_path(self, number: int) -> Path:
        return self.root / f"state.{number}.json"


def _serial(state: StoreState) -> int:
    return state.serial
