from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.lowering.shared_transposes import with_shared_transposes
from edgekit.compiler.model.onnx_file import save_model
from tests.compiler.passes.meaning import answers, model_of, ops

pytestmark = pytest.mark.needs_ort

W = np.random.default_rng(0).standard_normal((30, 50)).astype(np.float32)
TEXT = "g (float[2,50] x) => (float[2,50] y) { a = MatMul (x, turned)  y = MatMul (a, w) }"


def test_a_matrix_in_both_orientations_is_stored_once() -> None:
    model = model_of(TEXT, w=W, turned=np.ascontiguousarray(W.T))
    before = save_model(model)
    made = with_shared_transposes(model)
    assert ops(made) == ["Transpose", "MatMul", "MatMul"]
    assert len(made.graph.initializers) == 1
    assert save_model(model) == before
    for wanted, got in zip(answers(model), answers(made), strict=True):
        np.testing.assert_array_equal(wanted["y"], got["y"])


def test_another_matrix_stays() -> None:
    other = np.ascontiguousarray(W.T)
    other[3, 4] += 1
    model = model_of(TEXT, w=W, turned=other)
    assert with_shared_transposes(model) is model
