"""A model of a file system that loses power: what a store's operations leave on the disk, in any order.

    log = Recorder(tmp_path).record(lambda: store.install(path))     # a real store on a real disk
    for files in crash_states(log.operations[:n], draw): ...         # each: path -> content

The rules are the weakest that POSIX allows. The content of a file that was not flushed is there in part, in
any order of its blocks. Of the entries of a folder that was not flushed since they were made, renamed or
removed, any subset is on the disk, in any order; a rename is there as a whole or not. What ``fsync`` has
returned for is there.
After T. Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from edgekit.runtime.store.files import decoded
from edgekit.runtime.store.state import StoreState

Kind = Literal["mkdir", "create", "write", "flush", "flush folder", "rename", "unlink", "done"]
REMOVABLE: tuple[Kind, ...] = ("flush", "flush folder", "rename")
BLOCKS = 4
"""Of a file, each written or not: the system writes pages in any order."""
STATES_LIMIT = 4096
"""Of one moment; where there are more, so many are drawn."""


class Operation(NamedTuple):
    """A call of the system.

    Attributes:
        kind: Which one; ``done``: an operation of the store has returned.
        path: Of the file or folder.
        target: The new name of a rename.
        content: Of a write.
        serial: Of ``done``: the state that must be found from then on, or a later one.
    """

    kind: Kind
    path: str = ""
    target: str = ""
    content: bytes = b""
    serial: int = 0


class Killed(BaseException):
    """The process ends here."""


class Recorder:
    """Records what is called on the files below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.operations: list[Operation] = []
        self.stop_before: tuple[Kind, str] | None = None
        self._stopped = False

    def record(self, action: Callable[[], object]) -> None:
        """Do something, and record it."""
        names = ("open", "fsync", "replace", "unlink", "mkdir")
        real: dict[str, Any] = {name: getattr(os, name) for name in names}

        def opened(path: Any, flags: int, *given: Any, **named: Any) -> int:
            makes = flags & os.O_CREAT and not os.path.lexists(path)
            if makes:
                self._add("create", path)
            handle: int = real["open"](path, flags, *given, **named)
            return handle

        def fsync(handle: int) -> None:
            path = os.readlink(f"/proc/self/fd/{handle}")
            if os.path.isdir(path):
                self._add("flush folder", path)
            else:
                self._wrote(path)
                self._add("flush", path)
            real["fsync"](handle)

        def replace(path: Any, target: Any) -> None:
            self._wrote(path)
            self._add("rename", path, target)
            real["replace"](path, target)

        def unlink(path: Any, **named: Any) -> None:
            if os.path.lexists(path):
                self._add("unlink", path)
            real["unlink"](path, **named)

        def mkdir(path: Any, *given: Any, **named: Any) -> None:
            self._add("mkdir", path)
            real["mkdir"](path, *given, **named)

        with pytest.MonkeyPatch.context() as patch:
            for name, call in zip(names, (opened, fsync, replace, unlink, mkdir), strict=True):
                patch.setattr(os, name, call)
            action()

    def done(self, state: StoreState) -> None:
        """An operation has returned; its state must not be lost from here on."""
        self.operations.append(Operation("done", serial=state.serial))

    def _wrote(self, path: str | os.PathLike[str]) -> None:
        self._add("write", path, content=Path(path).read_bytes())

    def _add(self, kind: Kind, path: Any, target: Any = "", content: bytes = b"") -> None:
        name = os.fspath(path)
        if not name.startswith(str(self._folder)):
            return
        names = [os.path.relpath(each, self._folder) if each else "" for each in (name, os.fspath(target))]
        self._stopped = self.stop_before is not None and (
            self._stopped or (kind, names[0]) == self.stop_before
        )
        if self._stopped:  # and in what runs on the way out, which a killed process does not run
            raise Killed
        self.operations.append(Operation(kind, names[0], names[1], content))


# --- what is left on the disk ----------------------------------------------------------------------------


class Change(NamedTuple):
    """A change of a folder's entries: names that go, and names that come with their file or folder."""

    gone: str
    new: str
    inode: int


