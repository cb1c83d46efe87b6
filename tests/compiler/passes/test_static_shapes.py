from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.rewriting import dims_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes.static_shapes import static_shapes
from tests.compiler.passes.meaning import model_of

pytestmark = pytest.mark.needs_ort


def test_stale_shapes_are_replaced() -> None:
    model = model_of("g (float[2,3] x) => (float[3,2] y) { n = Neg (x)  y = Transpose (n) }")
    assert not static_shapes(model)
    model.graph[0].outputs[0].shape = ir.Shape([7, 7])
    assert static_shapes(model)
    assert dims_of(model.graph[0].outputs[0]) == (2, 3)


def test_what_a_decided_if_gives_is_known() -> None:
    model = model_of(
        """g (float[2,3] x) => (float[a,b] y) {
        yes = Constant <value = bool {1}> ()
        shape = If (yes) <then_branch = t () => (int64[2] p) { p = Constant <value = int64[2] {3, 2}> () },
                          else_branch = e () => (int64[1] q) { q = Constant <value = int64[1] {6}> () }>
        y = Reshape (x, shape)
    }"""
    )
    assert model.graph.outputs[0].shape == (3, 2)


def test_what_has_no_element_is_known() -> None:
    model = model_of(
        """g (float[2,0,4] x) => (float[a,b] y) {
        axes = Constant <value = int64[1] {1}> ()
        y = ReduceMax <keepdims = 0> (x, axes)
    }"""
    )
    known = infer_shapes(model).constants
    np.testing.assert_array_equal(known[model.graph.outputs[0]], np.full((2, 4), -np.inf, np.float32))
