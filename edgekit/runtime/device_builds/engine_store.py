"""Engines built on this device: the files, and what to do about them.

    EDGEKIT_CACHE/engines/<fingerprint>/engine.bin    what the engine loads
    EDGEKIT_CACHE/engines/<fingerprint>/meta.json     its sha256 and measurements: written with it
    EDGEKIT_CACHE/engines/<fingerprint>.json          failures, and the activity of a process that crashed
    EDGEKIT_CACHE/engines/.lock                       held while one process builds
    EDGEKIT_CACHE/engines/.<anything else>            drafts and damaged engines; removed by the next build

A fingerprint covers everything an engine depends on: model, settings, versions, the chip. An engine is
executable code, so the folder and its parents must belong to this user or root, with no other user allowed to
write; otherwise none is used or built. An engine appears by renaming a complete, flushed folder, so it is
whole or absent, even after a crash. :func:`decide` is pure; everything else here does I/O.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edgekit.errors import EngineError
from edgekit.system import cache_folder, ownership
from edgekit.system.atomic_files import flush_folder, private_folder, write_atomically
from edgekit.system.formats import declared_json, strict_json
from edgekit.system.formats.json_schema import ManifestError
from edgekit.system.json_records import read_object
from edgekit.system.memory import free_memory_bytes
from edgekit.system.regular_file import open_regular, sha256_of
from edgekit.tensor_spec import Json

FAILURES_LIMIT = 2
"""Failures after which an engine is disabled for its fingerprint, so that a crash does not recur at each
start of the app."""
INTERRUPTIONS_LIMIT = 5
"""Builds interrupted by the app's end after which it is disabled too: one may be a restart, five are not."""
JSON_LIMIT_BYTES = 1 << 16
ENGINE, META = "engine.bin", "meta.json"
DAMAGED_KEPT = 2
"""Damaged engines that are kept for inspection."""

EngineState = Literal["absent", "whole", "damaged"]
Act = Literal["use", "build", "off", "no room"]


@dataclass(frozen=True)
class Ledger:
    """Record of a fingerprint's builds and failures, kept beside its engine.

    Attributes:
        failures: Reasons why building, checking or loading it failed, the oldest first.
        interruptions: Number of builds during which the app died.
        doing: ``build`` or ``load`` while a process does that; it remains if the process dies.
        process: The process that builds or loads it: id, start time and the machine's boot id.
    """

    failures: tuple[str, ...] = ()
    interruptions: int = 0
    doing: str = ""
    process: str = ""


@dataclass(frozen=True)
class FreeSpace:
    """Free disk and memory, and what a build needs, in MB."""

    disk_mb: int
    memory_mb: int
    needs_disk_mb: int
    needs_memory_mb: int


@dataclass(frozen=True)
class Decision:
    """Action to take, and the reason if the engine is not used."""

    act: Act
    reason: str = ""


def decide(state: EngineState, ledger: Ledger, free_space: FreeSpace) -> Decision:
    """Decide whether to use, build or skip an engine.

    >>> decide("absent", Ledger(), FreeSpace(900, 900, 100, 100))
    Decision(act='build', reason='')
    >>> decide("whole", Ledger(("crashed", "hung")), FreeSpace(900, 900, 100, 100)).reason
    'disabled after 2 failures, the last: hung'
    """
    if len(ledger.failures) >= FAILURES_LIMIT:
        return Decision(
            "off", f"disabled after {len(ledger.failures)} failures, the last: {ledger.failures[-1]}"
        )
    if ledger.interruptions >= INTERRUPTIONS_LIMIT:
        return Decision("off", f"disabled: the app died during {ledger.interruptions} builds")
    if state == "whole":
        return Decision("use")
    for resource, free, needed in (
        ("disk", free_space.disk_mb, free_space.needs_disk_mb),
        ("memory", free_space.memory_mb, free_space.needs_memory_mb),
    ):
        if free < needed:
            return Decision("no room", f"{free} MB of {resource} are free; building needs {needed} MB")
    return Decision("build")


def after_crash(ledger: Ledger) -> Ledger:
    """Return the ledger after the recorded process has died."""
    if ledger.doing == "load":
        return Ledger((*ledger.failures, "the process died while loading the engine"), ledger.interruptions)
    if ledger.doing == "build":
        return Ledger(ledger.failures, ledger.interruptions + 1)
    return ledger


def fingerprint(facts: Mapping[str, Json]) -> str:
    """sha256 over all that an engine depends on, in hexadecimal."""
    return hashlib.sha256(strict_json.encode(dict(facts))).hexdigest()


