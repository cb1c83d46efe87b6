"""Tensors of seven axes: LiteRT loads what is written, or it is refused before it is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.compile import compile_model
from edgekit_tflite.run import open_runner

from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from tests.compiler.passes.meaning import Weight, answers, model_of, snr_db
from tests.targets.tflite.running import PROFILE

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]
SEVEN = "2,1,2,3,2,2,3"


@pytest.mark.parametrize(
    ("out", "node"),
    [
        (SEVEN, "Softmax <axis = -1> (x)"),
        (SEVEN, "LogSoftmax <axis = 2> (x)"),
        ("2,1,1,3,2,2,3", "ReduceSum (x, two)"),
        ("2,1,4,3,2,2,3", "Concat <axis = 2> (x, x)"),
        ("2,1,2,3,2,2,4", "MatMul (x, m)"),
        ("2,1,2,3,2,2,4", "Pad (x, pads)"),
        (SEVEN, "LayerNormalization (x, g)"),
        (SEVEN, "Relu (x)"),
        ("3,2,1,2,2,3,2", "Transpose <perm = [6, 5, 1, 4, 2, 3, 0]> (x)"),
    ],
)
def test_lowered(out: str, node: str, tmp_path: Path) -> None:
    weights: dict[str, Weight] = {
        "two": np.array([2]),
        "m": np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32),
        "pads": np.array([0] * 13 + [1]),
        "g": np.ones(3, np.float32),
    }
    names = node.partition("(")[2].strip(")").split(", ")
    used = {name: weight for name, weight in weights.items() if name in names}
    model = model_of(f"g (float[{SEVEN}] x) => (float[{out}] y) {{ y = {node} }}", 23, **used)
    inputs, outputs = signature(model)
    (want, _), feeds = answers(model), np.random.default_rng(0).standard_normal(inputs[0].shape)
    run_passes(model)
    artifact = compile_model(model, PROFILE, "fp32")
    paths = {}
    for name, content in artifact.files.items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(bytes(content))
    runner = open_runner(paths, inputs, outputs, artifact.options, 1)
    assert snr_db(want["y"], runner.run({"x": feeds.astype(np.float32)})["y"]) > 100


def test_axes_that_do_not_merge_are_refused() -> None:
    pads = np.array([0, 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0])
    model = model_of("g (float[2,2,2,2,2,2,2] x) => (float[2,3,2,3,2,3,2] y) { y = Pad (x, p) }", p=pads)
    run_passes(model)
    with pytest.raises(UnsupportedError, match=r"EK1002 .* supports 6 axes, but the data has 7"):
        compile_model(model, PROFILE, "fp32")
