from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import dims_of, ints_of
from edgekit.compiler.passes.fold_focus import fold_focus
from tests.compiler.passes.meaning import folded, rewritten

pytestmark = pytest.mark.needs_ort

CONSTANTS = """
    zero = Constant <value = int64[1] {0}> ()  one = Constant <value = int64[1] {1}> ()
    two = Constant <value = int64[1] {2}> ()   rows = Constant <value = int64[1] {2}> ()
    columns = Constant <value = int64[1] {3}> ()  end = Constant <value = int64[1] {9223372036854775807}> ()
    both = Constant <value = int64[2] {2, 3}> ()  ends = Constant <value = int64[2] {99, 99}> ()
    oo = Constant <value = int64[2] {0, 0}> ()  oi = Constant <value = int64[2] {0, 1}> ()
    io = Constant <value = int64[2] {1, 0}> ()  ii = Constant <value = int64[2] {1, 1}> ()
    steps = Constant <value = int64[2] {2, 2}> ()
"""
YOLOX = """
    r0 = Slice (x, zero, end, rows, two)  r1 = Slice (x, one, end, rows, two)
    a = Slice (r0, zero, end, columns, two)  c = Slice (r0, one, end, columns, two)
    b = Slice (r1, zero, end, columns, two)  d = Slice (r1, one, end, columns, two)
"""
AT_ONCE = """
    a = Slice (x, oo, ends, both, steps)  b = Slice (x, io, ends, both, steps)
    c = Slice (x, oi, ends, both, steps)  d = Slice (x, ii, ends, both, steps)
"""
W = np.random.default_rng(0).standard_normal((5, 12, 3, 3)).astype(np.float32)


def left(slices: str, conv: str = "pads=[1,1,1,1]", order: str = "a, b, c, d", size: int = 4) -> list[str]:
    text = f"""g (float[1,3,8,8] x) => (float[1,5,{size},{size}] y) {{ {CONSTANTS} {slices}
        f = Concat <axis=1> ({order})  y = Conv <{conv}> (f, w) }}"""
    return rewritten(folded(text, w=W), fold_focus)


@pytest.mark.parametrize("order", ["a, b, c, d", "d, a, c, b"])
@pytest.mark.parametrize("slices", [YOLOX, AT_ONCE])
def test_the_slices_go_into_the_kernel(slices: str, order: str) -> None:
    assert left(slices, order=order) == ["Conv"]


def test_with_strides_and_without_padding() -> None:
    assert left(YOLOX, "strides=[2,2]", size=1) == ["Conv"]


@pytest.mark.parametrize(("conv", "order", "size"), [("dilations=[2,2], pads=[2,2,2,2]", "a, b, c, d", 4)])
def test_near_misses(conv: str, order: str, size: int) -> None:
    assert "Concat" in left(YOLOX, conv, order, size)


def test_a_quarter_that_comes_twice_is_no_focus() -> None:
    assert "Concat" in left(YOLOX, order="a, b, c, c")


def test_the_kernel_is_twice_as_large() -> None:
    text = f"""g (float[1,3,8,8] x) => (float[1,5,4,4] y) {{ {CONSTANTS} {YOLOX}
        f = Concat <axis=1> (a, b, c, d)  y = Conv <pads=[1,1,1,1], kernel_shape=[3,3]> (f, w) }}"""
    model = folded(text, w=W)
    fold_focus(model)
    conv = model.graph[0]
    assert dims_of(conv.inputs[1]) == (5, 3, 6, 6)
    assert [ints_of(conv, name) for name in ("kernel_shape", "strides", "pads")] == [
        [6, 6],
        [2, 2],
        [2, 2, 2, 2],
    ]