class EngineStore:
    """The folder of engines. Every method may raise OSError if it cannot be used."""

    def __init__(self) -> None:
        self.root: Path = cache_folder.cache_folder() / "engines"

    def folder(self, name: str) -> Path:
        return self.root / name

    def state(self, name: str) -> EngineState:
        """Check that the engine exists and matches the sha256 recorded when it was built."""
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
        """Return the measurements of an engine; empty if unreadable."""
        return read_object(self.folder(name) / META, JSON_LIMIT_BYTES)

    def ledger(self, name: str) -> Ledger:
        """Return the ledger, with a crashed process accounted for."""
        self._refuse_foreign()
        stored = read_object(self._ledger_path(name), JSON_LIMIT_BYTES)
        try:
            ledger: Ledger = declared_json.decode(Ledger, stored, "ledger")
        except ManifestError:
            ledger = Ledger()
        if ledger.doing and not _is_alive(ledger.process):
            ledger = after_crash(ledger)
            self.remember(name, ledger)
        return ledger

    def remember(self, name: str, ledger: Ledger) -> None:
        private_folder(self.root)
        content = declared_json.encode(Ledger, ledger)
        write_atomically(self._ledger_path(name), [strict_json.encode(content)], 0o600)

    def fail(self, name: str, reason: str) -> None:
        """Record one more failure."""
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, failures=(*ledger.failures, reason)[-FAILURES_LIMIT:]))

    @contextlib.contextmanager
    def doing(self, name: str, activity: str) -> Iterator[None]:
        """Record the activity on disk before it begins, because it may crash the process."""
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, doing=activity, process=_this_process()))
        try:
            yield
        finally:
            self.remember(name, replace(self.ledger(name), doing="", process=""))

    def draft(self) -> Path:
        """Return a new, empty folder to build in."""
        private_folder(self.root)
        draft = self.root / f".{os.urandom(8).hex()}"
        draft.mkdir(mode=0o700)
        return draft

    def put(self, name: str, draft: Path, metadata: Mapping[str, Json]) -> None:
        """Install a draft's engine under its fingerprint: flush, then rename."""
        with open(draft / ENGINE, "rb") as file:
            os.fsync(file.fileno())
        meta_json = strict_json.encode({**metadata, "sha256": sha256_of(draft / ENGINE)})
        write_atomically(draft / META, [meta_json], 0o600)
        flush_folder(draft)
        self.set_aside(name)
        os.rename(draft, self.folder(name))
        flush_folder(self.root)
        ledger = self.ledger(name)
        self.remember(name, replace(ledger, interruptions=0))

    def set_aside(self, name: str) -> None:
        """Move an engine out of the way; the next build removes all but the newest damaged ones."""
        if self.folder(name).exists():
            os.rename(self.folder(name), self.root / f".{name}.{os.urandom(4).hex()}.damaged")

    def clean(self) -> None:
        """Remove unfinished drafts, and old damaged engines. Only under the lock."""
        hidden = [path for path in self.root.iterdir() if path.name.startswith(".") and path.is_dir()]
        damaged = sorted((p for p in hidden if p.name.endswith(".damaged")), key=lambda p: p.stat().st_mtime)
        retained = set(damaged[-DAMAGED_KEPT:])
        for path in hidden:
            if path not in retained:
                shutil.rmtree(path, ignore_errors=True)

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Yield whether this process holds the build lock; the system releases it when the process dies."""
        if sys.platform == "win32":
            raise EngineError("engines can't be built on Windows, which has no file lock")
        import fcntl

        private_folder(self.root)
        with open_regular(self.root / ".lock", follow_links=False, create=True) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def free_space(self, needs_disk_mb: int, needs_memory_mb: int) -> FreeSpace:
        private_folder(self.root)
        disk_mb = shutil.disk_usage(self.root).free >> 20
        return FreeSpace(disk_mb, free_memory_mb(), needs_disk_mb, needs_memory_mb)

    def _refuse_foreign(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            ownership.refuse_foreign(self.root)

    def _ledger_path(self, name: str) -> Path:
        return self.root / f"{name}.json"


def free_memory_mb() -> int:
    """Return the memory that this process can still allocate, in MB. It is a large number if unknown."""
    return free_memory_bytes() >> 20


def _this_process() -> str:
    return f"{os.getpid()} {_started(os.getpid())} {_boot()}"


def _is_alive(process: str) -> bool:
    pid, _, rest = process.partition(" ")
    if not pid.isdigit() or rest.rpartition(" ")[2] != _boot():
        return False
    started = _started(int(pid))
    return bool(started) and rest.rpartition(" ")[0] == started


def _started(pid: int) -> str:
    """Start time of a process in ticks since boot, because ids are reused; empty if it has ended."""
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
