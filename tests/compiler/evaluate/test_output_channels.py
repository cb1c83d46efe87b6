"""The channel of each value of an output, wherever data movement has put it."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.evaluate.output_channels import OutputChannels, find_channels
from edgekit.compiler.model.shape_inference import infer_shapes

CONV = "float[1,2,3,3] x, float[4,2,1,1] w, float[3,2,1,1] v"


def channels_of(body: str, inputs: str = CONV, output: str = "float y") -> dict[str, OutputChannels]:
    text = f'<ir_version: 8, opset_import: ["": 13]> g ({inputs}) => ({output}) {{ {body} }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    return find_channels(model.graph)


CHANNELS = np.repeat(np.arange(4), 9).reshape(1, 4, 9)
BOTH = np.repeat(np.arange(7), 9).reshape(1, 7, 9)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = Conv (x, w)", CHANNELS),
        ("c = Conv (x, w) y = Relu (c)", CHANNELS),
        ("c = Conv (x, w) s = Constant <value=int64[3] {1,4,9}> () y = Reshape (c, s)", CHANNELS),
        ("c = Conv (x, w) y = Transpose <perm=[0,2,3,1]> (c)", CHANNELS.transpose(0, 2, 1)),
        (
            "c = Conv (x, w) s = Constant <value=int64[4] {1,2,2,9}> () r = Reshape (c, s) "
            "y = Transpose <perm=[0,3,1,2]> (r)",
            CHANNELS.transpose(0, 2, 1),
        ),
        ("c = Conv (x, w) d = Conv (x, v) y = Concat <axis=1> (c, d)", BOTH),
        ("c = Conv (x, w) d = Conv (x, v) e = Concat <axis=1> (d, c) y = Sigmoid (e)", BOTH),
        ("c = Conv (x, w) s = Sigmoid (c) y = Mul (c, s)", CHANNELS),
        ("c = Conv (x, w) y = ReduceMean <axes=[2,3], keepdims=0> (c)", np.arange(4)),
        ("c = Conv (x, w) p, y = Split <axis=1> (c)", np.repeat(np.arange(2), 9)),
        (
            "c = Conv (x, w) d = Conv (x, v) s = Softmax <axis=1> (d) y = Concat <axis=1> (c, s)",
            np.minimum(BOTH, 4),
        ),
    ],
)
def test_channels_are_followed(body: str, expected: np.ndarray) -> None:
    found = channels_of(body)["y"]
    assert found.labels is not None
    assert np.array_equal(found.labels, expected.ravel())


@pytest.mark.parametrize(
    "body",
    [
        "c = Conv (x, w) y = Softmax <axis=1> (c)",
        "c = Conv (x, w) y = ReduceMax <axes=[1], keepdims=0> (c)",
        "y = Relu (x)",
        "c = Conv (x, w) y = DepthToSpace <blocksize=2> (c)",  # pixels
    ],
)
def test_values_that_belong_together_are_one_channel(body: str) -> None:
    assert channels_of(body) == {}


def test_the_last_axis_of_a_product_is_that_of_its_channels() -> None:
    found = channels_of("y = MatMul (x, w)", "float[1,5,2] x, float[2,3] w")["y"]
    assert found.labels is not None
    assert found.labels.tolist() == [0, 1, 2] * 5


def test_scores_have_one_unit_and_boxes_one_each() -> None:
    body = "c = Conv (x, w) d = Conv (x, v) s = Sigmoid (d) y = Concat <axis=1> (c, s)"
    found = channels_of(body)["y"]
    assert found.bounded.tolist() == [False] * 4 + [True] * 3
    assert len(set(found.units[4:].tolist())) == 1


def test_levels_and_anchors_have_the_same_channels() -> None:
    levels = """
        c = Conv (x, w) d = Conv (x2, w) s = Sigmoid (c) t = Sigmoid (d)
        y = Concat <axis=2> (s, t)"""
    found = channels_of(levels, f"{CONV}, float[1,2,2,3] x2")["y"]
    assert found.labels is not None
    assert np.array_equal(found.labels, np.repeat(np.arange(4), 15))
    assert len(set(found.units.tolist())) == 1
    anchors = """
        c = Conv (x, w) t = Transpose <perm=[0,2,3,1]> (c)
        s = Constant <value=int64[3] {1,18,2}> () y = Reshape (t, s)"""
    found = channels_of(anchors)["y"]
    assert found.labels is not None
    assert np.array_equal(found.labels, np.tile(np.arange(2), 18))


def test_two_heads_of_one_position_are_not_levels() -> None:
    body = """
        a = Gemm (x, w) b = Gemm (x, w) s = Constant <value=int64[3] {1,1,4}> ()
        c = Reshape (a, s) d = Reshape (b, s) y = Concat <axis=1> (c, d)"""
    found = channels_of(body, "float[1,5] x, float[5,4] w")["y"]
    assert found.labels is not None
    assert np.array_equal(found.labels, np.arange(8))


def test_rows_of_a_selection() -> None:
    body = """
        k = Constant <value=int64[1] {5}> ()
        c = Conv (x, w) s = Constant <value=int64[3] {1,4,9}> () r = Reshape (c, s)
        best = ReduceMax <axes=[1], keepdims=0> (r) top, i = TopK <axis=1> (best, k)
        one = Constant <value=int64[1] {1}> () four = Constant <value=int64[3] {1,4,1}> ()
        u = Unsqueeze (i, one) at = Tile (u, four) picked = GatherElements <axis=2> (r, at)
        vu = Unsqueeze (top, one) y = Concat <axis=1> (picked, vu)"""
    found = channels_of(body)["y"]
    assert found.rows == 2
    assert found.labels is not None
    assert np.array_equal(found.labels, np.repeat(np.arange(5), 5))
    assert found.ranks.tolist() == [False] * 4 + [True]
