"""Pools that jax2onnx writes over all axes, as pools of pixels; the values are numpy's."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from edgekit.compiler.importers.jax_pools import pool_two_axes
from edgekit.tensor_spec import Array

pytestmark = pytest.mark.needs_ort

POOL = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,1,2,{h},{h},3] x) => (float[1,1,2,{o},{o},3] y) {{ y = MaxPool <{a}> (x) }}"""
SUM = """<ir_version: 10, opset_import: ["" : 21]>
g (float[1,1,2,6,6,3] x) => (float[1,1,2,3,3,3] y) <float[1,1,1,2,2,1] w = {1,1,1,1}> {
    y = Conv <strides = [1,2,2,1], group = 1> (x, w) }"""


def windows(x: Array, size: int, stride: int) -> Array:
    """Windows over H and W of 1x1xNxHxWxC, two axes more at the end."""
    found = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(3, 4))
    return np.asarray(found[:, :, :, ::stride, ::stride])


def rewritten(text: str, x: Array) -> tuple[Array, list[str]]:
    proto = onnx.parser.parse_model(text)
    pool_two_axes(proto)
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0], [node.op_type for node in proto.graph.node]


def test_a_pool_of_pixels() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 6, 6, 3)).astype(np.float32)
    text = POOL.format(h=6, o=3, a="kernel_shape = [1,2,2,1], strides = [1,2,2,1]")
    unchanged = onnx.parser.parse_model(text).SerializeToString()
    with pytest.raises(Exception, match="Unsupported pooling size"):
        onnxruntime.InferenceSession(unchanged, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    got, ops = rewritten(text, x)
    assert ops == ["Transpose", "Reshape", "MaxPool", "Reshape", "Transpose"]
    assert np.array_equal(got, windows(x, 2, 2).max((-2, -1)))


def test_a_pool_with_pads_and_overlaps() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 7, 7, 3)).astype(np.float32)
    pads = "pads = [0,1,1,0,0,1,1,0]"
    got, _ = rewritten(POOL.format(h=7, o=4, a=f"kernel_shape = [1,3,3,1], strides = [1,2,2,1], {pads}"), x)
    padded = np.pad(x, [(0, 0)] * 3 + [(1, 1)] * 2 + [(0, 0)], constant_values=-np.inf)
    assert np.array_equal(got, windows(padded, 3, 2).max((-2, -1)))


def test_a_sum_over_windows() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 2, 6, 6, 3)).astype(np.float32)
    got, ops = rewritten(SUM, x)
    assert ops == ["Transpose", "Reshape", "Conv", "Reshape", "Transpose"]
    np.testing.assert_allclose(got, windows(x, 2, 2).sum((-2, -1)), atol=1e-6)


def test_pools_that_engines_have_stay() -> None:
    proto = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]> g (float[1,3,6,6] x) => (float[1,3,3,3] y) {
        y = MaxPool <kernel_shape = [2,2], strides = [2,2]> (x) }"""
    )
    before = proto.SerializeToString()
    pool_two_axes(proto)
    assert proto.SerializeToString() == before
