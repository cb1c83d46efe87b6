"""An older opset where it says the same; what changed between is kept or told."""

from __future__ import annotations

import onnx
import pytest

from edgekit.compiler.lowering.opset_downgrade import nodes_changed_since, with_opset
from edgekit.compiler.model.onnx_file import save_model
from tests.fixtures.models import parse

HEADER = '<ir_version: 11, opset_import: ["": 23]> g '


@pytest.mark.parametrize("opset", [18, 19, 20, 21, 22])
def test_a_plain_model_goes_to_every_opset(opset: int) -> None:
    model = parse(HEADER + "(float[1,4] x) => (float[1,4] y) { a = HardSwish(x)\n y = Softmax(a) }")
    older = with_opset(model, opset)
    assert older is not None
    assert older.opset_imports[""] == opset
    onnx.checker.check_model(onnx.ModelProto.FromString(save_model(older)), full_check=True)
    assert model.opset_imports[""] == 23


CHANGED = {
    "an operator of 20": (19, "(float[4] x) => (float[4] y) { y = Gelu(x) }"),
    "modes that were renamed in 20": (
        19,
        "(float[1,1,4,4] x, float[1,2,2,2] g) => (float[1,1,2,2] y) { y = GridSample(x, g) }",
    ),
    "a scale that became one a channel in 21": (
        20,
        "(float[1,4,2] x, float[4] s, float[4] b) => (float[1,4,2] y) "
        "{ y = GroupNormalization<num_groups = 2>(x, s, b) }",
    ),
    "an average over part of a window": (
        21,
        "(float[1,1,5,5] x) => (float[1,1,3,3] y) "
        "{ y = AveragePool<kernel_shape = [2,2], strides = [2,2], ceil_mode = 1>(x) }",
    ),
    "an operator of 23": (22, "(float[1,4] x, float[4] s) => (float[1,4] y) { y = RMSNormalization(x, s) }"),
}


@pytest.mark.parametrize(("opset", "text"), CHANGED.values(), ids=CHANGED)
def test_what_changed_has_no_older_form_and_is_named(opset: int, text: str) -> None:
    model = parse(HEADER + text)
    assert with_opset(model, opset) is None
    assert [node.op_type for node in nodes_changed_since(model, opset)] == [model.graph[0].op_type]
    if opset < 22 and "Average" not in text:
        assert nodes_changed_since(model, opset + 1) == []


def test_a_newer_attribute_that_says_the_default_is_left_out() -> None:
    text = "(float[4] x, float s, int8 z) => (int8[4] y) {{ y = QuantizeLinear<{}>(x, s, z) }}"
    older = with_opset(parse(HEADER + text.format("block_size = 0, output_dtype = 0")), 19)
    assert older is not None
    assert set(older.graph[0].attributes) <= {"axis", "saturate"}
    assert with_opset(parse(HEADER + text.format("block_size = 2")), 19) is None
