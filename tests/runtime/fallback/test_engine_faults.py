"""Each real engine, each way it fails: another real engine answers, within the deadline, and says why.

The engine that fails is the real one, but for its fault: its files are cut short, its package is missing, or
what it answers is changed on the way out. What must kill a process does so in a real child process.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.errors import install_line
from edgekit.runtime import Session
from edgekit.target import Runner, registry
from edgekit.tensor_spec import Array

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino, pytest.mark.needs_tflite]

ENGINES = ("ort", "openvino", "tflite")
PACKAGES = {"ort": "onnxruntime", "openvino": "openvino", "tflite": "ai_edge_litert"}
DEADLINE_S = 2.0
"""Generous, for a busy machine; a model of microseconds has half of it before it is left behind."""
let_go = threading.Event()


def throws(answers: dict[str, Array]) -> dict[str, Array]:
    raise RuntimeError("kernel died")


def hangs(answers: dict[str, Array]) -> dict[str, Array]:
    let_go.wait()
    return answers


def nan(answers: dict[str, Array]) -> dict[str, Array]:
    return {name: np.full_like(array, np.nan) for name, array in answers.items()}


def turned(answers: dict[str, Array]) -> dict[str, Array]:
    return {name: np.ascontiguousarray(array.T) for name, array in answers.items()}


RUNNING = {
    "throws": (throws, "RuntimeError: kernel died"),
    "hangs": (hangs, "no result after "),
    "NaN": (nan, "4 of 4 values of output scores are NaN or infinite"),
    "wrong shapes": (turned, "it returned scores float32 4x1"),
}
LOADING = {
    "missing": "{engine} is not installed ({install})",
    "cut short": "did not load ",
    "hangs loading": "it did not load within 2 s",
    "segfaults": "it crashed the probe process (SIGSEGV)",
}
DIES = """
import ctypes
def __getattr__(name):
    if name == "__version__":
        return "1.0"
    ctypes.string_at(0)
"""
"""A package that is there, says its version, and reads address 0 when it is used."""


class Faulty:
    """A real runner whose answers a fault changes."""

    def __init__(self, runner: Runner) -> None:
        self.runner, self.device, self.precision = runner, runner.device, runner.precision
        self.fault: Callable[[dict[str, Array]], dict[str, Array]] = dict

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self.fault(self.runner.run(feeds))

    def close(self) -> None:
        self.runner.close()


@pytest.fixture
def truth(three_engines: Path) -> Iterator[tuple[Bundle, dict[str, Array], Mapping[str, Array]]]:
    with Bundle.open(three_engines) as bundle:
        feeds, expected = bundle.golden[0]
        yield bundle, dict(feeds), expected


def first(bundle: Bundle, engine: str, **changed: bytes) -> Bundle:
    """The bundle with this engine's variant measured fastest, and files of it changed."""
    times = {name: 1.0 if name == engine else 10.0 for name in ENGINES}
    variants = [
        v._replace(evidence={**v.evidence, "timing": {"p50_ms": times[v.target]}}) for v in bundle.variants
    ]
    manifest = {**bundle.manifest, "variants": [variant.as_json() for variant in variants]}
    entries = {entry["name"]: bytes(bundle.read(entry["name"])) for entry in bundle.manifest["entries"]}
    return Bundle.create(manifest, entries | changed)


def variant_of(bundle: Bundle, engine: str) -> Variant:
    return next(v for v in bundle.variants if v.target == engine)


def answers_in_time(
    session: Session, engine: str, feeds: dict[str, Array], expected: Mapping[str, Array], why: str
) -> None:
    answers = session.run(feeds)
    for name, array in expected.items():
        np.testing.assert_allclose(answers[name], array, atol=1e-5)
    assert variant_of(session.bundle, engine).name == session.fallbacks[0].from_
    assert session.active.variant != session.fallbacks[0].from_
    assert why in session.fallbacks[0].reason
    assert session.fallbacks[0].cost


@pytest.mark.parametrize("fault", RUNNING)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fault_while_it_runs(
    truth: tuple[Bundle, dict[str, Array], Mapping[str, Array]],
    engine: str,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bundle, feeds, expected = truth
    behaviour, why = RUNNING[fault]
    real, open_runner = registry.engine(engine), registry.engine(engine).open_runner

    monkeypatch.setattr(real, "open_runner", lambda *given: Faulty(open_runner(*given)))
    let_go.clear()
    try:
        with Session(first(bundle, engine), threads=1, deadline_ms=1000 * DEADLINE_S) as session:
            session.run(feeds)
            assert session.active.engine == real.engine_version()
            assert session.fallbacks == ()
            faulty = session.runner._runner  # type: ignore[attr-defined]
            faulty.fault = behaviour
            answers_in_time(session, engine, feeds, expected, why)
    finally:
        let_go.set()


@pytest.mark.parametrize("fault", LOADING)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fault_while_it_is_loaded(
    truth: tuple[Bundle, dict[str, Array], Mapping[str, Array]],
    engine: str,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    bundle, feeds, expected = truth
    changed = {}
    let_go.clear()
    if fault == "missing":
        monkeypatch.setitem(sys.modules, PACKAGES[engine], None)
        monkeypatch.setitem(sys.modules, "tflite_runtime", None)
    elif fault == "cut short":
        (entry,) = (e for f, e in variant_of(bundle, engine).files.items() if not f.endswith(".bin"))
        changed[entry] = bytes(bundle.read(entry))[:100]
    elif fault == "hangs loading":
        real, open_runner = registry.engine(engine), registry.engine(engine).open_runner
        monkeypatch.setattr("edgekit.runtime.deadline.deadline.LOAD_S", 0.0)
        monkeypatch.setattr(real, "open_runner", lambda *given: (let_go.wait(), open_runner(*given))[1])
    else:
        package = tmp_path / PACKAGES[engine]
        package.mkdir()
        (package / "__init__.py").write_text(DIES)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    try:
        with Session(
            first(bundle, engine, **changed),
            threads=1,
            deadline_ms=1000 * DEADLINE_S,
            probe=fault == "segfaults",
        ) as session:
            reason = LOADING[fault].format(engine=engine, install=install_line(engine))
            answers_in_time(session, engine, feeds, expected, reason)
    finally:
        let_go.set()
