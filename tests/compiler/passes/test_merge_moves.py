from __future__ import annotations

import pytest

from edgekit.compiler.passes.merge_moves import merge_moves
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort


def test_two_transposes_become_one() -> None:
    model = folded(
        "g (float[2,3,4] x) => (float[3,4,2] y) {"
        " a = Transpose <perm=[2,0,1]> (x)  y = Transpose <perm=[2,0,1]> (a) }"
    )
    assert rewritten(model, merge_moves) == ["Transpose"]


def test_transposes_that_cancel_vanish_also_as_a_chain_of_three() -> None:
    model = folded("""g (float[2,3,4] x) => (float[2,3,4] y) {
        n = Neg (x)
        a = Transpose <perm=[2,0,1]> (n)  b = Transpose <perm=[2,0,1]> (a)  c = Transpose <perm=[2,0,1]> (b)
        y = Relu (c)
    }""")
    assert rewritten(model, merge_moves) == ["Neg", "Relu"]


def test_a_chain_of_reshapes_is_the_last_one() -> None:
    model = folded("""g (float[2,3,1,4] x) => (float[1,24] y) {
        one = Constant <value = int64[1] {2}> ()
        s = Squeeze (x, one)  f = Flatten <axis=2> (s)
        zero = Constant <value = int64[2] {0, 3}> ()
        u = Unsqueeze (f, zero)
        shape = Constant <value = int64[2] {1, -1}> ()
        y = Reshape (u, shape)
    }""")
    assert rewritten(model, merge_moves) == ["Reshape"]


def test_a_value_that_others_read_is_not_fused_away() -> None:
    model = folded("""g (float[2,3] x) => (float[3,2] a, float[2,3] y) {
        a = Transpose <perm=[1,0]> (x)  y = Transpose <perm=[1,0]> (a)
    }""")
    assert rewritten(model, merge_moves) == ["Transpose", "Transpose"]


def test_a_sum_of_two_is_an_add() -> None:
    model = folded("g (float[2] x, float[2] z) => (float[2] y) { y = Sum (x, z) }")
    assert rewritten(model, merge_moves) == ["Add"]
