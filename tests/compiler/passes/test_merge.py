"""Equal nodes become one, and so do moves of data."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.merge_duplicates import merge_duplicates
from edgekit.compiler.passes.merge_moves import merge_moves
from tests.compiler.passes.meaning import folded, model_of, rewritten

pytestmark = pytest.mark.needs_ort


def test_equal_nodes_and_equal_weights_become_one() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) {"
        " a = Sigmoid (x)  b = Sigmoid (x)  p = Mul (a, v)  q = Add (b, w)  y = Sub (p, q) }",
        v=[0.5],
        w=[0.5],
    )
    assert rewritten(model, merge_duplicates) == ["Sigmoid", "Mul", "Add", "Sub"]
    assert list(model.graph.initializers) == ["v"]


def test_two_equal_outputs_keep_their_names() -> None:
    model = model_of("g (float[2] x) => (float[2] y, float[2] z) { y = Neg (x)  z = Neg (x) }")
    assert rewritten(model, merge_duplicates) == ["Neg", "Identity"]


def test_other_attributes_are_other_nodes() -> None:
    model = model_of(
        "g (float[2] x) => (float[2] y) { a = Elu <alpha=1.0> (x)  b = Elu <alpha=2.0> (x)  y = Add (a, b) }"
    )
    assert rewritten(model, merge_duplicates) == ["Elu", "Elu", "Add"]


def test_large_equal_weights_become_one_and_nearly_equal_ones_stay() -> None:
    w = np.random.default_rng(0).standard_normal((40, 40)).astype(np.float32)
    w[0, 1] = 0.0
    other = w.copy()
    other[0, 1] = -0.0  # another number for 1 / x
    model = model_of(
        "g (float[2,40] x) => (float[2,40] y) {"
        " a = MatMul (x, w)  b = MatMul (a, same)  y = MatMul (b, other) }",
        w=w,
        same=w.copy(),
        other=other,
    )
    assert rewritten(model, merge_duplicates) == ["MatMul"] * 3
    assert list(model.graph.initializers) == ["w", "other"]


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
