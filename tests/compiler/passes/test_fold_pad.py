from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import ints_of
from edgekit.compiler.passes.fold_pad import fold_pad
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

W = np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32)
CONSTANTS = """
    p = Constant <value = int64[8] {0,0,1,0, 0,0,1,1}> ()   inf = Constant <value = float {-inf}> ()
    channels = Constant <value = int64[8] {0,1,0,0, 0,0,0,0}> ()   one = Constant <value = float {1.0}> ()
    crop = Constant <value = int64[8] {0,0,-1,0, 0,0,0,0}> ()   rows = Constant <value = int64[2] {1, 1}> ()
    axis = Constant <value = int64[1] {-2}> ()
"""


def conv(pad: str, attributes: str = "", shape: str = "1,3,6,5", source: str = "x") -> list[str]:
    text = f"""g (float[1,2,6,6] x) => (float[{shape}] y) {{ {CONSTANTS}
        n = Neg (x)  q = {pad}  y = Conv <kernel_shape=[3,3]{attributes}> (q, w) }}"""
    return rewritten(folded(text, w=W), fold_pad)


def test_into_conv() -> None:
    assert conv("Pad (n, p)") == ["Neg", "Conv"]
    assert conv("Pad (n, rows, , axis)", shape="1,3,6,4") == ["Neg", "Conv"]
    assert conv("Pad (n, p)", ", pads=[0,1,0,0]", shape="1,3,6,6") == ["Neg", "Conv"]


@pytest.mark.parametrize(
    ("pad", "attributes", "shape"),
    [
        ("Pad (n, p, one)", "", "1,3,6,5"),
        ('Pad <mode="edge"> (n, p)', "", "1,3,6,5"),
        ("Pad (n, crop)", "", "1,3,3,4"),
        ("Pad (n, p)", ', auto_pad="SAME_UPPER"', "1,3,8,7"),
    ],
)
def test_not_into_conv(pad: str, attributes: str, shape: str) -> None:
    assert conv(pad, attributes, shape) == ["Neg", "Pad", "Conv"]


def pool(op: str, pad: str, attributes: str = "", before: str = "Neg", shape: str = "1,2,6,5") -> list[str]:
    text = f"""g (float[1,2,6,6] x) => (float[{shape}] y) {{ {CONSTANTS}
        n = {before} (x)  q = {pad}  y = {op} <kernel_shape=[3,3]{attributes}> (q) }}"""
    return rewritten(folded(text), fold_pad)


def test_into_pools() -> None:
    assert pool("MaxPool", "Pad (n, p, inf)") == ["Neg", "MaxPool"]
    assert pool("MaxPool", "Pad (n, p)", before="Relu") == ["Relu", "MaxPool"]


@pytest.mark.needs_ort_after_1_23
def test_into_an_average_with_pads_that_differ() -> None:
    assert pool("AveragePool", "Pad (n, p)") == ["Neg", "AveragePool"]


def test_not_into_pools() -> None:
    assert pool("MaxPool", "Pad (n, p)") == [
        "Neg",
        "Pad",
        "MaxPool",
    ]  # a zero of the padding may be the maximum
    assert pool("AveragePool", "Pad (n, p, one)") == ["Neg", "Pad", "AveragePool"]
    averaged = pool("AveragePool", "Pad (n, p)", ", pads=[1,1,1,1]", shape="1,2,8,7")
    assert averaged == ["Neg", "Pad", "AveragePool"]  # its own padding does not count, the Pad's does
    assert pool("MaxPool", "Pad (n, p, inf)", ", ceil_mode=1") == ["Neg", "Pad", "MaxPool"]


def test_a_pad_that_others_read_stays() -> None:
    text = f"""g (float[1,2,6,6] x) => (float[1,3,6,5] y, float[1,2,8,7] q) {{ {CONSTANTS}
        q = Pad (x, p)  y = Conv (q, w) }}"""
    assert rewritten(folded(text, w=W), fold_pad) == ["Pad", "Conv"]


def test_the_amounts_add_up() -> None:
    text = f"""g (float[1,2,6,6] x) => (float[1,3,8,7] y) {{ {CONSTANTS}
        q = Pad (x, p)  y = Conv <pads=[1,1,1,1]> (q, w) }}"""
    model = folded(text, w=W)
    rewritten(model, fold_pad)
    assert ints_of(model.graph[0], "pads") == [2, 1, 2, 2]
