from __future__ import annotations

import pytest

from edgekit.compiler.passes.canonical_opset import canonical_opset
from edgekit.compiler.passes.static_shapes import static_shapes
from edgekit.compiler.passes.write_out_newer import write_out_newer
from tests.compiler.passes.meaning import answers, assert_same, model_of, ops

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        (
            """g (float[2,5,3] x) => (float[2,5,3] y) { a = Constant <value = int64 {1}> ()
            y = CumProd (x, a) }""",
            26,
        ),
        (
            """g (float[2,5,3] x) => (float[2,5,3] y) { a = Constant <value = int64 {-2}> ()
            y = CumProd <exclusive=1, reverse=1> (x, a) }""",
            26,
        ),
        (
            """g (float[2,6,3] x, float[2,2,3] u) => (float[2,6,3] y) {
            i = Constant <value = int64[2] {1, 3}> ()
            y = TensorScatter (x, u, i) }""",
            24,
        ),
        (
            """g (float[2,6,3] x, float[2,4,3] u) => (float[2,6,3] y) {
            i = Constant <value = int64[2] {1, 4}> ()
            y = TensorScatter <mode = "circular"> (x, u, i) }""",
            24,
        ),
        (
            """g (float[2,1,3,4] q, float[2,1,5,4] k, float[2,1,5,4] v) => (float[2,1,3,4] y) {
            n = Constant <value = int64[2] {3, 5}> ()
            y = Attention (q, k, v, , , , n) }""",
            24,
        ),
    ],
)
def test_the_meaning_is_kept(text: str, opset: int) -> None:
    model = model_of(text, opset=opset)
    want = answers(model)
    static_shapes(model)
    assert write_out_newer(model)
    assert not {"CumProd", "TensorScatter", "Attention"} & set(ops(model))
    assert_same(want, model)


def test_what_opset_23_has_stays() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { y = Relu (x) }", opset=25)
    static_shapes(model)
    assert not write_out_newer(model)


def test_bits_of_an_integer_are_cast() -> None:
    model = model_of("g (int8[2] x) => (uint8[2] y) { y = BitCast <to = 2> (x) }", opset=26)
    want = answers(model)
    static_shapes(model)
    assert write_out_newer(model)
    assert ops(model) == ["Cast"]
    assert_same(want, model)


def test_bits_of_a_float_stay_and_keep_their_opset() -> None:
    model = model_of("g (float[2] x) => (int32[2] y) { y = BitCast <to = 6> (x) }", opset=26)
    static_shapes(model)
    assert not write_out_newer(model)
    canonical_opset(model)
    assert model.graph.opset_imports[""] == 26
