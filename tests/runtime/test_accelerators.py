"""An accelerator answers only when it answers rightly; until then, and if it fails, the CPU does.

The engine is a package on ``sys.path``, because a child process verifies it.
Its accelerator does what a file beside it says.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.errors import EngineError, UsageError
from edgekit.processing.latency_contract import Latency
from edgekit.runtime import Session
from edgekit.runtime.latency.budget import Budget
from edgekit.runtime.loading import probe
from edgekit.target import registry
from tests.fixtures.bundles import X, small_bundle

RUN = """
from edgekit.target.contract import EngineInfo
ENGINE = EngineInfo(accelerators="edgekit_toy.accelerators")

def engine_version():
    return "Toy 1"

class Runner:
    device, precision = "CPU", "fp32"
    def run(self, feeds):
        return {"y": 2 * feeds["x"]}
    def facts(self):
        return {}
    def close(self):
        pass

def open_runner(files, inputs, outputs, options, threads):
    return Runner()
"""
ACCELERATORS = """
import os, signal, threading, time
from pathlib import Path
APP = int(os.environ["TOY_APP"])
from edgekit.target.accelerators import Accelerator, Interface, named
from edgekit_toy.run import Runner

def said(name):
    path = Path(__file__).with_name(name)
    return path.read_text() if path.is_file() else ""

INTERFACES = (
    Interface("toy-gpu", "gpu", "Toy", (), "", "", ""),
    Interface("toy-cpu", "cpu", "Toy", (), "", "", ""),
)

def find_accelerator(device):
    for one in named(INTERFACES, device):
        return Accelerator(one.kind, "Toy", "driver " + said("driver"))

class Accelerated(Runner):
    device = "GPU (Toy)"
    def run(self, feeds):
        with Path(__file__).with_name("runs").open("a") as file:
            print(threading.current_thread().name if os.getpid() == APP else "child", file=file)
        fault = said("fault")
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if fault == "hang":
            time.sleep(60)
        if fault == "memory":
            raise MemoryError("out of the GPU's memory")
        if fault == "once":
            Path(__file__).with_name("fault").unlink()
            raise RuntimeError("the GPU is busy")
        if fault == "slow":
            time.sleep(0.05)
        if fault == "overlap" and os.getpid() == APP:
            from edgekit_toy import overlap
            overlap.ran()
        return {"y": 2 * feeds["x"] + (0.01 if fault == "wrong" else 0)}
    def facts(self):
        return {"nodes_on_cpu": ["a (Resize)", "b (TopK)"]} if said("fault") == "split" else {}

def open_on(device, files, inputs, outputs, options, threads):
    return Accelerated()
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install the engine; return its folder."""
    folder = tmp_path / "site" / "edgekit_toy"
    folder.mkdir(parents=True)
    for name, text in (("__init__", ""), ("run", RUN), ("accelerators", ACCELERATORS)):
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder.parent))
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    monkeypatch.setenv("TOY_APP", str(os.getpid()))
    registry._by_its_name.cache_clear()
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "edgekit_toy"]:
        del sys.modules[name]
    registry._by_its_name.cache_clear()


LIMIT = {"accuracy": {"y": {"limit_db": 60.0}}}


def toy_bundle(**changes: object) -> Bundle:
    fields = {"options": {}, "status": "verified", "evidence": LIMIT, **changes}
    return small_bundle([Variant("toy-fp32", "toy", "toy", "fp32", {"m": "variants/m"}, **fields)])  # type: ignore[arg-type]


def settled(session: Session) -> Session:
    """Run until nothing is being prepared, and nothing more begins."""
    until = time.monotonic() + 60
    while True:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        before = dict(session.preparing)
        session.run({"x": X})
        states = session.preparing
        if states == before and all(s == "ready" or s.startswith("failed") for s in states.values()):
            return session
        assert time.monotonic() < until, states
        time.sleep(0.01)


def reasons(session: Session) -> list[tuple[str, str, str]]:
    return [(hop.from_, hop.to, hop.reason) for hop in session.fallbacks]


@pytest.mark.usefixtures("toy")
def test_the_cpu_answers_until_the_gpu_is_verified() -> None:
    with Session(toy_bundle(), device="gpu") as session:
        assert session.active.device == "CPU"
        assert reasons(session) == [("toy-fp32@gpu", "toy-fp32", "is being verified in the background")]
        settled(session)
        assert session.active.device == "GPU (Toy)"
        assert session.active.variant == "toy-fp32@gpu"
        assert session.fallbacks == ()


@pytest.mark.usefixtures("toy")
def test_by_default_the_gpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "accelerators_of", lambda engine: pytest.fail("asked for accelerators"))
    with Session(toy_bundle()) as session:
        assert session.preparing == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("wrong", "output y of a golden vector: SNR 55.6 dB; the limit is 60.0 dB"),
        ("crash", "it crashed the probe process (SIGSEGV)"),
        ("hang", "it did not load within 2 s in the probe process"),
        ("memory", "MemoryError: out of the GPU's memory"),
    ],
)
def test_a_gpu_that_fails_leaves_the_cpu(
    toy: Path, fault: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the limit, at which garbage begins on the CPU, would let the wrong one pass."""
    if fault == "hang":
        monkeypatch.setattr(probe, "ACCELERATOR_PROBE_SECONDS", 2.0)
    (toy / "fault").write_text(fault)
    with Session(toy_bundle(), device="gpu", deadline_ms=10_000) as session:
        settled(session)
        assert session.active.device == "CPU"
        assert reasons(session) == [("toy-fp32@gpu", "toy-fp32", reason)]


