"""Engines that are built on the device that runs them: what stands on the disk, and what to do about it.

    EDGEKIT_CACHE/engines/<fingerprint>/engine.bin    what the engine loads
    EDGEKIT_CACHE/engines/<fingerprint>/meta.json     its sha256 and what was measured: written with it
    EDGEKIT_CACHE/engines/<fingerprint>.json          failures, and what a process was doing when it died
    EDGEKIT_CACHE/engines/.lock                       held while one process builds
    EDGEKIT_CACHE/engines/.<anything else>            drafts and damaged engines; removed by the next build

A fingerprint names all that an engine depends on: model, settings, versions, the chip. An engine is code that
runs: the folder, and those above it, are ours or root's and nobody else may write to them, or none is used or
built. An engine appears by one rename of a finished, flushed folder: it is whole or absent, whoever dies.
:func:`decide` is pure; all else here reads and writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.formats import strict_json
from edgekit.formats.strict_json import JsonError
from edgekit.system import cache_folder, ownership
from edgekit.system.atomic_files import flush_folder, private_folder, write_atomically
from edgekit.tensors import Json

FAILURES_LIMIT = 2
"""So many failures switch an engine off for its fingerprint: a crash that repeats must not be met at each
start of the app."""
INTERRUPTIONS_LIMIT = 5
"""So many builds that died with their app do the same: one may be a restart, five are the build's doing."""
JSON_LIMIT_BYTES = 1 << 16
ENGINE, META = "engine.bin", "meta.json"
DAMAGED_KEPT = 2
"""Damaged engines that are kept to be looked at."""

EngineState = Literal["absent", "whole", "damaged"]
Act = Literal["use", "build", "off", "no room"]


@dataclass(frozen=True)
class Ledger:
    """What is remembered about a fingerprint beside its engine.

    Attributes:
        failures: Why building, checking or loading it failed, the oldest first.
        interruptions: Builds whose app died meanwhile.
        doing: ``build`` or ``load`` while a process does that; it stays where the process dies.
        process: Of the process that does it: its number and the machine's boot.
    """

    failures: tuple[str, ...] = ()
    interruptions: int = 0
    doing: str = ""
    process: str = ""


@dataclass(frozen=True)
class Room:
    """What is free, and what a build needs, in MB."""

    disk_mb: int
    memory_mb: int
    needs_disk_mb: int
    needs_memory_mb: int


@dataclass(frozen=True)
class Decision:
    """What to do, and why where that is not to use it."""

    act: Act
    why: str = ""


def decide(state: EngineState, ledger: Ledger, room: Room) -> Decision:
    """What to do about an engine.

    >>> decide("absent", Ledger(), Room(900, 900, 100, 100))
    Decision(act='build', why='')
    >>> decide("whole", Ledger(("crashed", "hung")), Room(900, 900, 100, 100)).why
    'switched off after 2 failures, the last: hung'
    """
    if len(ledger.failures) >= FAILURES_LIMIT:
        return Decision(
            "off", f"switched off after {len(ledger.failures)} failures, the last: {ledger.failures[-1]}"
        )
    if ledger.interruptions >= INTERRUPTIONS_LIMIT:
        return Decision("off", f"switched off: the app died during {ledger.interruptions} builds")
    if state == "whole":
        return Decision("use")
    for what, free, needed in (
        ("disk", room.disk_mb, room.needs_disk_mb),
        ("memory", room.memory_mb, room.needs_memory_mb),
    ):
        if free < needed:
            return Decision("no room", f"{free} MB of {what} are free; building needs {needed} MB")
    return Decision("build")


def after_death(ledger: Ledger) -> Ledger:
    """The ledger once the process that stands in it is known to be dead."""
    if ledger.doing == "load":
        return Ledger((*ledger.failures, "the process died while it loaded the engine"), ledger.interruptions)
    if ledger.doing == "build":
        return Ledger(ledger.failures, ledger.interruptions + 1)
    return ledger


def fingerprint(facts: Mapping[str, Json]) -> str:
    """sha256 over all that an engine depends on, in hexadecimal."""
    return hashlib.sha256(strict_json.encode(dict(facts))).hexdigest()


