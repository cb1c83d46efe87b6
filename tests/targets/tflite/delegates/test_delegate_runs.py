"""A delegate that fails while it serves costs one answer: the CPU gives it, and the app is told."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import EngineError
from edgekit.runtime import Session
from edgekit.runtime.fallback import policy
from edgekit.system import cache_folder
from tests.fixtures.child_processes import run_python
from tests.fixtures.delegates import counted_probes

pytestmark = pytest.mark.needs_tflite
Opener = Callable[..., Session]
Library = Callable[..., Path]


def feeds(first: float = 0.0) -> dict[str, np.ndarray]:
    x = np.random.default_rng(5).random((1, 3, 16, 16), np.float32)
    x[0, 0, 0, 0] = first
    return {"x": x}


@pytest.fixture
def right(bundle: Bundle) -> Callable[..., np.ndarray]:
    """The CPU's answer to ``feeds(first)``."""
    session = Session(bundle, variant="tflite-fp32", threads=1)

    def answer(first: float = 0.0) -> np.ndarray:
        return session.run(feeds(first))["y"]

    return answer


def reasons(session: Session) -> list[str]:
    return [hop.reason for hop in session.fallbacks]


def records() -> list[Path]:
    return list((cache_folder.cache_folder() / "probes").glob("*.json"))


@pytest.mark.parametrize(
    ("stopped_by", "reason", "state"),
    [
        (signal.SIGKILL, "its worker process ended (SIGKILL)", ""),
        (signal.SIGSEGV, "its worker process ended (SIGSEGV)", ""),
        (signal.SIGSTOP, "no result from its worker process within 3 s", "T"),
    ],
)
def test_the_cpu_answers_if_the_worker_dies_or_hangs(
    open_on: Opener, right: Callable[..., np.ndarray], stopped_by: int, reason: str, state: str
) -> None:
    """One that is stopped is asked once, and not waited for: it is killed later."""
    with open_on() as session:
        assert len(records()) == 1
        worker: Any = session.runner
        pid, number = worker.facts()["worker_pid"], worker._number
        os.kill(pid, stopped_by)
        np.testing.assert_allclose(session.run(feeds())["y"], right(), atol=1e-4)
        assert worker._number == number + 1
        ended_as = state_of(pid)
        with contextlib.suppress(ProcessLookupError):  # the app would in 5 s
            os.kill(pid, signal.SIGKILL)
        assert ended_as == state
        assert session.active.device == "CPU"
        assert reasons(session) == [reason]
        assert records() == []


@pytest.mark.parametrize(
    ("mode", "reason"),
    [
        ("crash_invoke", "its worker process ended (SIGSEGV)"),
        ("hang_invoke", "no result from its worker process within 2 s"),
        ("error_invoke", "EngineError: LiteRT"),
    ],
)
def test_the_cpu_answers_an_input_that_the_delegate_fails_on(
    open_on: Opener, right: Callable[..., np.ndarray], mode: str, reason: str
) -> None:
    with open_on(f"mode={mode},value=2") as session:
        np.testing.assert_allclose(session.run(feeds())["y"], right(), atol=1e-4)
        assert session.active.device != "CPU"
        np.testing.assert_allclose(session.run(feeds(3.0))["y"], right(3.0), atol=1e-4)
        assert session.active.device == "CPU"
        assert reasons(session)[0].startswith(reason.removeprefix("EngineError: "))


