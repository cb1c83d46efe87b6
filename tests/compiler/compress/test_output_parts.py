"""Parts of outputs that a Concat of unlike values makes."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.compress.output_parts import OutputSlice, find_parts
from edgekit.compiler.model.shape_inference import infer_shapes


def graph(body: str, outputs: str, inputs: str = "float[1,4,9] a, float[1,3,9] b") -> ir.Graph:
    text = f'<ir_version: 8, opset_import: ["": 13]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    return model.graph


PIXELS, SCORES = OutputSlice(1, 0, 4, "Mul"), OutputSlice(1, 4, 7, "Sigmoid")


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ("y = Identity (c)", [PIXELS, SCORES]),
        ("y = Transpose <perm=[0,2,1]> (c)", [OutputSlice(2, 0, 4, "Mul"), OutputSlice(2, 4, 7, "Sigmoid")]),
        ("s = Constant <value=int64[4] {1,7,3,3}>() y = Reshape (c, s)", [PIXELS, SCORES]),
        ("s = Constant <value=int64[2] {1,63}>() y = Reshape (c, s)", []),  # the axis is gone
        ("y = Relu (c)", []),  # no move: one kind of value again
    ],
)
def test_a_concat_of_unlike_values_makes_parts(moves: str, expected: list[OutputSlice]) -> None:
    body = f"p = Mul (a, a) q = Sigmoid (b) c = Concat <axis=1> (p, q) {moves}"
    found = find_parts(graph(body, "float y"))
    assert found == ({"y": expected} if expected else {})


def test_levels_are_no_parts() -> None:
    """A detection of one level may be missing in a few samples."""
    body = "p = Sigmoid (a) q = Sigmoid (b) y = Concat <axis=1> (p, q)"
    assert find_parts(graph(body, "float y")) == {}


def test_levels_that_each_have_parts() -> None:
    body = """
        p = Mul (a, a) q = Sigmoid (b) first = Concat <axis=1> (p, q)
        r = Mul (a, a) s = Sigmoid (b) second = Concat <axis=1> (r, s)
        y = Concat <axis=2> (first, second)"""
    assert find_parts(graph(body, "float y")) == {"y": [PIXELS, SCORES]}
