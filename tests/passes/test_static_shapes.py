from __future__ import annotations

import onnx_ir as ir
import pytest

from edgekit.passes.rewriting import dims_of
from edgekit.passes.static_shapes import static_shapes
from tests.passes.meaning import model_of

pytestmark = pytest.mark.needs_ort


def test_stale_shapes_are_replaced() -> None:
    model = model_of("g (float[2,3] x) => (float[3,2] y) { n = Neg (x)  y = Transpose (n) }")
    assert not static_shapes(model)
    model.graph[0].outputs[0].shape = ir.Shape([7, 7])
    assert static_shapes(model)
    assert dims_of(model.graph[0].outputs[0]) == (2, 3)