class EngineStore:
    """The folder of engines. Every method may raise OSError where it cannot be used."""

    def __init__(self) -> None:
        self.root: Path = cache_folder.cache_folder() / "engines"

    def folder(self, name: str) -> Path:
        return self.root / name

    def state(self, name: str) -> EngineState:
        """Whether the engine of a fingerprint is there, and is what was checked when it was built."""
        folder = self.folder(name)
        self._refuse_foreign()
        if not folder.exists():
            return "absent"
        try:
            ownership.refuse_foreign(folder, parents=False)
            return "whole" if self.meta(name).get("sha256") == sha256_of(folder / ENGINE) else "damaged"
        except OSError:
            return "damaged"

    def meta(self, name: str) -> dict[str, Json]:
        """What was measured of an engine; empty where that cannot be read."""
        return read_json(self.folder(name) / META)

    def ledger(self, name: str) -> Ledger:
        """What is remembered, once a process that died is accounted for."""
        self._refuse_foreign()
        known = read_json(self._ledger_path(name))
        try:
            ledger = Ledger(
                tuple(str(why) for why in known.get("failures", ())),
                int(known.get("interruptions", 0)),
                str(known.get("doing", "")),
                str(known.get("process", "")),
            )
        except (TypeError, ValueError):
            ledger = Ledger()
        if ledger.doing and not _is_alive(ledger.process):
            ledger = after_death(ledger)
            self.remember(name, ledger)
        return ledger

    def remember(self, name: str, ledger: Ledger) -> None:
        private_folder(self.root)
        known: Json = {
            "failures": list(ledger.failures),
            "interruptions": ledger.interruptions,
            "doing": ledger.doing,
            "process": ledger.process,
        }
        write_atomically(self._ledger_path(name), [strict_json.encode(known)], 0o600)

    def fail(self, name: str, why: str) -> None:
        """Remember one more failure."""
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, failures=(*ledger.failures, why)[-FAILURES_LIMIT:]))

    @contextlib.contextmanager
    def doing(self, name: str, what: str) -> Iterator[None]:
        """What a process does with the engine is on the disk before it begins: it may not live to tell."""
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, doing=what, process=_this_process()))
        try:
            yield
        finally:
            self.remember(name, replace(self.ledger(name), doing="", process=""))

    def draft(self) -> Path:
        """A new, empty folder to build in."""
        private_folder(self.root)
        draft = self.root / f".{os.urandom(8).hex()}"
        draft.mkdir(mode=0o700)
        return draft

    def put(self, name: str, draft: Path, meta: Mapping[str, Json]) -> None:
        """Make a draft's engine the one of a fingerprint: flushed, then renamed."""
        with open(draft / ENGINE, "rb") as file:
            os.fsync(file.fileno())
        meta_json = strict_json.encode({**meta, "sha256": sha256_of(draft / ENGINE)})
        write_atomically(draft / META, [meta_json], 0o600)
        flush_folder(draft)
        self.set_aside(name)
        os.rename(draft, self.folder(name))
        flush_folder(self.root)
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, interruptions=0))

    def set_aside(self, name: str) -> None:
        """Move an engine out of the way, to be looked at or removed by the next build."""
        if self.folder(name).exists():
            os.rename(self.folder(name), self.root / f".{name}.{os.urandom(4).hex()}.damaged")

    def clean(self) -> None:
        """Remove drafts that nobody finished, and damaged engines but the newest. Under the lock only."""
        hidden = [path for path in self.root.iterdir() if path.name.startswith(".") and path.is_dir()]
        damaged = sorted((p for p in hidden if p.name.endswith(".damaged")), key=lambda p: p.stat().st_mtime)
        kept = set(damaged[-DAMAGED_KEPT:])
        for path in hidden:
            if path not in kept:
                shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Whether this process is now the one that builds. The system drops the lock of one that dies."""
        import fcntl  # here: Windows has none, and no device with a GPU of this kind

        private_folder(self.root)
        with open(ownership.open_regular(self.root / ".lock", os.O_RDWR | os.O_CREAT), "r+b") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def room(self, needs_disk_mb: int, needs_memory_mb: int) -> Room:
        private_folder(self.root)
        disk_mb = shutil.disk_usage(self.root).free >> 20
        return Room(disk_mb, free_memory_mb(), needs_disk_mb, needs_memory_mb)

    def _refuse_foreign(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            ownership.refuse_foreign(self.root)

    def _ledger_path(self, name: str) -> Path:
        return self.root / f"{name}.json"


def free_memory_mb() -> int:
    """MB that a process can get without swapping: MemAvailable of /proc/meminfo; much where it is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) >> 10
    return 1 << 20


def _this_process() -> str:
    return f"{os.getpid()} {_started(os.getpid())} {_boot()}"


def _is_alive(process: str) -> bool:
    pid, _, rest = process.partition(" ")
    if not pid.isdigit() or rest.rpartition(" ")[2] != _boot():
        return False
    started = _started(int(pid))
    return bool(started) and rest.rpartition(" ")[0] == started


def _started(pid: int) -> str:
    """When a process began, in ticks since the boot, for numbers are used again; empty where it ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return "unknown"


def read_json(path: Path) -> dict[str, Json]:
    """A small JSON object; empty where there is none that can be read."""
    try:
        with open(ownership.open_regular(path), "rb") as file:  # a child's may be anything
            found = strict_json.decode(file.read(JSON_LIMIT_BYTES + 1), path.name, JSON_LIMIT_BYTES)
    except (OSError, JsonError):
        return {}
    return found if isinstance(found, dict) else {}


def sha256_of(path: Path) -> str:
    """Of a file, in hexadecimal, read in pieces."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()
