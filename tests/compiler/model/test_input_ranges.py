"""Ranges of small graphs, and of one that does what BERT's embeddings do."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from edgekit.compiler.model.input_ranges import input_ranges
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.passes import run_passes


def ranges(folder: Path, text: str, opset: int = 17) -> dict[str, tuple[float, float]]:
    path = folder / "model.onnx"
    path.write_bytes(
        parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g {text}').SerializeToString()
    )
    model = open_model(path)
    run_passes(model)
    return {name: (given.low, given.high) for name, given in input_ranges(model).items()}


TABLE = "float[5,2] table = {0,1,2,3,4,5,6,7,8,9}, float[2,2] u = {0,0,0,0}"
ONE = "int64 one = {1}, int64 two = {2}, int64 four = {4}, int64 nine = {9}, int64 zero = {0}"
MORE = "int64 five = {5}, int64[2] at = {0,3}, float[3] small = {0,1,2}, int64 depth = {7}"
LIMITS = "float one_ = {1}, float[2] v = {0,1}, int64 ten = {10}, int64 pad = {-100}, float ten_ = {10}"


@pytest.mark.parametrize(
    ("x", "nodes", "expected"),
    [
        # An index of a table, as it is and behind ops that keep its values.
        ("int64[3]", "y = Gather(table, x)", (0, 4)),
        ("int64[3]", "y = Gather<axis=1>(table, x)", (0, 1)),
        ("int32[3,1]", "a = Cast<to=7>(x)  b = Flatten(a)  y = Gather(table, b)", (0, 4)),
        ("float[3]", "a = Cast<to=7>(x)  y = Gather(table, a)", (0, 4)),
        # Shifted and scaled: 0 <= x - 1 <= 4, 0 <= 4 - x <= 4, 0 <= 2 x + 1 <= 4.
        ("int64[3]", "a = Sub(x, one)  y = Gather(table, a)", (1, 5)),
        ("int64[3]", "a = Sub(four, x)  y = Gather(table, a)", (0, 4)),
        ("int64[3]", "a = Mul(x, two)  b = Add(a, one)  y = Gather(table, b)", (0, 1)),
        ("int64[3]", "a = Neg(x)  y = Gather(table, a)", (-4, 0)),
        # Two features share a table by offsets 0 and 3.
        ("int64[1,2]", "a = Add(x, at)  y = Gather(table, a)", (0, 1)),
        # As torch writes an index that may be negative.
        ("int64[3]", "c = Less(x, zero)  a = Add(x, five)  b = Where(c, a, x)  y = Gather(table, b)", (0, 4)),
        # The smallest of two tables.
        ("int64[3]", "y = Gather(table, x)  z = Gather(small, x)", (0, 2)),
        ("int64[3]", "y = OneHot(x, depth, v)", (0, 6)),
        ("int64[2,1]", "y = ScatterND(table, x, u)", (0, 4)),
        ("int64[2,2]", "y = GatherND(table, x)", (0, 1)),
        ("int64[2,2]", "y = GatherElements(table, x)", (0, 4)),
        ("int64[2,2]", "y = GatherElements<axis=-1>(table, x)", (0, 1)),
        ("int64[2,2]", "y = ScatterElements(table, x, u)", (0, 4)),
        # Compared with constants: both answers come up.
        ("int64[3]", "y = Greater(x, ten)", (0, 11)),
        ("int64[3]", "y = Equal(x, pad)", (-101, 1)),
        # Neither an index nor compared: a mask.
        ("int64[3]", "a = Cast<to=1>(x)  y = Sub(one_, a)", None),
        # A comparison of floats says nothing of their range.
        ("float[3]", "y = Greater(x, ten_)", None),
        # No number fits both uses.
        ("int64[3]", "y = Gather(table, x)  a = Sub(x, nine)  z = Gather(table, a)", None),
    ],
)
def test_the_range_of_an_input(tmp_path: Path, x: str, nodes: str, expected: tuple[int, int] | None) -> None:
    outputs = "y, z" if "z = " in nodes else "y"
    text = f"({x} x) => ({outputs}) <{TABLE}, {ONE}, {MORE}, {LIMITS}> {{ {nodes} }}"
    assert ranges(tmp_path, text).get("x") == expected


BERT = """
(int64[1,8] input_ids, int64[1,8] attention_mask, int64[1,8] token_type_ids) => (y)
<float[1] one = {1}, float[1] far = {-10000}, int64[2] axes = {1,2}, int64[1,8] at = {0,1,2,3,4,5,6,7},
 int64[2] words = {30522, 4}, int64[2] kinds = {2, 4}, int64[2] places = {512, 4}>
{
    word_table = ConstantOfShape<value = float[1] {0.5}>(words)
    kind_table = ConstantOfShape<value = float[1] {0.25}>(kinds)
    place_table = ConstantOfShape<value = float[1] {0.125}>(places)
    word = Gather(word_table, input_ids)
    kind = Gather(kind_table, token_type_ids)
    place = Gather(place_table, at)
    a = Add(word, kind)
    embedded = Add(a, place)
    turned = Transpose<perm=[0,2,1]>(embedded)
    scores = MatMul(embedded, turned)
    wide = Unsqueeze(attention_mask, axes)
    mask = Cast<to=1>(wide)
    masked = Sub(one, mask)
    bias = Mul(masked, far)
    scored = Add(scores, bias)
    y = Softmax(scored)
}"""


def test_berts_inputs(tmp_path: Path) -> None:
    assert ranges(tmp_path, BERT) == {"input_ids": (0, 30521), "token_type_ids": (0, 1)}


def test_a_range_says_why(tmp_path: Path) -> None:
    text = f"(int64[3] x) => (y) <{TABLE}> {{ [look] y = Gather(table, x) }}"
    ranges(tmp_path, text)
    model = open_model(tmp_path / "model.onnx")
    assert input_ranges(model)["x"].as_json() == {
        "range": [0, 4],
        "why": "node look uses it as an index  (Gather)",
    }
