"""Quantization that bytes do not need is taken out, and only that."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from edgekit.compiler.lowering.byte_pairs import with_bytes_read
from edgekit.compiler.model.reference import Reference
from tests.targets.engine_trial import with_shapes

PAIR = """
<ir_version: 10, opset_import: ["": 23]>
pair (uint8[1,2,3,3] x) => (float[1,2,3,3] y)
    <float scale = {SCALE}, DTYPE zero = {ZERO}, float less = {LESS}>
{
    real = Cast<to=1>(x)
    below = Sub(real, less)
    q = QuantizeLinear(below, scale, zero)
    d = DequantizeLinear(q, scale, zero)
    y = Relu(d)
}
"""


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("scale", "dtype", "zero", "less", "left"),
    [
        ("1", "uint8", 127, "127", {"DequantizeLinear": 1, "Relu": 1}),
        ("1", "uint8", 0, "0", {"DequantizeLinear": 1, "Relu": 1}),
        ("1", "int8", -1, "127", {"DequantizeLinear": 2, "QuantizeLinear": 1, "Relu": 1}),
        ("0.5", "uint8", 127, "127", None),
        ("1", "uint8", 126, "127", None),
        ("1", "uint8", 127, "127.5", None),
    ],
)
def test_only_what_changes_nothing(
    scale: str, dtype: str, zero: int, less: str, left: dict[str, int] | None
) -> None:
    text = PAIR.replace("SCALE", scale).replace("DTYPE", dtype).replace("ZERO", str(zero))
    model = with_shapes(text.replace("LESS", less))
    read = with_bytes_read(model)
    if left is None:
        assert read is model
        return
    assert Counter(node.op_type for node in read.graph) == left
    assert all(value.uses() for value in read.graph.initializers.values())
    feeds = {"x": np.random.default_rng(0).integers(0, 256, (1, 2, 3, 3), dtype=np.uint8)}
    np.testing.assert_array_equal(Reference(read).run(feeds)["y"], Reference(model).run(feeds)["y"])
