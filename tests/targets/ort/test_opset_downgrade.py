"""A model gets an older opset where that says the same, and keeps its own where not."""

from __future__ import annotations

import onnx
import pytest
from edgekit_ort.opset_downgrade import with_older_opset

from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.model.reference import Reference
from tests.fixtures.models import SMALL_CNN, parse
from tests.targets.engine_trial import feeds, with_shapes

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
