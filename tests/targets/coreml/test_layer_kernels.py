"""Kernels that coremltools infers no values of, against ONNX's own operators or their formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from edgekit_coreml.interpreter.kernels_data import KERNELS as DATA
from edgekit_coreml.interpreter.kernels_layers import KERNELS as LAYERS
from edgekit_coreml.interpreter.one_node import LARGE, converted, one_node_model

from edgekit.errors import EngineError
from edgekit.tensor_spec import Array
from tests.targets.coreml.running import executor

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

RNG = np.random.default_rng(1)


def normal(*shape: int) -> Array:
    return RNG.normal(0, 1, shape).astype(np.float32)


def by_hand(x: Array, weights: Array, stride: int, pads: tuple[int, int, int, int]) -> Array:
    """A plain convolution, window by window."""
    top, bottom, left, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    size = weights.shape[2]
    rows = range(0, padded.shape[2] - size + 1, stride)
    columns = range(0, padded.shape[3] - size + 1, stride)
    made = [
        [np.einsum("ncij,ocij->no", padded[:, :, r : r + size, c : c + size], weights) for c in columns]
        for r in rows
    ]
    return np.array(made).transpose(2, 3, 0, 1)


def test_a_convolution_with_pads_that_differ() -> None:
    x, w = normal(2, 3, 7, 6), normal(4, 3, 3, 3)
    got = LAYERS["conv"](
        x,
        w,
        strides=np.array([2, 2]),
        pad_type="custom",
        pad=np.array([0, 1, 2, 1]),
        dilations=None,
        groups=1,
    )
    np.testing.assert_allclose(got, by_hand(x, w, 2, (0, 1, 2, 1)), rtol=1e-4, atol=1e-5)


def test_an_average_counts_the_padding_or_not() -> None:
    x = np.ones((1, 1, 2, 2), np.float32)
    options: dict[str, Any] = {
        "kernel_sizes": np.array([2, 2]), "strides": np.array([2, 2]), "pad_type": "custom",
        "pad": np.array([0, 0, 1, 1]),
    }  # fmt: skip
    counted = LAYERS["avg_pool"](x, exclude_padding_from_average=False, **options)
    inside = LAYERS["avg_pool"](x, exclude_padding_from_average=True, **options)
    assert counted.tolist() == [[[[0.5, 0.5]]]]
    assert inside.tolist() == [[[[1.0, 1.0]]]]


def test_lstm_is_the_documented_recurrence() -> None:
    x, h, c = normal(3, 2, 4), normal(2, 5), normal(2, 5)
    ih, hh, bias = normal(20, 4), normal(20, 5), normal(20)
    out, last_h, last_c = LAYERS["lstm"](x, h, c, ih, hh, bias, output_sequence=True)

    def sigmoid(v: Array) -> Array:
        return 1 / (1 + np.exp(-v))

    for step in range(3):
        gates = x[step] @ ih.T + h @ hh.T + bias
        i, f, o, z = (gates[:, 5 * k : 5 * k + 5] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(z)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(out[step], h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last_h, h, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(last_c, c, rtol=1e-5, atol=1e-6)


def test_depth_to_space_is_onnx_dcr_and_pixel_shuffle_crd() -> None:
    x = normal(1, 8, 2, 3)
    for kernel, mode, key in (
        ("depth_to_space", "DCR", "block_size"),
        ("pixel_shuffle", "CRD", "upscale_factor"),
    ):
        settings = (("blocksize", 2), ("mode", mode))
        node = one_node_model("DepthToSpace", (("float32", x.shape),), settings, "float32")
        onnx.checker.check_node(onnx.load_from_string(node).graph.node[0])
        session = onnxruntime.InferenceSession(node, providers=["CPUExecutionProvider"])
        expected = session.run(None, {"i0": x})[0]
        np.testing.assert_array_equal(DATA[kernel](x, **{key: 2}), expected)
    np.testing.assert_array_equal(DATA["space_to_depth"](DATA["depth_to_space"](x, 2), 2), x)


def test_large_arrays_are_rounded_to_float16_as_numpy_does() -> None:
    """Every float16, what lies halfway between two of them, and the floats beside that."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    wide = halves.astype(np.float32)
    assert halves.size >= LARGE
    np.testing.assert_array_equal(converted(halves, "float32"), wide)
    ends = np.sort(wide[np.isfinite(wide)])
    middles = ((ends[:-1] + ends[1:]) / 2)[:, None].view(np.int32)
    near = np.concatenate([(middles + np.arange(-2, 3, dtype=np.int32)).view(np.float32).ravel(), wide])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            converted(near.reshape(3, -1), "float16"), near.reshape(3, -1).astype("f2")
        )
    assert converted(near[:3], "float16").dtype == np.float16


def test_weights_of_integers() -> None:
    q = np.array([[-128, 0], [127, 3]], np.int8)
    scale, zero = np.array([0.5, 2.0], np.float32), np.array([0, 1], np.int8)
    expected = [[-64.0, 0.0], [252.0, 4.0]]
    assert DATA["constexpr_affine_dequantize"](q, scale, zero, 0).tolist() == expected
    blocks = np.array([[0.5, 1.0], [2.0, 4.0]], np.float32)
    assert DATA["constexpr_blockwise_shift_scale"](q, blocks).tolist() == [[-64.0, 0.0], [254.0, 12.0]]
    assert DATA["dequantize"](q, np.float32(0.5), np.int8(1)).tolist() == [[-64.5, -0.5], [63.0, 1.0]]


def test_palettes() -> None:
    indices, lut = np.array([[0, 1], [2, 3]], np.uint8), np.array([1, 2, 3, 4], np.float32)
    packed = np.array([0b11100100], np.uint8)
    assert DATA["constexpr_lut_to_dense"](packed, lut, np.array([2, 2])).tolist() == [[1, 2], [3, 4]]
    grouped = np.stack([lut, lut * 10]).reshape(2, 1, 4, 1)
    assert DATA["constexpr_lut_to_dense"](indices, grouped).tolist() == [[1, 2], [30, 40]]


def test_an_index_beyond_the_data_is_an_error() -> None:
    with pytest.raises(EngineError, match="an index of 0 to 4 into 3 elements"):
        DATA["gather"](normal(3), np.array([0, 4]), 0)


@pytest.mark.parametrize("mode", ["UNALIGN_CORNERS", "STRICT_ALIGN_CORNERS", "DEFAULT"])
def test_bilinear_places(mode: str) -> None:
    """On a ramp the answer is the place itself."""
    ramp = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    got = LAYERS["resize_bilinear"](ramp, 1, 10, mode)[0, 0, 0]
    i = np.arange(10)
    places = {
        "UNALIGN_CORNERS": (i + 0.5) / 2 - 0.5,
        "STRICT_ALIGN_CORNERS": i * 4 / 9,
        "DEFAULT": i / 2,
    }
    np.testing.assert_allclose(got, np.clip(places[mode], 0, 4), atol=1e-5)


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.ones((2, 3), np.float64), "float64[2, 3]"),
        (np.ones((2, 3), np.int32), "int32[2, 3]"),
        (np.ones((3, 2), np.float32), "float32[3, 2]"),
    ],
)
def test_an_input_that_is_not_as_declared(array: Array, what: str, tmp_path: Path) -> None:
    ready = executor(lambda b, x: b.relu(x=x["x"]), {"x": np.ones((2, 3), np.float32)}, tmp_path)
    with pytest.raises(EngineError) as failure:
        ready.run({"x": array})
    assert str(failure.value) == f"input x is {what}, declared as float32[2, 3]"