def test_a_busy_gpu_gets_another_attempt(toy: Path) -> None:
    (toy / "fault").write_text("once")
    with Session(toy_bundle(), device="gpu") as session:
        assert settled(session).active.device == "GPU (Toy)"
    assert not (toy / "fault").exists()


def test_a_verdict_holds_until_the_driver_changes(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (toy / "fault").write_text("wrong")
    with Session(toy_bundle(), device="gpu") as session:
        assert len(reasons(settled(session))) == 1
    started: list[object] = []
    real = probe.probe

    def counted(*given: Any) -> probe.ProbeResult:
        started.append(given)
        return real(*given)

    monkeypatch.setattr(probe, "probe", counted)
    with Session(toy_bundle(), device="gpu") as session:
        assert len(reasons(settled(session))) == 1
    assert started == []
    (toy / "fault").unlink()
    (toy / "driver").write_text("2")
    with Session(toy_bundle(), device="gpu") as session:
        assert settled(session).active.device == "GPU (Toy)"
    assert len(started) == 1


@pytest.mark.parametrize(("fault", "device"), [("slow", "CPU"), ("", "GPU (Toy)")])
def test_auto_takes_the_faster_one(
    toy: Path, fault: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not fault:  # the CPU is the slower one
        text = (toy / "run.py").read_text()
        (toy / "run.py").write_text(
            text.replace("def run(self, feeds):", "def run(self, feeds):\n        wait()")
        )
        with (toy / "run.py").open("a") as file:
            file.write("\nimport time\ndef wait():\n    time.sleep(0.02)\n")
    (toy / "fault").write_text(fault)
    with Session(toy_bundle(), device="auto") as session:
        settled(session)
        assert session.active.device == device
        assert session.fallbacks == ()
        if fault:
            assert session.preparing["toy-fp32@gpu"].startswith("failed: slower here: 5")
        assert session.preparing["toy-fp32@npu"] == "failed: Toy 1 found no NPU on this machine"


def test_strict_waits_for_the_gpu_and_raises_without_it(toy: Path) -> None:
    with Session(toy_bundle(), device="gpu", strict=True) as session:
        assert session.active.device == "GPU (Toy)"
    with pytest.raises(EngineError, match=r"toy-fp32@npu.* found no NPU on this machine"):
        Session(toy_bundle(), device="npu", strict=True)


def test_a_gpu_that_fails_later_falls_back(toy: Path) -> None:
    with Session(toy_bundle(), device="gpu") as session:
        assert settled(session).active.device == "GPU (Toy)"
        (toy / "fault").write_text("memory")
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert session.active.device == "CPU"
        assert reasons(session) == [("toy-fp32@gpu", "toy-fp32", "MemoryError: out of the GPU's memory")]


@pytest.mark.usefixtures("toy")
def test_without_a_limit_nothing_is_admitted() -> None:
    with Session(toy_bundle(evidence={}), device="gpu") as session:
        ((_, _, reason),) = reasons(settled(session))
    assert reason == "the bundle has no SNR limit that its outputs could be held to on an accelerator"


@pytest.mark.usefixtures("toy")
def test_a_bundle_does_not_choose_the_accelerator() -> None:
    forged = toy_bundle(options={registry.ACCELERATOR: "gpu"})
    plain = small_bundle(
        [
            forged.variants[0],
            Variant("toy-2", "toy", "toy", "fp32", {"m": "variants/m2"}, {}, "verified", LIMIT),
        ]
    )
    with Session(plain) as session:
        assert session.active.variant == "toy-2"
        assert session.skipped == {"toy-fp32": "its option accelerator is for a session to set"}


@pytest.mark.usefixtures("toy")
def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        Session(toy_bundle(), device="tpu")
    assert str(raised.value) == ("device is 'tpu'; it must be one of cpu, auto, gpu, npu, toy-gpu, toy-cpu")


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("device", ["toy-gpu", "toy-cpu"])
def test_an_interface_is_requested_by_its_name(device: str) -> None:
    with Session(toy_bundle(), device=device) as session:
        assert settled(session).active.variant == f"toy-fp32@{device}"
        assert session.fallbacks == ()


@pytest.mark.usefixtures("toy")
def test_auto_leaves_other_kernels_for_the_cpu_alone() -> None:
    with Session(toy_bundle(), device="auto") as session:
        assert set(settled(session).preparing) == {"toy-fp32@gpu", "toy-fp32@npu"}


def test_far_slower_is_not_run_while_the_app_waits(toy: Path) -> None:
    """A run of 50 ms must not be compared with microseconds between two requests."""
    (toy / "fault").write_text("slow")
    with Session(toy_bundle(), device="auto") as session:
        settled(session)
        assert session.preparing["toy-fp32@gpu"].startswith("failed: slower here")
    lines = (toy / "runs").read_text().splitlines()
    assert lines
    assert threading.current_thread().name not in lines


def test_strict_allows_no_node_on_the_cpu_unless_told(toy: Path) -> None:
    (toy / "fault").write_text("split")
    with pytest.raises(EngineError) as raised:
        Session(toy_bundle(), device="gpu", strict=True)
    assert str(raised.value) == (
        "toy-fp32@gpu does not run: GPU (Toy): strict allows no node on the CPU, which would run a (Resize), "
        "b (TopK); pass allow_split=True to allow it; strict forbids fallbacks"
    )
    with Session(toy_bundle(), device="gpu", strict=True, allow_split=True) as session:
        assert session.active.device == "GPU (Toy)"
    with Session(toy_bundle(), device="gpu") as session:
        assert settled(session).active.device == "GPU (Toy)"


OVERLAP = """
import threading
DECODED = threading.Semaphore(0)
seen = []

def decode(item):
    DECODED.release()
    return item

def ran():
    # This frame and the next one are decoded while this one is on the GPU.
    seen.append(DECODED.acquire(timeout=30) and DECODED.acquire(timeout=30))
    DECODED.release()
"""


def test_a_streams_stages_on_cpu_and_gpu_overlap(toy: Path) -> None:
    (toy / "overlap.py").write_text(OVERLAP)
    with Session(toy_bundle(), device="gpu", threads=2) as session:
        assert settled(session).active.device == "GPU (Toy)"
        import edgekit_toy.overlap as overlap  # type: ignore[import-not-found]

        (toy / "fault").write_text("overlap")
        frames = [{"x": X}] * 6
        with session.stream(frames, decode=overlap.decode) as stream:
            overlap.decode(None)  # for the last frame, which has no next one
            for result in stream:
                np.testing.assert_array_equal(result.answer["y"], 2 * X)
            assert repr(stream.plan) == "<Parallelism: 1 x 2 threads>"
    assert overlap.seen == [True] * 6


@pytest.mark.usefixtures("toy")
def test_a_stream_that_begins_before_the_gpu_is_verified_moves_to_it() -> None:
    with Session(toy_bundle(), device="gpu", threads=2) as session:
        with session.stream([{"x": X}] * 2) as stream:
            assert len(list(stream)) == 2
            assert repr(stream.plan) == "<Parallelism: 1 x 2 threads>"
        assert settled(session).active.device == "GPU (Toy)"


def test_a_budget_moves_between_devices(toy: Path) -> None:
    """A GPU that becomes slow says nothing of the CPU, whose time was measured beside it."""
    now_s = [0.0]
    with Session(toy_bundle(), device="gpu", threads=1) as session:
        settled(session)
        (toy / "fault").write_text("slow")
        with Budget(session, Latency(40.0), clock=lambda: now_s[0]) as budget:
            assert budget.active == "toy-fp32@gpu"

            def answers(count: int, infer_s: float) -> None:
                for _ in range(count):
                    now_s[0] += 0.1
                    budget.took({"infer": infer_s})

            answers(40, 0.06)
            assert budget.active == "toy-fp32"
            (switch,) = budget.history
            assert (switch.from_, switch.to) == ("toy-fp32@gpu", "toy-fp32")
            assert switch.reason == "60 ms (p95) missed the contract of 40 ms"
            np.testing.assert_array_equal(budget.run({"x": X})["y"], 2 * X)
