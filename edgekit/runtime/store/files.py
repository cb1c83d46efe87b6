"""The files of a store: states, slots, the lock, and the removal of what nothing needs.

    ROOT/.lock                        held during a change
    ROOT/slots/<digest>.edgekit       bundles by content, of all models; with .sig added, their signatures
    ROOT/state.0.json, state.1.json   the state of a store without a name
    ROOT/models/NAME/state.*.json     that of one of several models

The two state files are written alternately, each with a serial number and its own sha256: the newest valid
one counts, so a torn write loses one step only. A slot is removed once no state file of any model names it
and no process holds it open, so never in the step that gives it up.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from edgekit.bundle.bundle import HEADER, Bundle
from edgekit.bundle.model_version import is_version, model_version
from edgekit.errors import BundleError, SignatureError, UsageError
from edgekit.runtime.store.state import FACTORY, StoreState
from edgekit.signing.signature_file import LIMIT_BYTES as SIGNATURE_LIMIT_BYTES
from edgekit.signing.trusted_keys import TrustedKeys, signature_path
from edgekit.system import ownership
from edgekit.system.atomic_files import flush_folder, locked, private_folder, write_atomically
from edgekit.system.formats import declared_json, strict_json
from edgekit.system.formats.json_schema import ManifestError
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import open_regular, read_plain

LOCK_SECONDS = 10.0
NOTES_LIMIT = 20
STATE_LIMIT_BYTES = 1 << 16


class StoreFiles:
    """The files of one model in a store.

    Args:
        name: The model's name. None means the only one.
    """

    def __init__(self, root: Path, name: str | None) -> None:
        self.root, self.slots = root, root / "slots"
        self.folder = root if name is None else root / "models" / name
        self.notes: tuple[str, ...] = ()
        self._unsaved: StoreState | None = None
        self._locked: BinaryIO | None = None

    # --- state -------------------------------------------------------------------------------------------

    @property
    def state(self) -> StoreState:
        """Return the stored state; that of a new store if no valid one exists."""
        states, problem = self._on_disk(self.folder)
        if problem is not None:
            self.note(f"{self.cannot(problem, 'read')}; the unreadable file is kept")
        return self._newest(states)

    def _newest(self, states: list[StoreState]) -> StoreState:
        return max((state for state in (self._unsaved, *states) if state), key=_serial, default=StoreState())

    @property
    def is_saved(self) -> bool:
        """Return whether no change is kept in this process only."""
        return self._unsaved is None

    def change(self, change: Callable[[StoreState], StoreState]) -> StoreState:
        """Change the state and return it: saved to disk, or kept in memory if the disk cannot be written."""
        try:
            with self.locked() as current:
                return self.write(current, change(current))
        except OSError as problem:
            self.note(f"{self.cannot(problem)}; changes are kept in this process only")
            current = self.state
            self._unsaved = replace(change(current), serial=current.serial + 1)
            return self._unsaved

    @contextlib.contextmanager
    def locked(self) -> Iterator[StoreState]:
        """Hold the store's lock, and give the state; the store's folders are made.

        Raises:
            OSError: a folder cannot be made or used, another process holds the lock for long, or the states
                cannot be read.
        """
        for folder in self._folders():
            private_folder(folder, parents=False)
        with locked(self.root / ".lock", LOCK_SECONDS):
            states, problem = self._on_disk(self.folder)
            # The newest may be the one that the disk does not give now. A file of another user's (it has no
            # errno) is none.
            if problem is not None and (problem.errno or not states):
                raise problem  # writing now would discard the unreadable state
            if problem is not None:
                self.note(f"{self.cannot(problem, 'read')}; the unreadable file is kept")
            yield self._newest(states)

    def write(self, previous: StoreState, state: StoreState) -> StoreState:
        """Write the older of the two state files, then remove files that are no longer needed. The caller
        holds the lock.

        Raises:
            OSError: it cannot be written; the state is as it was.
        """
        if state == previous and self._unsaved is None:
            return state
        state = replace(state, serial=previous.serial + 1)
        write_atomically(self.folder / f"state.{state.serial % 2}.json", [encoded(state)], 0o600)
        self._unsaved = None
        self._remove_unneeded()
        return state

    def _folders(self) -> Iterator[Path]:
        yield from (self.root, self.slots)
        if self.folder != self.root:
            yield from (self.folder.parent, self.folder)

    def _on_disk(self, folder: Path) -> tuple[list[StoreState], OSError | None]:
        """Return the valid states in a folder, and the error if an existing one cannot be read. Torn ones are
        ignored."""
        states: list[StoreState] = []
        problem: OSError | None = None
        try:
            for directory in self._folders():
                ownership.refuse_foreign(directory, parents=False)
            for number in (0, 1):
                try:
                    state = read(folder / f"state.{number}.json")
                except FileNotFoundError:
                    continue
                except OSError as error:
                    problem = error
                else:
                    states += [state] if state is not None else []
        except FileNotFoundError:
            pass
        except OSError as error:
            problem = error
        return states, problem

    def _remove_unneeded(self) -> None:
        folders, named = [self.root], set[str]()
        with contextlib.suppress(FileNotFoundError):
            folders += [path for path in (self.root / "models").iterdir() if path.is_dir()]
        for folder in folders:
            states, problem = self._on_disk(folder)
            if problem is not None:
                return  # the unreadable state may name a file to remove
            named |= {digest for state in states for digest in state.named}
        needed = {name.name for slot in map(self.slot, named) for name in (slot, signature_path(slot))}
        for path in [*self.folder.glob(".state.*.part"), *self.slots.iterdir()]:
            if path.name not in needed and not self._in_use(path):
                with contextlib.suppress(OSError):  # Windows: open in a session; a later change removes it
                    path.unlink()

    # --- slots -------------------------------------------------------------------------------------------

    def slot(self, digest: str) -> Path:
        """Return the path of a bundle's file, whether it exists or not."""
        return self.slots / f"{digest}.edgekit"

    def hold(self, digest: str) -> None:
        """Keep a slot's file from removal by any process, until the next call or the end of this process."""
        self.release()
        if sys.platform == "win32":
            return  # Windows does not remove open files
        import fcntl

        with contextlib.suppress(OSError):
            self._locked = open_regular(self.slot(digest), follow_links=False)
            fcntl.flock(self._locked, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def release(self) -> None:
        """End :meth:`hold`."""
        lease, self._locked = self._locked, None
        if lease is not None:
            lease.close()

    def _in_use(self, path: Path) -> bool:
        """Return whether a process holds the file, or the bundle that it is the signature of."""
        slot = path.with_suffix("") if path.suffix == ".sig" else path
        if sys.platform == "win32":
            return False
        import fcntl

        try:
            with open_regular(slot, follow_links=False) as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def note(self, note: str) -> None:
        """Add to ``notes``, once."""
        if note not in self.notes:
            self.notes = (*self.notes, note)[-NOTES_LIMIT:]

    def cannot(self, problem: OSError, action: str = "written") -> str:
        """Format the system's error for a message."""
        return f"{self.root} cannot be {action}: {problem.strerror or problem}"


def _serial(state: StoreState) -> int:
    return state.serial


class Slots:
    """The slots of a store.

    Args:
        keys: One of them must have signed each bundle. None means no signature is asked for.
    """

    def __init__(self, slot: Callable[[str], Path], keys: TrustedKeys | None) -> None:
        self._slot, self._keys = slot, keys

    def keep(self, bundle: Bundle) -> None:
        """Write a bundle into its slot, with every entry hashed. An intact file in the slot stays, because a
        process may hold it open. The caller holds the lock.

        Raises:
            BundleError: an entry is damaged, or the file cannot be written.
            OSError: the folder cannot be flushed.
        """
        slot = self._slot(bundle.digest)
        if not self._is_sound(slot, bundle.digest):
            bundle.save(slot, 0o600)
            return
        for _ in bundle.pieces():  # what was given is hashed, too
            pass
        flush_folder(slot.parent)  # who wrote it may have been killed before that

    def _is_sound(self, slot: Path, digest: str) -> bool:
        try:
            if ownership.read_own(slot, HEADER.size)[-32:].hex() != digest:
                return False
            with Bundle.open(slot) as stored:
                stored.verify_entries()
                return stored.digest == digest
        except (OSError, BundleError):
            return False

    def fault_of(self, digest: str) -> tuple[str, str]:
        """Check a slot's file; return blame and reason of a fault, or ("", "")."""
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

    def signature_of(
        self, bundle: str | os.PathLike[str], signature: str | os.PathLike[str] | None
    ) -> bytes | None:
        """Return the content of a bundle's signature file, which holds; None if none is required.

        Raises:
            SignatureError: as ``Store.install``.
            BundleError: a file cannot be read.
        """
        if self._keys is None:
            return None
        signature_file = signature_path(bundle) if signature is None else Path(signature)
        try:
            self._keys.check(bundle, signature_file)
            return read_plain(signature_file, SIGNATURE_LIMIT_BYTES)
        except OSError as problem:
            raise BundleError(f"{problem.filename or bundle} cannot be read: {problem.strerror}") from None

    def keep_signature(self, digest: str, content: bytes, needed: Collection[str]) -> None:
        """Write a slot's signature, unless it is not that of what was copied: the file was changed meanwhile.

        Raises:
            SignatureError, OSError: then the slot is removed, unless it is one of ``needed``.
        """
        slot = self._slot(digest)
        try:
            assert self._keys is not None
            self._keys.check_content(slot, content, str(signature_path(slot)))
            write_atomically(signature_path(slot), [content], 0o600)
        except BaseException:
            if digest not in needed:
                slot.unlink(missing_ok=True)
            raise


def version_of(bundle: Bundle, version: int | None) -> int | None:
    """Return the version of a bundle: its own, or the one that is given for it.

    Raises:
        UsageError: the given one is not a whole number of 0 or more, or not the bundle's own.
        BundleError: its own is not one.
    """
    stated = model_version(bundle)
    if version is not None and not is_version(version):
        raise UsageError(f"a version is a whole number of 0 or more, not {version!r}")
    if stated is not None and version is not None and stated != version:
        raise UsageError(f"{bundle.name} has version {stated}, but {version} was passed: leave it out")
    return stated if version is None else version


def encoded(state: StoreState) -> bytes:
    """Return the content of a state file."""
    content = strict_json.encode(declared_json.encode(StoreState, state))
    return hashlib.sha256(content).hexdigest().encode("ascii") + b"\n" + content


def read(path: Path) -> StoreState | None:
    """Return the state in a file; None if it is not exactly what :func:`encoded` wrote.

    Raises:
        OSError: it is missing, cannot be read, or does not belong to this user or root.
    """
    return decoded(ownership.read_own(path, STATE_LIMIT_BYTES + 1))


def decoded(content: bytes) -> StoreState | None:
    """Return the state in the content of a file; None if it is torn."""
    digest, _, text = content.partition(b"\n")
    if hashlib.sha256(text).hexdigest().encode("ascii") != digest:
        return None
    try:
        table = strict_json.decode(text, "state", STATE_LIMIT_BYTES)
        state: StoreState = declared_json.decode(StoreState, table, "state")
        pairs = (dict(state.given_up), dict(state.stood_in), dict(state.versions))
        others = (row[0] for row in state.answers)
        for named in (state.active, state.staged, *state.good, *chain(*pairs), *others):
            checked_digest(named)
    except (JsonError, ManifestError, ValueError):
        return None
    return state


def checked_digest(text: str) -> str:
    """Validate a digest, which becomes a file name: a state file may have been tampered with.

    Raises:
        ValueError: it is not a digest.
    """
    if text != FACTORY and not (len(text) == 64 and set(text) <= set("0123456789abcdef")):
        raise ValueError(f"{text!r} is not a digest")
    return text
