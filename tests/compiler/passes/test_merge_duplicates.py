from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.merge_duplicates import merge_duplicates
from tests.compiler.passes.meaning import model_of, rewritten

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
