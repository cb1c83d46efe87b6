"""Integer weights become the floats that they stand for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.placement.kernels import find_kernels
from tests.fixtures.graphs import Graph, samples_for
from tests.fixtures.quant_rules import RULES, SHAPE

pytestmark = pytest.mark.needs_ort


def test_the_answers_are_the_same_and_the_layers_are_seen(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    rng = np.random.default_rng(0)
    weights = rng.integers(-127, 128, (4, 4, 1, 1)).astype(np.int8)
    scales = np.array([0.01, 0.02, 0.005, 0.1], np.float32)
    real = g("DequantizeLinear", weights, scales, np.zeros(4, np.int8), axis=0)
    conv = g("Conv", "x", real)
    scale, zero = np.array(0.1, np.float32), np.array(3, np.int8)
    pair = g("DequantizeLinear", g("QuantizeLinear", conv, scale, zero), scale, zero)
    model = g.model(tmp_path, g.conv(pair, 2, 4))
    before = save_model(model)
    other = with_float_weights(model)
    assert [node.op_type for node in other.graph] == ["Conv", "QuantizeLinear", "DequantizeLinear", "Conv"]
    assert conv in [kernel.name for kernel in find_kernels(other, RULES)]
    assert conv not in [kernel.name for kernel in find_kernels(model, RULES)]
    x = samples_for(model)[0]
    exact, found = Reference(model).run(x), Reference(other).run(x)
    assert all(np.array_equal(exact[name], found[name]) for name in exact)
    assert save_model(model) == before


def test_a_float_model_is_itself(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    model = g.model(tmp_path, g.conv("x", 4, 4))
    assert with_float_weights(model) is model
