"""A session on a real engine, and what importing and running it may not do."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from edgekit.bundle import Bundle
from edgekit.errors import EngineError
from edgekit.runtime import Session
from tests.fixtures.bundles import X
from tests.fixtures.child_processes import run_python
from tests.fixtures.ort_bundles import DOUBLES, TURNS, onnx_bytes, ort_bundle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return ort_bundle(good=onnx_bytes(DOUBLES)).save(tmp_path / "ort.edgekit")


@pytest.mark.needs_ort
def test_a_real_engine_answers_the_golden_vectors(path: Path) -> None:
    with Session(path, threads=1) as session, Bundle.open(path) as bundle:
        feeds, expected = bundle.golden[0]
        answers = [session.run(feeds)["y"] for _ in range(3)]
        assert session.active.engine.startswith("ONNX Runtime ")
        assert (session.active.device, session.active.precision) == ("CPU", "fp32")
        assert not any(np.shares_memory(answers[0], later) for later in answers[1:])
    for answer in answers:
        np.testing.assert_array_equal(answer, expected["y"])


@pytest.mark.needs_ort
def test_a_session_is_opened_in_each_process(path: Path) -> None:
    with Session(path, threads=1) as session, pytest.raises(TypeError) as error:
        pickle.dumps(session)
    assert str(error.value) == "a Session can't be sent to another process; open one there"


@pytest.mark.needs_ort
def test_a_real_engines_failures_are_fallbacks() -> None:
    good = onnx_bytes(DOUBLES)
    bundle = ort_bundle(garbage=b"not a model", cut=good[:40], turned=onnx_bytes(TURNS), good=good)
    with Session(bundle, threads=1) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert [(hop.from_, hop.to) for hop in session.fallbacks] == [
            ("garbage", "cut"),
            ("cut", "turned"),
            ("turned", "good"),
        ]
        assert (
            session.fallbacks[2].reason == "it returned y float32 6x1; the model's outputs are y float32 1x6"
        )
    with pytest.raises(EngineError, match="garbage does not run: ONNX Runtime"):
        Session(bundle, strict=True, threads=1)


@pytest.mark.needs_ort
def test_a_real_engine_that_answers_nan_is_a_fallback() -> None:
    zero_by_zero = DOUBLES.replace("y = Add(x, x)", "z = Sub(x, x) y = Div(z, z)")
    with Session(ort_bundle(nan=onnx_bytes(zero_by_zero), good=onnx_bytes(DOUBLES)), threads=1) as session:
        np.testing.assert_array_equal(session.run({"x": X})["y"], 2 * X)
        assert [(hop.from_, hop.to) for hop in session.fallbacks] == [("nan", "good")]
        assert session.fallbacks[0].reason.startswith("6 of 6 values of output y are NaN or infinite")


def run_script(script: str, *arguments: str) -> list[str]:
    return run_python(script, *arguments, check=True).stdout.split()


def test_importing_the_runtime_draws_in_little() -> None:
    """What is slow to import, or is not for a device, is absent; numpy's own imports don't count."""
    script = (
        "import sys, numpy; before = set(sys.modules)\n"
        "import edgekit.runtime; print(*(set(sys.modules) - before))"
    )
    drawn = set(run_script(script))
    assert "edgekit.runtime.session" in drawn
    unwanted = {"click", "onnx", "onnx_ir", "onnxruntime", "openvino", "ai_edge_litert", "cv2", "PIL"}
    unwanted |= {"importlib.metadata", "email", "socket", "ssl", "http", "urllib.request", "html", "asyncio"}
    unwanted |= {
        "edgekit.build",
        "edgekit.compiler.model.onnx_file",
        "edgekit.compiler.evaluate.verify",
        "edgekit.processing.card",
        "edgekit.cli",
    }
    assert not drawn & unwanted
    assert not {name for name in drawn if name.startswith("edgekit_")}
