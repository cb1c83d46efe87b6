"""Div, Reciprocal and Log at their poles, where ncnn's own layers return NaN."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ncnn import compile as host
from edgekit_ncnn import run

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.passes import run_passes
from edgekit.target import Artifact
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array

pytestmark = pytest.mark.needs_ncnn

EDGES = [0.0, 1.0, -2.0, np.inf, -np.inf, np.nan, 1e-30, 1e30, 0.5]
NUMBERS = np.array([*EDGES, *EDGES, 4.0], np.float32)  # whole vectors of any width, and a rest


def compiled(body: str, inputs: str) -> tuple[ir.Model, Artifact]:
    text = f'<ir_version: 10, opset_import: ["": 23]> net ({inputs}) => (float[19] y) {{ {body} }}'
    model = open_bytes(ir.to_proto(ir.from_onnx_text(text)).SerializeToString(), "net.onnx", {})
    run_passes(model)
    return model, host.compile_model(model, find_profile("ncnn"), "fp32")


def computed(folder: Path, body: str, feeds: dict[str, Array]) -> Array:
    model, artifact = compiled(body, ", ".join(f"float[19] {name}" for name in feeds))
    runner = run.open_runner(write_files(artifact, folder), *signature(model), artifact.options, 1)
    return runner.run(feeds)["y"]


@pytest.mark.parametrize(
    ("body", "expected", "numbers"),
    [
        # A number over infinity is NaN, a known limit.
        ("y = Reciprocal(x)", lambda x: 1 / x, np.where(np.isinf(NUMBERS), 2, NUMBERS)),
        ("y = Log(x)", np.log, NUMBERS),
        ("y = Div(x, x)", lambda x: x / x, NUMBERS),
    ],
)
def test_infinities_and_nan_are_where_numpy_has_them(
    tmp_path: Path, body: str, expected: Callable[[Array], Array], numbers: Array
) -> None:
    with np.errstate(all="ignore"):
        right = expected(numbers)
    result = computed(tmp_path, body, {"x": numbers})
    np.testing.assert_array_equal(np.isnan(result), np.isnan(right))
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-37)


def test_a_quotient_of_zero_has_the_sign_of_the_dividend(tmp_path: Path) -> None:
    dividends = np.resize(np.array([3.0, -3.0, 0.0, np.inf, -np.inf], np.float32), 19)
    result = computed(tmp_path, "y = Div(a, b)", {"a": dividends, "b": np.zeros(19, np.float32)})
    np.testing.assert_array_equal(result, np.resize([np.inf, -np.inf, np.nan, np.inf, -np.inf], 19))


@pytest.mark.parametrize(
    "divisor",
    [
        "e = Exp(b)\ns = Add(e, one)",
        "r = Relu(b)\nq = Sqrt(r)\ns = Add(q, one)",
        "m = Mul(b, b)\ns = Max(m, one)",
        "s = Clip(b, one)",
    ],
)
def test_a_divisor_above_zero_needs_one_layer(divisor: str) -> None:
    inputs = "float[19] a, float[19] b) => (float[19] y) <float one = {0.5}"
    text = f'<ir_version: 10, opset_import: ["": 23]> net ({inputs}> {{ {divisor}\ny = Div(a, s) }}'
    model = open_bytes(ir.to_proto(ir.from_onnx_text(text)).SerializeToString(), "net.onnx", {})
    run_passes(model)
    layers = host.compile_model(model, find_profile("ncnn"), "fp32").facts["layers"]
    assert layers["BinaryOp"] <= 3
    unknown = text.replace(", s)", ", b)")
    model = open_bytes(ir.to_proto(ir.from_onnx_text(unknown)).SerializeToString(), "net.onnx", {})
    run_passes(model)
    assert host.compile_model(model, find_profile("ncnn"), "fp32").facts["layers"]["BinaryOp"] > 5