def crash_states(operations: Sequence[Operation], draw: random.Random) -> Iterator[dict[str, bytes]]:
    """What may be on the disk if power is lost after these operations: path -> content."""
    names: dict[str, int] = {}  # as the running system sees them
    contents: dict[int, list[bytes]] = {}  # the durable one, then those since
    changes: list[Change] = []
    pending: list[int] = []  # changes that are not flushed
    inodes = itertools.count()
    for operation in operations:
        path = operation.path
        if operation.kind in ("mkdir", "create"):
            names[path] = inode = next(inodes)
            if operation.kind == "create":
                contents[inode] = [b""]
            pending.append(len(changes))
            changes.append(Change("", path, inode))
        elif operation.kind == "write":
            inode = names[path]
            if contents[inode][-1] != operation.content:
                contents[inode].append(operation.content)
        elif operation.kind == "flush":
            del contents[names[path]][:-1]
        elif operation.kind == "flush folder":
            flushed_folder = "" if path == "." else path
            pending = [number for number in pending if _folder(changes[number]) != flushed_folder]
        elif operation.kind == "rename" and path in names:
            names[operation.target] = inode = names.pop(path)
            pending.append(len(changes))
            changes.append(Change(path, operation.target, inode))
        elif operation.kind == "unlink" and path in names:
            pending.append(len(changes))
            changes.append(Change(path, "", names.pop(path)))
    unflushed = [inode for inode, versions in contents.items() if len(versions) > 1]
    kept = [_versions(contents[inode]) for inode in unflushed]
    first = pending[0] if pending else len(changes)
    certain: dict[str, int] = {}
    for change in changes[:first]:
        _apply(change, certain)
    flushed = {inode: versions[-1] for inode, versions in contents.items()}
    for lost, chosen in _choices(pending, kept, draw):
        entries = dict(certain)
        for number in range(first, len(changes)):
            if number not in lost:
                _apply(changes[number], entries)
        yield _files(entries, {**flushed, **dict(zip(unflushed, chosen, strict=True))})


def _versions(versions: list[bytes]) -> list[bytes]:
    """What an unflushed file may hold: what it held, or the new content with any of its blocks still zero, or
    cut after any of them."""
    new = versions[-1]
    size = -(-len(new) // BLOCKS) or 1
    blocks = [new[at : at + size] for at in range(0, len(new), size)]
    masked = itertools.product(*([block, bytes(len(block))] for block in blocks))
    cut = (b"".join(blocks[:count]) for count in range(len(blocks)))
    return list(dict.fromkeys([*versions, *map(b"".join, masked), *cut]))


def _choices(
    pending: Sequence[int], kept: Sequence[Sequence[bytes]], draw: random.Random
) -> Iterator[tuple[set[int], tuple[bytes, ...]]]:
    """Every choice of the changes that are lost and of the contents, or some where there are too many."""
    count = 2 ** len(pending)
    for each in kept:
        count *= len(each)
    if count <= STATES_LIMIT:
        for flags in itertools.product((False, True), repeat=len(pending)):
            lost = {number for number, is_lost in zip(pending, flags, strict=True) if is_lost}
            for chosen in itertools.product(*kept):
                yield lost, chosen
        return
    for _ in range(STATES_LIMIT):
        yield {number for number in pending if draw.random() < 0.5}, tuple(map(draw.choice, kept))


def _apply(change: Change, entries: dict[str, int]) -> None:
    if change.gone:
        entries.pop(change.gone, None)
    if change.new:
        entries[change.new] = change.inode


def _files(entries: Mapping[str, int], contents: Mapping[int, bytes]) -> dict[str, bytes]:
    """The files that can be reached by their folders."""
    folders = {path for path, inode in entries.items() if inode not in contents}
    reached = {""} | {path for path in folders if all(above in folders for above in _above(path))}
    return {
        path: contents[inode]
        for path, inode in entries.items()
        if inode in contents and path.rpartition("/")[0] in reached
    }


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _folder(change: Change) -> str:
    return os.path.dirname(change.new or change.gone)


# --- whether it is sound ---------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 16)
def _state_in(content: bytes) -> StoreState | None:
    return decoded(content)


def fault_of(files: Mapping[str, bytes], store: str, bundles: Mapping[str, bytes], serial: int) -> str:
    """Why a store could not go on with what is on the disk; "" if it can."""
    read = [_state_in(files.get(f"{store}/state.{number}.json", b"")) for number in (0, 1)]
    states = [state for state in read if state is not None]
    state = max(states, key=lambda state: state.serial, default=StoreState())
    if state.serial < serial:
        return f"state {serial} is lost, {state.serial} is found"
    slots = f"{store.partition('/')[0]}/slots"
    for digest in state.named:
        if files.get(f"{slots}/{digest}.edgekit") != bundles[digest]:
            return f"bundle {digest[:8]}, {state.phase(digest)}, is not whole"
    return ""


def explored(
    operations: Sequence[Operation],
    store: str,
    bundles: Mapping[str, bytes],
    draw: random.Random,
    wrong_limit: int = 1000,
) -> tuple[int, list[str]]:
    """Lose power after each operation; no more than ``wrong_limit`` bad states are looked for."""
    count, serial, wrong = 0, 0, []
    for number in range(len(operations) + 1):
        if number and operations[number - 1].kind == "done":
            serial = operations[number - 1].serial
        for files in crash_states(operations[:number], draw):
            count += 1
            if why := fault_of(files, store, bundles, serial):
                wrong.append(f"after operation {number}: {why}")
                if len(wrong) == wrong_limit:
                    return count, wrong
    return count, wrong
