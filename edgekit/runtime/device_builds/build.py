"""Build an engine in a child process, in the background, so that a failed build does not affect the app.

The child gets a folder and writes ``engine.bin`` and ``result.json`` into it: ``{"sha256": ..., facts}``, or
``{"failed": why}``. It may report its progress in ``stage``. It runs at the lowest priority, is the first
that the kernel kills when memory runs out, and dies with its app (child_limits.py). It is killed if it
exceeds its time or memory limit; the memory limit is not RLIMIT_AS, because CUDA reserves far more address
space.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgekit.errors import EngineError, EngineNotReady
from edgekit.runtime.device_builds.engine_store import (
    ENGINE,
    JSON_LIMIT_BYTES,
    Decision,
    EngineStore,
    decide,
    free_memory_mb,
)
from edgekit.system.forked import at_exit
from edgekit.system.json_records import read_object
from edgekit.system.memory import resident_bytes
from edgekit.system.regular_file import sha256_of
from edgekit.tensor_spec import Json

RESULT, STAGE, LOG = "result.json", "stage", "log"
NO_ROOM = 75
"""Exit code (EX_TEMPFAIL of sysexits.h) of a builder when the disk is full, which is not the engine's
fault."""
STAGES = ("waiting", "building", "verifying", "ready", "failed")
POLL_SECONDS = 0.1
"""Polling interval of the child."""
REASON_LIMIT_CHARS = 300


@dataclass(frozen=True)
class EngineLimits:
    """Resource limits of a build.

    Attributes:
        seconds: Timeout. Engines of small networks take minutes on an Orin Nano.
        floor_mb: Available memory below which the child is killed, for the sake of other processes.
    """

    seconds: float = 1800.0
    memory_mb: int = 4096
    floor_mb: int = 200
    needs_disk_mb: int = 200
    needs_memory_mb: int = 1000


@dataclass(frozen=True)
class BuildResult:
    """The result of a build's child process.

    Attributes:
        killed: Why this process killed it; empty if it did not.
        result: Its result file; empty if missing or unreadable.
    """

    code: int
    killed: str = ""
    result: dict[str, Json] = field(default_factory=dict)
    sha256: str = ""
    log: str = ""


def why_failed(ended: BuildResult) -> str:
    """Return the reason for a build's failure, or "" if it succeeded.

    >>> why_failed(BuildResult(-11))
    'the builder was killed by signal 11'
    >>> why_failed(BuildResult(0, result={"sha256": "a"}, sha256="b"))
    'the engine file does not match the sha256 in result.json'
    """
    last_line = f": {ended.log}" if ended.log else ""
    if ended.killed:
        return ended.killed
    if ended.code < 0:
        return f"the builder was killed by signal {-ended.code}{last_line}"
    if ended.code == NO_ROOM:
        return "the disk was full"
    if ended.result.get("failed"):
        return str(ended.result["failed"])[:REASON_LIMIT_CHARS]
    if ended.code:
        return f"the builder exited with code {ended.code}{last_line}"
    if not ended.result:
        return "the builder wrote no result.json"
    if not ended.sha256:
        return "the builder wrote no engine"
    if ended.result.get("sha256") != ended.sha256:
        return "the engine file does not match the sha256 in result.json"
    return ""


class EngineBuild:
    """An engine being built. ``stage`` is one of STAGES; ``reason`` is the reason of a failure.

    Args:
        command: The builder's command line; the output folder is appended.
    """

    def __init__(self, store: EngineStore, name: str, command: Sequence[str], limits: EngineLimits) -> None:
        self.name = name
        self.stage = "waiting"
        self.reason = ""
        self._store, self._command, self._limits = store, list(command), limits
        self._stopped, self._done = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="edgekit-engine-build", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        """Return whether the build is ready or failed."""
        return self._done.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is done; False after a timeout."""
        return self._done.wait(seconds)

    def stop(self) -> None:
        """Kill the builder and wait for its end. This does not count as a failure."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self.reason = self._built()
        except OSError as problem:
            self.reason = f"{self._store.root} cannot be used: {problem.strerror or problem}"
        self.stage = "failed" if self.reason else "ready"
        self._done.set()

    def _built(self) -> str:
        while not self._stopped.is_set():
            with self._store.lock() as acquired:
                if acquired:
                    return self._build_exclusively()
            self._stopped.wait(POLL_SECONDS)
        return "stopped"

    def _build_exclusively(self) -> str:
        """Build while holding the lock. Another process may have built it while this one waited."""
        store, limits = self._store, self._limits
        decision = check_engine(store, self.name, limits)
        if decision.act != "build":
            return decision.reason
        store.clean()
        draft = store.draft()
        try:
            with store.doing(self.name, "build"):
                ended = self._child(draft)
                reason = why_failed(ended)
                if not reason:
                    store.put(self.name, draft, ended.result)
                elif ended.code != NO_ROOM and not self._stopped.is_set():
                    store.fail(self.name, reason)
        finally:
            store.clean()
        return reason

    def _child(self, draft: Path) -> BuildResult:
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
                child.wait(POLL_SECONDS)
                break
            self.stage = _stage(draft) or self.stage
            killed = self._exceeded_limit(child.pid, time.monotonic() - began)
            if killed:
                break
        if sys.platform == "win32":
            child.kill()
        else:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # with its own children
        code = child.wait()
        return _read_result(draft, code, killed)

    def _exceeded_limit(self, pid: int, seconds: float) -> str:
        limits = self._limits
        if self._stopped.is_set():
            return "stopped"
        if seconds > limits.seconds:
            return f"the builder was killed after {limits.seconds:g} s"
        if (used_mb := resident_bytes(pid) >> 20) > limits.memory_mb:
            return f"the builder was killed at {used_mb} MB of memory; the limit is {limits.memory_mb} MB"
        if (free_mb := free_memory_mb()) < limits.floor_mb:
            return f"the builder was killed with {free_mb} MB of memory left for other processes"
        return ""


def check_engine(store: EngineStore, name: str, limits: EngineLimits) -> Decision:
    """Decide what to do about an engine. A damaged one is set aside and counts as a failure. Otherwise a
    faulty disk would cause a build at every start."""
    state = store.state(name)
    if state == "damaged":
        store.set_aside(name)
        store.fail(name, "its file was damaged")
        state = "absent"
    return decide(state, store.ledger(name), store.free_space(limits.needs_disk_mb, limits.needs_memory_mb))


def ready_or_build(
    store: EngineStore, name: str, command: Callable[[], Sequence[str]], limits: EngineLimits
) -> Path:
    """Return the engine of a fingerprint, if it is built; else start its build, or continue to wait for it.

    Raises:
        EngineNotReady: it is being built; the error's ``build`` reports the progress.
        EngineError: it is disabled here, or there is not enough disk or memory to build it.
    """
    try:
        decision = check_engine(store, name, limits)
    except OSError as problem:
        raise _machine_error(f"{store.root} cannot be used: {problem.strerror or problem}") from None
    if decision.act == "use":
        return store.folder(name) / ENGINE
    if decision.act == "no room":
        raise _machine_error(decision.reason)
    if decision.act != "build":
        raise EngineError(decision.reason)
    with _running_lock:
        running = _running.get(name)
        if running is None or running.done:
            if not _running:
                at_exit(_stop_all)  # a child that dies with its app would count as interrupted
            running = _running[name] = EngineBuild(store, name, command(), limits)
    raise EngineNotReady("its engine is being built on this device", running)


def _machine_error(reason: str) -> EngineError:
    error = EngineError(reason)
    error.blame = "machine"
    return error


_running: dict[str, EngineBuild] = {}
_running_lock = threading.Lock()


def _stop_all() -> None:
    for build in _running.values():
        build.stop()


def _read_result(draft: Path, code: int, killed: str) -> BuildResult:
    engine = draft / ENGINE
    last_line = ""
    with contextlib.suppress(OSError):
        lines = (draft / LOG).read_text("utf-8", errors="replace").split("\n")
        last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")[:REASON_LIMIT_CHARS]
    sha256 = sha256_of(engine) if engine.is_file() and not killed else ""
    return BuildResult(code, killed, read_object(draft / RESULT, JSON_LIMIT_BYTES), sha256, last_line)


def _stage(draft: Path) -> str:
    try:
        stage = (draft / STAGE).read_text("ascii").strip()
    except (OSError, ValueError):
        return ""
    return stage if stage in STAGES else ""
