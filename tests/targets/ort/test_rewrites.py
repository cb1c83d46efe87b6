"""Forms that ONNX Runtime computes faster or at all: PRelu, QuickGelu, older opsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edgekit_ort.compile import compile_model
from edgekit_ort.fast_forms import LEAST_ELEMENTS, with_older_opset, with_prelu_written_out, with_quick_gelu
from edgekit_ort.quant_rules import rules
from edgekit_ort.run import open_session

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.target.installed_profiles import find_profile
from tests.fixtures.graphs import NEAREST, Graph, samples_for, seen, with_weights
from tests.fixtures.models import SMALL_CNN, parse
from tests.targets.engine_trial import feeds, with_shapes

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


def test_behind_integers_only(tmp_path: Path) -> None:
    g = Graph({"x": (1, 4, 8, 8)})
    first = g.conv("x", 4, 4)
    silu = g("Mul", first, g("Sigmoid", first))
    soft = g("Softmax", silu)
    beside = g("Mul", soft, g("Sigmoid", soft))
    model = g.model(tmp_path, g.conv(silu, 4, 4), beside)
    assert with_quick_gelu(model) is model
    given = rules(find_profile("ort"))
    made = emit(model, with_weights(model, place(model, given, seen(model), NEAREST), given), given)
    before = save_model(made)
    written = with_quick_gelu(made)
    assert [node.op_type for node in written.graph].count("QuickGelu") == 1
    assert [node.op_type for node in written.graph].count("Sigmoid") == 1
    assert save_model(made) == before
    x = samples_for(model)[0]
    exact, ours = Reference(made).run(x), Reference(written).run(x)
    step = max(float(np.abs(value).max()) for value in exact.values()) / 255
    assert all(np.abs(exact[name] - ours[name]).max() <= 2 * step for name in exact)


HEADER = '<ir_version: 11, opset_import: ["": 23]> g '
KEEP = {
    "an operator of opset 23": "(float[1,4] x, float[4] s) => (float[1,4] y) { y = RMSNormalization(x, s) }",
    "an attribute of opset 23": "(float[4] x, float s, uint8 z) => (uint8[4] y) "
    "{ y = QuantizeLinear<precision = 1>(x, s, z) }",
    "an element type of opset 22": "(bfloat16[4] x) => (bfloat16[4] y) { y = HardSwish(x) }",
    "averages that round up": "(float[1,1,5,5] x) => (float[1,1,3,3] y) "
    "{ y = AveragePool<kernel_shape = [2,2], strides = [2,2], ceil_mode = 1>(x) }",
    "a window left out": "(float[1,1,3,3] x) => (float[1,1,1,1] y) "
    "{ y = MaxPool<kernel_shape = [1,1], strides = [3,3], pads = [0,0,1,1], ceil_mode = 1>(x) }",
    "another meaning of the scale": "(float[1,4,2] x, float[4] s, float[4] b) => (float[1,4,2] y) "
    "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
    "an element type of opset 21": "(float[4] x, float s, int16 z) => (int16[4] y) "
    "{ y = QuantizeLinear(x, s, z) }",
    "one of these inside a branch": "(bool c, float[1,4] x, float[4] s) => (float[1,4] y) { y = If (c) <"
    "then_branch = a () => (float[1,4] p) { p = RMSNormalization(x, s) },"
    "else_branch = b () => (float[1,4] q) { q = Neg(x) }> }",
}


@pytest.mark.parametrize("text", KEEP.values(), ids=KEEP)
def test_what_opset_20_cannot_say_keeps_its_opset(text: str) -> None:
    model = parse(HEADER + text)
    assert with_older_opset(model) is model


@pytest.mark.needs_ort
def test_the_same_answer_and_a_valid_model() -> None:
    model = with_shapes(SMALL_CNN.replace('"": 17', '"": 23').replace("ir_version: 8", "ir_version: 11"))
    older = with_older_opset(model)
    assert (older.opset_imports[""], older.ir_version) == (20, 9)
    assert (model.opset_imports[""], model.ir_version) == (23, 11)
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(older)), full_check=True)
    given = feeds(model)
    expected, got = Reference(model).run(given), Reference(older).run(given)
    assert all((got[name] == expected[name]).all() for name in expected)


@pytest.mark.parametrize("rounds_up", [0, 1])
def test_pooling_that_leaves_no_window_out_is_the_same(rounds_up: int) -> None:
    size = 2 + rounds_up
    model = parse(
        HEADER + f"(float[1,1,5,5] x) => (float[1,1,{size},{size}] y) "
        f"{{ y = MaxPool<kernel_shape = [2,2], strides = [2,2], ceil_mode = {rounds_up}>(x) }}"
    )
    assert with_older_opset(model) is not model
