"""Build an engine in a child process, in the background, so that whatever happens to it the app goes on.

The child gets a folder and writes ``engine.bin`` and ``result.json`` into it: ``{"sha256": ..., facts}``,
or ``{"failed": why}``. It may say where it is in ``stage``. It lives at the lowest priority, is the first
that the system kills when memory runs out, and dies with its app (lowly.py). It is killed when it takes too
long or too much memory: not by RLIMIT_AS, for a process that uses CUDA reserves address space far beyond it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.errors import EngineError, EngineNotReady
from edgekit.runtime.device_builds.engine_store import (
    ENGINE,
    Decision,
    EngineStore,
    decide,
    free_memory_mb,
    read_json,
    sha256_of,
)
from edgekit.runtime.device_builds.memory import resident_mb
from edgekit.tensors import Json

RESULT, STAGE, LOG = "result.json", "stage", "log"
NO_ROOM = 75
"""Exit code (EX_TEMPFAIL of sysexits.h) of a builder that met a full disk: that is not the engine's doing."""
STAGES = ("waiting", "building", "verifying", "ready", "failed")
LOOK_SECONDS = 0.1
"""How often the child is looked at."""
REASON_LIMIT_CHARS = 300


@dataclass(frozen=True)
class Limits:
    """What a build may take.

    Attributes:
        seconds: Until it is killed. Engines of small networks take minutes on an Orin Nano.
        memory_mb: Resident memory of the child.
        floor_mb: Memory that must stay available to all others; below it the child is killed.
        needs_disk_mb: Free disk that a build begins with.
        needs_memory_mb: Available memory that it begins with.
    """

    seconds: float = 1800.0
    memory_mb: int = 4096
    floor_mb: int = 200
    needs_disk_mb: int = 200
    needs_memory_mb: int = 1000


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        code: Its exit code; negative for the signal that killed it.
        killed: Why it was killed by us; empty where it was not.
        result: What it wrote; empty where it wrote nothing that can be read.
        sha256: Of the engine that is there; empty where there is none.
        log: The last thing it said.
    """

    code: int
    killed: str = ""
    result: dict[str, Json] = field(default_factory=dict)
    sha256: str = ""
    log: str = ""


def why_failed(ended: Ended) -> str:
    """What is wrong with a build that ended; empty where nothing is.

    >>> why_failed(Ended(-11))
    'the builder was killed by signal 11'
    >>> why_failed(Ended(0, result={"sha256": "a"}, sha256="b"))
    'the builder wrote another engine than it says'
    """
    words = f": {ended.log}" if ended.log else ""
    if ended.killed:
        return ended.killed
    if ended.code < 0:
        return f"the builder was killed by signal {-ended.code}{words}"
    if ended.code == NO_ROOM:
        return "the disk was full"
    if ended.result.get("failed"):
        return str(ended.result["failed"])[:REASON_LIMIT_CHARS]
    if ended.code:
        return f"the builder ended with code {ended.code}{words}"
    if not ended.result:
        return "the builder said nothing of what it made"
    if not ended.sha256:
        return "the builder wrote no engine"
    if ended.result.get("sha256") != ended.sha256:
        return "the builder wrote another engine than it says"
    return ""


class Build:
    """An engine on its way. ``stage`` is one of STAGES; ``why`` says what it failed of.

    Args:
        store: Where engines are.
        name: The fingerprint.
        command: The builder's command line; the folder to write into is added to it.
        limits: What it may take.
    """

    def __init__(self, store: EngineStore, name: str, command: Sequence[str], limits: Limits) -> None:
        self.name = name
        self.stage = "waiting"
        self.why = ""
        self._store, self._command, self._limits = store, list(command), limits
        self._stopped, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgekit-engine-build", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Whether it is ready or failed."""
        return self._done.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is done; False where that took longer."""
        return self._done.wait(seconds)

    def stop(self) -> None:
        """Kill the builder and wait for its end. It counts as no failure."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.why = self._built()
        except OSError as problem:
            self.why = f"{self._store.root} cannot be used: {problem.strerror or problem}"
        self.stage = "failed" if self.why else "ready"
        self._done.set()

    def _built(self) -> str:
        while not self._stopped.is_set():
            with self._store.lock() as mine:
                if mine:
                    return self._alone()
            self._stopped.wait(LOOK_SECONDS)
        return "stopped"

    def _alone(self) -> str:
        """Build, as the one process that does. Another may have built it while this one waited."""
        store, limits = self._store, self._limits
        decision = look(store, self.name, limits)
        if decision.act != "build":
            return decision.why
        store.clean()
        draft = store.draft()
        try:
            with store.doing(self.name, "build"):
                ended = self._child(draft)
                why = why_failed(ended)
                if not why:
                    store.put(self.name, draft, ended.result)
                elif ended.code != NO_ROOM and not self._stopped.is_set():
                    store.fail(self.name, why)
        finally:
            store.clean()
        return why

    def _child(self, draft: Path) -> Ended:
        self.stage = "building"
        with open(draft / LOG, "wb") as log:
            child = subprocess.Popen(
                [*self._command, str(draft)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        killed = ""
        began = time.monotonic()
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(LOOK_SECONDS)
                break
            self.stage = _stage(draft) or self.stage
            killed = self._too_much(child.pid, time.monotonic() - began)
            if killed:
                break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)  # whatever it started
        code = child.wait()
        return _ended(draft, code, killed)

    def _too_much(self, pid: int, seconds: float) -> str:
        limits = self._limits
        if self._stopped.is_set():
            return "stopped"
        if seconds > limits.seconds:
            return f"the builder was killed after {limits.seconds:g} s"
        if (used_mb := resident_mb(pid)) > limits.memory_mb:
            return f"the builder was killed at {used_mb} MB of memory; {limits.memory_mb} MB are allowed"
        if (free_mb := free_memory_mb()) < limits.floor_mb:
            return f"the builder was killed with {free_mb} MB of memory left for all others"
        return ""


def look(store: EngineStore, name: str, limits: Limits) -> Decision:
    """What to do about an engine. A damaged one is set aside and counts as a failure: on a disk that damages
    what it holds, an engine would be built at every start."""
    state = store.state(name)
    if state == "damaged":
        store.set_aside(name)
        store.fail(name, "its file was damaged")
        state = "absent"
    return decide(state, store.ledger(name), store.room(limits.needs_disk_mb, limits.needs_memory_mb))


def ready_or_build(
    store: EngineStore, name: str, command: Callable[[], Sequence[str]], limits: Limits
) -> Path:
    """The engine of a fingerprint, if it stands; else its build begins, or goes on.

    Raises:
        EngineNotReady: it is being built; ``build`` of the error is its progress.
        EngineError: it is switched off here, or there is no room to build it.
    """
    try:
        decision = look(store, name, limits)
    except OSError as problem:
        raise _of_the_machine(f"{store.root} cannot be used: {problem.strerror or problem}") from None
    if decision.act == "use":
        return store.folder(name) / ENGINE
    if decision.act == "no room":
        raise _of_the_machine(decision.why)
    if decision.act != "build":
        raise EngineError(decision.why)
    with _running_lock:
        running = _running.get(name)
        if running is None or running.done:
            if not _running:
                atexit.register(_stop_all)  # a child that dies with its app would count against the engine
            running = _running[name] = Build(store, name, command(), limits)
    raise EngineNotReady("its engine is being built on this device", running)


def _of_the_machine(why: str) -> EngineError:
    error = EngineError(why)
    error.blame = "machine"
    return error


_running: dict[str, Build] = {}
_running_lock = threading.Lock()


def _stop_all() -> None:
    for build in _running.values():
        build.stop()


def _ended(draft: Path, code: int, killed: str) -> Ended:
    engine = draft / ENGINE
    words = ""
    with contextlib.suppress(OSError):
        lines = (draft / LOG).read_text("utf-8", errors="replace").split("\n")
        words = next((line.strip() for line in reversed(lines) if line.strip()), "")[:REASON_LIMIT_CHARS]
    sha256 = sha256_of(engine) if engine.is_file() and not killed else ""
    return Ended(code, killed, read_json(draft / RESULT), sha256, words)


def _stage(draft: Path) -> str:
    try:
        said = (draft / STAGE).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
    return said if said in STAGES else ""
