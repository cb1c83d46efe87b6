"""What is compiled for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_ort import compile as ort

from edgekit.errors import UnsupportedError
from tests.fixtures.models import SMALL_CNN, parse
from tests.targets.engine_trial import feeds, load, product, profile, with_shapes

pytestmark = pytest.mark.needs_ort

NO_KERNEL = """
<ir_version: 10, opset_import: ["": 23, "my.own": 1]>
mixed (float[1,4] x, double[1,4] d) => (float[1,4] y, double[1,4] e, float[1,4] z, float[1,4] q)
{
    [fine] y = Relu(x)
    [wide] e = HardSigmoid(d)
    [strange] z = my.own.Thing(y)
    [second] t = my.own.Thing(y)
    [after] q = Relu(t)
}
"""


def test_fp16_halves_the_file_and_folds_at_load(tmp_path: Path) -> None:
    model = product()
    full = ort.compile_model(model, profile("ort"), "fp32")
    half = ort.compile_model(model, profile("ort"), "fp16")
    assert len(half.files["model.onnx"]) < 0.6 * len(full.files["model.onnx"])
    given = feeds(model)
    exact = load(model, "ort", tmp_path / "fp32").run(given)["y"]
    rounded = load(model, "ort", tmp_path / "fp16", "fp16").run(given)["y"]
    loss = np.linalg.norm(rounded - exact) / np.linalg.norm(exact)
    assert 1e-5 < loss < 1e-3  # rounded to 11 bits, and no worse


def test_nodes_without_a_kernel_are_all_named() -> None:
    found = ort.check_model(parse(NO_KERNEL), profile("ort"))
    assert [(f.code, f.severity, f.target, f.node, f.op, f.message) for f in found] == [
        ("EK1001", "error", "ort", "strange", "my.own.Thing", "no CPU kernel for float"),
        ("EK1001", "error", "ort", "second", "my.own.Thing", "no CPU kernel for float"),
    ]


def test_an_unsupported_model_is_refused_whole() -> None:
    with pytest.raises(UnsupportedError) as caught:
        ort.compile_model(parse(NO_KERNEL), profile("ort"), "fp32")
    assert str(caught.value) == (
        "ort can't run the model\n"
        "  EK1001  strange  my.own.Thing  no CPU kernel for float\n"
        "  EK1001  second   my.own.Thing  no CPU kernel for float"
    )
    assert len(caught.value.findings) == 2


def test_a_supported_model_has_no_findings() -> None:
    assert ort.check_model(with_shapes(SMALL_CNN), profile("ort")) == []


def test_a_model_that_stores_its_weights_as_integers_computes_with_floats() -> None:
    """ONNX Runtime would widen them at each run: MLPerf Tiny's keyword spotting took 1.4x the time."""
    model = with_shapes(
        '<ir_version: 10, opset_import: ["": 23]> stored (float[1,2] x) => (float[1,2] y) '
        "<int8[2,2] w = {1, 2, 3, 4}, float s = {0.5}> { r = DequantizeLinear(w, s) y = MatMul(x, r) }"
    )
    made = ort.compile_model(model, profile("ort"), "fp32")
    assert made.options == {"precision": "fp32", "widened_weights": True}
    assert "widened_weights" not in ort.compile_model(product(), profile("ort"), "fp32").options