def test_a_failed_delegate_is_probed_again_before_it_returns(
    open_on: Opener, right: Callable[..., np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "FIRST_COOLDOWN_S", 0.1)
    with open_on() as session:
        started = counted_probes(monkeypatch)
        os.kill(session.runner.facts()["worker_pid"], signal.SIGKILL)
        until = time.monotonic() + 30
        while not started or session.active.device == "CPU":
            np.testing.assert_allclose(session.run(feeds())["y"], right(), atol=1e-4)
            assert time.monotonic() < until
            time.sleep(0.01)
        assert len(started) == 1
        assert session.fallbacks == ()
        assert [hop.reason for hop in session.history][-1].startswith("it works again, after: its worker")


@pytest.mark.parametrize("prefix", ["delegate", "delegate-in-process"])
@pytest.mark.parametrize(
    ("options", "first", "run", "reason"),
    [
        ("mode=large,after=100,limit=1", 0.0, 500, "output y differs from the CPU's after 500 runs: SNR "),
        ("mode=large,value=2", 3.0, 500, "output y differs from the CPU's after 500 runs: SNR "),
        ("mode=small,by=0.0001,after=100,limit=1", 0.0, 1000, "output y of a golden vector: SNR 8"),
    ],
)
def test_a_delegate_that_becomes_wrong_is_found(
    open_on: Opener,
    right: Callable[..., np.ndarray],
    options: str,
    first: float,
    run: int,
    reason: str,
    prefix: str,
) -> None:
    """The second is right on all golden vectors, so only the CPU finds it; only they find the third."""
    with open_on(options, prefix=prefix) as session:
        assert session.active.device != "CPU"
        assert ("worker_pid" in session.runner.facts()) == (prefix == "delegate")
        for count in range(1, run + 1):
            answer = session.run(feeds(first))["y"]
            if session.fallbacks:
                break
            assert count < run
        assert count > run - 10  # a few were run before
        np.testing.assert_allclose(answer, right(first), atol=1e-4)
        assert session.active.device == "CPU"
        assert reasons(session)[0].startswith(reason)
        assert records() == []


def test_a_golden_vector_runs_after_an_error(open_on: Opener) -> None:
    with open_on("mode=break,value=2", strict=True, allow_split=True) as session:
        with pytest.raises(EngineError, match="the device was unplugged"):
            session.run(feeds(3.0))
        with pytest.raises(EngineError, match="output y of a golden vector: SNR"):
            session.run(feeds())


def test_ctrl_c_is_the_apps_and_an_old_result_is_dropped(
    open_on: Opener, right: Callable[..., np.ndarray]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with open_on("mode=slow,slow_us=300000,value=2,limit=1") as session:
        os.kill(session.runner.facts()["worker_pid"], signal.SIGINT)
        before = signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with pytest.raises(KeyboardInterrupt):
                session.run(feeds(3.0))
        finally:
            signal.signal(signal.SIGALRM, before)
        np.testing.assert_allclose(session.run(feeds(4.0))["y"], right(4.0), atol=1e-4)
        assert session.active.device != "CPU"


LEFT = """
import os, sys, time
from edgekit.runtime import Session
session = Session(sys.argv[1], variant="tflite-fp32", device=f"delegate:{sys.argv[2]}", threads=1)
feeds = session.bundle.golden[0][0]
while session.active.device == "CPU":
    session.run(feeds)
    time.sleep(0.01)
pid = os.fork()
if pid == 0:
    session.run(feeds)
    print(session.active.device, *(hop.reason for hop in session.fallbacks), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
session.run(feeds)
print(session.active.device, session.runner.facts()["worker_pid"], flush=True)
os._exit(0)
"""


def test_a_worker_ends_with_the_app_and_is_not_used_by_its_forks(bundle_path: Path, library: Library) -> None:
    forked, parent, *_ = run_python(LEFT, bundle_path, library()).stdout.splitlines()
    assert forked == "CPU its worker process belongs to the process that this one was forked from"
    device, _, pid = parent.rpartition(" ")
    assert device.startswith("delegate (delegate88.so")
    ends(pid)


HANGS = """
import os, sys, threading, time
from edgekit.bundle import Bundle
from edgekit.runtime.fallback.accelerated import accelerated_copy
from edgekit.runtime.loading import probe
from edgekit.runtime.loading.worker import WorkerRunner
from tests.fixtures.child_processes import children
probe.ACCELERATOR_PROBE_SECONDS = 4.0
bundle = Bundle.open(sys.argv[1])
copy = accelerated_copy(bundle.variants[0], f"delegate:{sys.argv[2]},mode=hang_prepare")
threading.Thread(target=WorkerRunner, args=(bundle, copy, 1), daemon=True).start()
while not children():
    time.sleep(0.01)
time.sleep(2)
print(*children(), flush=True)
os._exit(0)
"""


def test_a_worker_that_hangs_while_it_loads_ends_without_the_app(bundle_path: Path, library: Library) -> None:
    """Prepare holds Python's lock and nobody closes its socket, so only the kernel's timer can."""
    pids = run_python(HANGS, bundle_path, library()).stdout.split()
    assert len(pids) == 1
    ends(pids[0])


def ends(pid: str) -> None:
    """Wait until a process has ended."""
    until = time.monotonic() + 10
    while state_of(pid) not in ("", "Z"):
        assert time.monotonic() < until
        time.sleep(0.05)


def state_of(pid: object) -> str:
    """Return the state of a process as proc(5) names it, or "" if there is none."""
    status = Path(f"/proc/{pid}/stat")
    return status.read_text().rpartition(")")[2].split()[0] if status.exists() else ""
