"""Windows lie where ONNX's pads put them, and are counted as ONNX's reference counts them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.sliding_windows import conv_window, divisors, transposed_window, window
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array
from tests.compiler.lowering.node_inputs import reference


def ints(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@given(ints(1, 9), ints(1, 4), ints(1, 3), ints(1, 2), ints(0, 3), ints(0, 3), st.integers(0, 1))
def test_sums_over_windows_are_those_of_the_reference(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    begin: tuple[int, int],
    end: tuple[int, int],
    include: int,
) -> None:
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    assume(all(n + b + e >= r for n, b, e, r in zip(size, begin, end, reach, strict=True)))
    assume(all(p < k for p, k in zip((*begin, *end), (*kernel, *kernel), strict=True)))
    out = [(n + b + e - r) // s + 1 for n, b, e, r, s in zip(size, begin, end, reach, stride, strict=True)]
    frame = window(size, out, kernel, stride, dilation, "NOTSET", [*begin, *end])
    counts = divisors(frame, bool(include))
    assert counts.shape == tuple(out)
    data = np.arange(np.prod(size), dtype=np.float32).reshape(1, 1, *size) + 1
    wanted = reference(
        "AveragePool", data, kernel_shape=kernel, strides=stride, dilations=dilation, pads=[*begin, *end],
        count_include_pad=include,
    )  # fmt: skip
    inside = counts > 0
    got = sums(data[0, 0], frame.pads, kernel, stride, dilation, tuple(out)) / np.maximum(counts, 1)
    np.testing.assert_allclose(got[inside], wanted[0, 0][inside], rtol=1e-5)


def sums(
    data: Array,
    pads: tuple[tuple[int, int], ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    out: tuple[int, ...],
) -> Array:
    """The sum over each window of what is padded with zeros."""
    padded, total = np.pad(data, pads), np.zeros(out)
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            at = row * dilation[0], column * dilation[1]
            total += padded[
                at[0] : at[0] + (out[0] - 1) * stride[0] + 1 : stride[0],
                at[1] : at[1] + (out[1] - 1) * stride[1] + 1 : stride[1],
            ]
    return total


def test_ceil_mode_reaches_beyond_the_declared_pads_and_counts_nothing_there() -> None:
    frame = window([6], [3], [3], [2], None, "NOTSET", [0, 0])
    assert (frame.used_end, frame.declared_end, frame.pads) == ((1,), (0,), ((0, 1),))
    assert divisors(frame, True).tolist() == [3, 3, 2]


def test_input_that_is_left_over() -> None:
    frame = window([8], [3], [3], [2], None, "NOTSET", [0, 0])
    assert (frame.used_end, frame.pads) == ((-1,), ((0, 0),))


@pytest.mark.parametrize(
    ("rule", "begin", "end"),
    [("SAME_UPPER", (0, 1), (1, 1)), ("SAME_LOWER", (1, 1), (0, 1)), ("VALID", (0, 0), (0, 0))],
)
def test_padding_by_rule(rule: str, begin: tuple[int, int], end: tuple[int, int]) -> None:
    out = [3, 3] if rule == "VALID" else [4, 4]
    frame = window([8, 7], out, [3, 3], [2, 2], None, rule, None)
    assert (frame.begin, frame.declared_end) == (begin, end)


def test_dilation() -> None:
    assert window([8], [4], [3], None, [2], "NOTSET", None).reach == (5,)
    assert window([8], [4], [3], None, [2], "NOTSET", None).is_dilated
    assert not window([8], [6], [3], None, None, "NOTSET", None).is_dilated


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"pads": [-1, 0, 0, 0]},
            "pads [-1, 0, 0, 0] are negative, which is not supported",
        ),
        ({"pads": [1, 1]}, "kernel_shape, strides, dilations or pads do not fit 2 spatial axes"),
        ({"auto_pad": "SAME"}, "auto_pad SAME is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID"),
    ],
)
def test_refusals(given: dict[str, Any], why: str) -> None:
    arguments = {"strides": None, "dilations": None, "auto_pad": "NOTSET", "pads": None} | given
    with pytest.raises(Inexpressible) as caught:
        window([8, 8], [6, 6], [3, 3], **arguments)
    assert caught.value.reason == why


def test_a_kernel_shape_that_is_not_that_of_the_weights_is_refused() -> None:
    assert conv_window([8], [6], (3,), [3], None, None, "NOTSET", None).kernel == (3,)
    with pytest.raises(Inexpressible) as caught:
        conv_window([8], [6], (3,), [2], None, None, "NOTSET", None)
    assert caught.value.reason == "kernel_shape [2] does not match its weights (3,)"


@pytest.mark.needs_ort
@given(ints(1, 5), ints(1, 4), ints(1, 3), ints(1, 2), ints(0, 1), ints(0, 1), ints(0, 2))
def test_transposed_windows_are_those_of_onnx_runtime(
    size: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    begin: tuple[int, int],
    end: tuple[int, int],
    extra: tuple[int, int],
) -> None:
    assume(all(x < s for x, s in zip(extra, stride, strict=True)))
    full = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(size, stride, kernel, dilation, strict=True)]
    out = [f + x - b - e for f, x, b, e in zip(full, extra, begin, end, strict=True)]
    assume(min(out) > 0)
    frame = transposed_window(size, out, kernel, stride, dilation, "NOTSET", [*begin, *end], extra, None)
    assert (frame.begin, frame.full) == (begin, tuple(full))
    assert frame.end == tuple(e - x for e, x in zip(end, extra, strict=True))
    rng = np.random.default_rng(1)
    data, weights = rng.standard_normal((1, 1, *size)), rng.standard_normal((1, 1, *kernel))
    whole = np.zeros(frame.full)
    for row, column in np.ndindex(*size):
        at = row * stride[0], column * stride[1]
        cut = tuple(slice(a, a + (k - 1) * d + 1, d) for a, k, d in zip(at, kernel, dilation, strict=True))
        whole[cut] += data[0, 0, row, column] * weights[0, 0]
    beyond = [(0, max(-e, 0)) for e in frame.end]
    got = np.pad(whole, beyond)[tuple(slice(b, b + n) for b, n in zip(frame.begin, out, strict=True))]
    wanted = by_onnx_runtime(
        "ConvTranspose", data.astype(np.float32), weights.astype(np.float32), out, strides=stride,
        dilations=dilation, pads=[*begin, *end], output_padding=extra,
    )  # fmt: skip
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def by_onnx_runtime(op: str, data: Array, weights: Array, out: list[int], **attributes: Any) -> Array:
    """One plane. The reference of onnx 1.23 has no output_padding beyond what windows reach."""
    node = helper.make_node(op, ["x", "w"], ["y"], **attributes)
    declared = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", data.shape), ("y", (1, 1, *out)))
    ]
    graph = helper.make_graph(
        [node], "g", declared[:1], declared[1:], [numpy_helper.from_array(weights, "w")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return np.asarray(Reference(ir.from_proto(model)).run({"x": data})["y"][0, 0])


@pytest.mark.parametrize(("rule", "begin"), [("SAME_UPPER", 0), ("SAME_LOWER", 1), ("NOTSET", 1)])
def test_a_stated_output_shape_splits_what_is_cut_off(rule: str, begin: int) -> None:
    """3 by 2 is 7 in full; of a stated 6 the odd one is cut off at the end for SAME_UPPER only."""
    frame = transposed_window([3], [6], [3], [2], None, rule, None, None, [6])
    assert (frame.full, frame.begin, frame.end) == ((7,), (begin,), (1 - begin,))
