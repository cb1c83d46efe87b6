from __future__ import annotations

import numpy as np
import pytest

from edgekit.passes.explicit_padding import explicit_padding
from edgekit.passes.rewriting import ints_of
from tests.passes.meaning import model_of, rewritten

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("rule", "size", "attributes", "out", "pads"),
    [
        ("SAME_UPPER", 8, "strides=[2,2]", 4, [0, 0, 1, 1]),
        ("SAME_LOWER", 8, "strides=[2,2]", 4, [1, 1, 0, 0]),
        ("SAME_UPPER", 7, "strides=[1,1]", 7, [1, 1, 1, 1]),
        ("VALID", 7, "strides=[2,2]", 3, [0, 0, 0, 0]),
    ],
)
def test_conv(rule: str, size: int, attributes: str, out: int, pads: list[int]) -> None:
    text = f"""g (float[1,2,{size},{size}] x) => (float[1,3,{out},{out}] y) {{
        y = Conv <auto_pad="{rule}", {attributes}> (x, w) }}"""
    model = model_of(text, w=np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32))
    assert rewritten(model, explicit_padding) == ["Conv"]
    assert ints_of(model.graph[0], "pads") == pads
    assert "auto_pad" not in model.graph[0].attributes


def test_a_dilated_kernel_reaches_further() -> None:
    """ONNX Runtime has no such Conv; the numbers are those of ONNX's formula."""
    text = """g (float[1,1,7] x) => (float[1,1,7] y) { y = Conv <auto_pad="SAME_UPPER", dilations=[2]> (x, w)
    }"""
    model = model_of(text, w=np.ones((1, 1, 3), np.float32))
    assert explicit_padding(model)
    assert ints_of(model.graph[0], "pads") == [2, 2]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(op: str) -> None:
    model = model_of(f"""g (float[1,2,8,8] x) => (float[1,2,4,4] y) {{
        y = {op} <auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,2]> (x) }}""")
    assert rewritten(model, explicit_padding) == [op]
    assert ints_of(model.graph[0], "pads") == [0, 0, 1, 1]


def test_numbers_stay() -> None:
    text = "g (float[1,1,8] x) => (float[1,1,8] y) { y = MaxPool <kernel_shape=[3], pads=[1,1]> (x) }"
    assert rewritten(model_of(text), explicit_padding) == ["MaxPool"]
