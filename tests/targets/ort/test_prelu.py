"""A written-out PRelu gives the same bits, also of infinities. The scoreboard measures what it gains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_ort.compile import compile_model
from edgekit_ort.prelu import LEAST_ELEMENTS, with_prelu_written_out
from edgekit_ort.run import open_session

from edgekit.compiler.model.onnx_file import save_model
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort

SHAPE = (1, 16, 32, 32)
SLOPES = np.linspace(-4, 12, 16, dtype=np.float32).reshape(16, 1, 1)


def test_the_result_is_equal_bit_for_bit(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    model = g.model(tmp_path, g("PRelu", "x", SLOPES))
    written = with_prelu_written_out(model)
    assert sorted(node.op_type for node in written.graph) == ["Mul", "Neg", "Relu", "Relu", "Sub"]
    x = np.random.default_rng(0).normal(0, 3, SHAPE).astype(np.float32)
    x[0, :, 0, :6] = [0.0, -0.0, np.inf, -np.inf, 3e38, 1e-42]
    with np.errstate(over="ignore"):
        expected = np.where(x > 0, x, x * SLOPES)
    expected[x == 0] = 0.0
    for optimize in (False, True):
        (result,) = open_session(save_model(written), 1, optimize=optimize).run(None, {"x": x})
        np.testing.assert_array_equal(result, expected)


def test_small_ones_and_other_types_stay(tmp_path: Path) -> None:
    small = Graph({"x": (1, 16, 4, 4)})
    assert LEAST_ELEMENTS > 16 * 4 * 4
    model = small.model(tmp_path, small("PRelu", "x", SLOPES))
    assert with_prelu_written_out(model) is model
    g = Graph({"x": SHAPE})
    double = g("Cast", "x", to=11)
    model = g.model(tmp_path, g("Cast", g("PRelu", double, SLOPES.astype(np.float64)), to=1))
    assert with_prelu_written_out(model) is model


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_compiled_networks_have_it_and_the_source_stays(tmp_path: Path, precision: str) -> None:
    g = Graph({"x": SHAPE})
    model = g.model(tmp_path, g.conv(g("PRelu", g.conv("x", 16, 16, 3), SLOPES), 8, 16))
    before = save_model(model)
    content = bytes(compile_model(model, find_profile("ort"), precision).files["model.onnx"])
    assert "PRelu" not in {node.op_type for node in onnx.load_from_string(content).graph.node}
    assert save_model(model) == before
    x = np.random.default_rng(0).normal(0, 1, SHAPE).astype(np.float32)
    (exact,) = open_session(before, 1).run(None, {"x": x})
    (result,) = open_session(content, 1).run(None, {"x": x})
    np.testing.assert_allclose(result, exact, rtol=1e-2 if precision == "fp16" else 1e-6, atol=1e-2)
