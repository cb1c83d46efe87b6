"""The bundles of a device with updates: the current one, confirmed ones to roll back to, and the factory's.

    store = Store("/var/lib/app/models", factory="/usr/share/app/detector.edgekit")
    store.install("new.edgekit")          # loaded at the next start
    with store.open() as session:         # each start is recorded on disk before anything is loaded
        ...
        store.confirm()                   # the opened bundle works: its count of starts is reset

    ROOT/slots/<digest>.edgekit           bundles by content, written once; with .sig added, their signatures
    ROOT/state.0.json, ROOT/state.1.json  written alternately, each with a serial number and its own sha256:
                                          the newest valid one counts, so a torn write loses one step only

A bundle whose third start ends unconfirmed is rolled back to the last confirmed one, then to the one before,
and finally to the factory's, which is never given up. A bundle that fails to open is given up only if it is
at fault itself (``EdgeKitError.blame``); if an engine is missing, the disk is full or memory is short, the
next bundle is used for that start, and the start is not counted. A slot's file is removed once neither state
names it, so never in the step that gives it up. store_state.py decides, without disk access.

With ``trusted_keys`` a bundle is installed only with a signature by one of them, and its file is hashed and
checked again at each start, before anything of it is parsed. The factory's is trusted by its place.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import HEADER, Bundle
from edgekit.errors import BundleError, EdgeKitError, SignatureError, UsageError, reason_of
from edgekit.runtime.fallback.policy import blame_of
from edgekit.runtime.store_state import (
    FACTORY,
    checked_digest,
    encoded,
    failure_action,
    read,
    to_start,
    uncounted,
)
from edgekit.runtime.store_state import STARTS_LIMIT as STARTS_LIMIT
from edgekit.runtime.store_state import StoreState as StoreState
from edgekit.runtime.store_state import confirmed as confirmed
from edgekit.runtime.store_state import given_up as given_up
from edgekit.runtime.store_state import installed as installed
from edgekit.runtime.store_state import started as started
from edgekit.system import ownership
from edgekit.system.atomic_files import locked, private_folder, write_atomically
from edgekit.system.regular_file import read_plain
from edgekit.trust.signature_file import LIMIT_BYTES as SIGNATURE_LIMIT_BYTES
from edgekit.trust.trusted_keys import TrustedKeys, signature_path

if TYPE_CHECKING:
    from edgekit.runtime.session import Session

NOTES_LIMIT = 20
LOCK_SECONDS = 10.0


class Store:
    """The bundles of one app on one device. Several processes may use it; changes are serialized by a lock.

    Args:
        root: The store's own folder; it need not exist. It must belong to this user or root, with no other
            user allowed to write to it; otherwise it is not used, and the factory's bundle runs.
        factory: The bundle shipped with the device, outside of ``root``, ideally on a read-only disk.
        trusted_keys: PEM files of public keys. Given, only bundles that one of them has signed are run. Needs
            the extra ``trust``.

    Raises:
        UsageError: a key can't be read.
        MissingDependency: keys are given, and the package ``cryptography`` is not installed.

    Attributes:
        notes: Problems of the store itself, e.g. a full disk, and bundles that were skipped, with the reason.
            The app continues.
        opened: The digest of the bundle that ``open`` or ``begin`` of this object returned last, "" for the
            factory's; None before that.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        factory: str | os.PathLike[str],
        trusted_keys: Sequence[str | os.PathLike[str]] | None = None,
    ) -> None:
        self.root, self.factory = Path(root), Path(factory)
        self._keys = None if trusted_keys is None else TrustedKeys(trusted_keys)
        self.notes: tuple[str, ...] = ()
        self.opened: str | None = None
        self._unsaved: StoreState | None = None

    # --- for apps ----------------------------------------------------------------------------------------

    def install(self, bundle: str | os.PathLike[str], signature: str | os.PathLike[str] | None = None) -> str:
        """Copy a bundle into its slot, for the next start. Every entry is hashed.

        Args:
            bundle: The file.
            signature: Its signature file, where the store has ``trusted_keys``; None: the bundle's name with
                ``.sig`` added.

        Returns:
            Its digest.

        Raises:
            SignatureError: no trusted key has signed it; nothing of it was parsed.
            BundleError: it is damaged, or cannot be written; nothing has changed.
        """
        signed = self._signature_of(bundle, signature)
        with Bundle.open(bundle) as opened:
            digest = opened.digest
            try:
                with self._locked():
                    opened.save(self._slot(digest), 0o600)
                    if signed is not None:
                        self._keep_signature(digest, signed)
                    self._write(installed(self.state, digest))
            except OSError as problem:
                raise BundleError(
                    f"{opened.name} cannot be installed\n  {self._cannot(problem)}\n"
                    "  nothing has changed; free some space, or use another folder"
                ) from None
        return digest

    def open(self, **options: Any) -> Session:
        """A session on the current bundle, or on the next one that opens.

        Args:
            options: Of Session. A bundle that was never confirmed is probed in a child, unless
                ``probe=False``.

        Raises:
            BundleError: no bundle opens, not even the factory's.
            EdgeKitError: as Session.
        """
        from edgekit.runtime.session import Session

        self.opened = None
        skipped: list[str] = []
        while True:
            digest, path = self._begin(skipped)
            try:
                session = Session(path, **{"probe": digest not in (*self.state.good, FACTORY), **options})
            except UsageError:  # the app's own mistake
                self._uncount(digest)
                raise
            except (EdgeKitError, OSError, MemoryError) as problem:
                if digest == FACTORY:
                    raise
                self._skip(digest, blame_of(problem), reason_of(problem), skipped)
            else:
                self.opened = digest
                return session

    def begin(self) -> Path:
        """Record a start on disk, and return the bundle to load: for apps that don't use ``open``."""
        self.opened = None
        self.opened, path = self._begin([])
        return path

    def confirm(self, digest: str | None = None) -> None:
        """A bundle works: call this after some minutes, or after some correct predictions.

        Args:
            digest: Which one; None: the one this object opened, even if another was installed since. A bundle
                that was given up meanwhile, or whose file is gone, is not confirmed, and ``notes`` says so.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        target = self._resolve(digest, "confirm()")

        def change(state: StoreState) -> StoreState:
            why = dict(state.given_up).get(target, "")
            if not why and target != FACTORY:
                blame, fault = self._fault_of(target)
                why = fault if blame == "bundle" else ""
            if why:
                self._note(f"bundle {target[:12]} is not confirmed: {why}")
            return state if why else confirmed(state, target)

        self._change(change)

    def give_up(self, reason: str, digest: str | None = None) -> None:
        """A bundle does not work, e.g. by the app's own checks; the next start uses another.

        Args:
            reason: Why; it is stored.
            digest: Which one; None: the one this object opened, even if another was installed since.

        Raises:
            UsageError: this object opened nothing, and no digest is given.
        """
        target = self._resolve(digest, "give_up()")
        self._change(lambda state: given_up(state, reason, target))

    @property
    def state(self) -> StoreState:
        """The stored state; that of a new store if no valid one exists."""
        states, problem = self._on_disk()
        if problem is not None:
            self._note(f"{self._cannot(problem, 'read')}; the unreadable file is kept")
        return max((state for state in (self._unsaved, *states) if state), key=_serial, default=StoreState())

    @property
    def path(self) -> Path:
        """The current bundle."""
        return self._path(self.state.current)

    # --- starting ----------------------------------------------------------------------------------------

    def _begin(self, skipped: list[str]) -> tuple[str, Path]:
        """Record a start; returns the digest and path of the bundle to load."""
        while True:
            digest = to_start(self._change(lambda state: started(state, skipped)), skipped)
            blame, why = self._fault_of(digest) if digest != FACTORY else ("", "")
            if not why:
                return digest, self._path(digest)
            self._skip(digest, blame, why, skipped)

    def _skip(self, digest: str, blame: str, why: str, skipped: list[str]) -> None:
        """A bundle did not open: give it up, or skip it at this start."""
        action = failure_action(blame, digest in self.state.good)
        if action == "give up":  # unless another process did so already and removed its file
            self._change(
                lambda state: (
                    given_up(state, why, digest) if digest in (state.current, *state.good) else state
                )
            )
        if action == "skip":
            self._uncount(digest)
        if action != "give up":
            self._note(f"bundle {digest[:12]} is skipped at this start: {why}")
        skipped.append(digest)

    def _uncount(self, digest: str) -> None:
        self._change(lambda state: uncounted(state, digest))

    def _fault_of(self, digest: str) -> tuple[str, str]:
        """What is wrong with a slot's file: blame and reason, or ("", "")."""
        try:
            header = ownership.read_own(self._slot(digest), HEADER.size)
        except FileNotFoundError:
            return "bundle", "its file is missing"
        except OSError as problem:
            return "machine", f"its file cannot be used: {problem.strerror or problem}"
        if header[-32:].hex() != digest:  # the digest of the manifest, which Bundle.open checks
            return "bundle", "its file is not the bundle that was installed"
        try:
            if self._keys is not None:
                self._keys.check(self._slot(digest))
        except SignatureError as problem:
            return "bundle", str(problem)
        except OSError as problem:
            return "machine", f"its signature cannot be checked: {problem.strerror or problem}"
        return "", ""

    def _signature_of(
        self, bundle: str | os.PathLike[str], signature: str | os.PathLike[str] | None
    ) -> bytes | None:
        """The content of the bundle's signature file, which holds; None where none is asked for."""
        if self._keys is None:
            return None
        beside = signature_path(bundle) if signature is None else Path(signature)
        try:
            self._keys.check(bundle, beside)
            return read_plain(beside, SIGNATURE_LIMIT_BYTES)
        except OSError as problem:
            raise BundleError(f"{problem.filename or bundle} cannot be read: {problem.strerror}") from None

    def _keep_signature(self, digest: str, content: bytes) -> None:
        """Write a slot's signature, unless it is not that of what was copied: the file was changed meanwhile.

        Raises:
            SignatureError, OSError: then the slot is removed.
        """
        slot = self._slot(digest)
        try:
            assert self._keys is not None
            self._keys.check_content(slot, content, str(signature_path(slot)))
            write_atomically(signature_path(slot), [content], 0o600)
        except BaseException:
            if digest not in (self.state.current, *self.state.good):
                slot.unlink(missing_ok=True)
            raise

    def _resolve(self, digest: str | None, what: str) -> str:
        if digest is None:
            if self.opened is None:
                raise UsageError(
                    f"{what} applies to the bundle that this store opened, and it has opened none\n"
                    "  call open() or begin() of the same object first, or give the bundle's digest, e.g. "
                    "store.state.current"
                )
            return self.opened
        try:
            return checked_digest(digest)
        except (TypeError, ValueError) as problem:
            raise UsageError(f"{what}: {problem} of a bundle; store.state lists the known ones") from None

    # --- disk --------------------------------------------------------------------------------------------

    def _change(self, change: Callable[[StoreState], StoreState]) -> StoreState:
        """The changed state: saved to disk, or kept in memory if the disk cannot be written."""
        try:
            with self._locked():
                return self._write(change(self.state))
        except OSError as problem:
            self._note(f"{self._cannot(problem)}; changes are kept in this process only")
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
                raise problem  # writing now would discard the unreadable state
            yield

    def _on_disk(self) -> tuple[list[StoreState], OSError | None]:
        """The valid states, and why an existing one cannot be read; torn ones are ignored."""
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
        """Under the lock: write the older of the two state files, then remove files that neither state
        names."""
        known = self.state
        if state == known and self._unsaved is None:
            return state
        state = replace(state, serial=known.serial + 1)
        write_atomically(self._state_path(state.serial % 2), [encoded(state)], 0o600)
        self._unsaved = None
        states, problem = self._on_disk()
        if problem is not None:
            return state  # the unreadable state may name a file to remove
        named = {digest for known in states for digest in (known.current, *known.good)} | {self.opened or ""}
        slots = [self._slot(digest) for digest in named]
        kept = {name.name for slot in slots for name in (slot, signature_path(slot))}
        drafts = self.root.glob(".state.*.part")
        for path in [*drafts, *(p for p in (self.root / "slots").iterdir() if p.name not in kept)]:
            with contextlib.suppress(OSError):  # Windows: open in a session; a later change removes it
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
