"""What a model is compiled to: fusions, layouts, precisions, findings."""

from __future__ import annotations

import re

import numpy as np
import pytest
from edgekit_tflite.compile import FILE, check_model, compile_model
from edgekit_tflite.importer.file import read_file

from edgekit.errors import UnsupportedError
from edgekit.tensor_spec import Array
from tests.targets.tflite.running import PROFILE, compiled, model_of, ops_of, ran, with_weights

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


CONV = "float[4,3,3,3] w"


def conv_weights() -> dict[str, Array]:
    return {"w": normal(4, 3, 3, 3)}


def test_relu_is_fused_into_what_makes_its_input() -> None:
    model = with_weights(model_of("float[1,3,8,8] x", "c = Conv(x, w)\ny = Relu(c)", CONV), conv_weights())
    assert ops_of(compiled(model)) == {"CONV_2D": 1, "TRANSPOSE": 2}


def test_relu_is_not_fused_where_the_value_before_it_is_read_too() -> None:
    model = with_weights(
        model_of("float[1,3,8,8] x", "c = Conv(x, w)\nr = Relu(c)\ny = Add(c, r)", CONV), conv_weights()
    )
    assert ops_of(compiled(model)) == {"ADD": 1, "CONV_2D": 1, "RELU": 1, "TRANSPOSE": 2}


@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("made", "weights", "fused"),
    [
        ("Conv(x, w)", "float[4,4,1,1] w", True),
        ("Conv<group=4>(x, w)", "float[4,1,1,1] w", True),
        ("Conv<group=2>(x, w)", "float[4,2,1,1] w", True),
        ("ConvTranspose<strides=[2,2]>(x, w)", "float[4,4,2,2] w", True),
        ("ConvTranspose<strides=[2,2]>(x, w, v)", "float[4,4,2,2] w, float[4] v", True),
        ("ConvTranspose<strides=[2,2], group=2>(x, w)", "float[4,2,2,2] w", False),
        ("ConvTranspose<strides=[2,2], pads=[1,1,0,0]>(x, w)", "float[4,4,2,2] w", False),
        ("MaxPool<kernel_shape=[2,2]>(x)", "", True),
        ("AveragePool<kernel_shape=[2,2]>(x)", "", True),
        ("MatMul(x, w)", "float[6,5] w", True),
        ("Add(x, w)", "float[6] w", True),
        ("Sub(w, x)", "float[6] w", True),
        ("Mul(x, w)", "float[6] w", True),
        ("Div(w, x)", "float[6] w", True),
        ("Concat<axis=1>(x, x)", "", False),
        ("Concat<axis=2>(x, x, x, x, x, x, x)", "", False),
        ("Tile(x, times)", "int64[4] times = {1, 2, 1, 3}", False),
        ("Slice(x, one, two)", "int64[4] one = {0, 1, 0, 1}, int64[4] two = {1, 3, 4, 5}", False),
        ("GatherND(x, at)", "int64[2,2] at = {0, 1, 0, 3}", False),
    ],
)
@pytest.mark.parametrize(
    ("activation", "bounds", "limits"),
    [("Relu(m)", "", (0, np.inf)), ("Clip(m, l, h)", "float l = {0.0}, float h = {6.0}", (0, 6))],
    ids=["relu", "relu6"],
)
def test_an_activation_is_never_lost(
    made: str, weights: str, fused: bool, activation: str, bounds: str, limits: tuple[float, float]
) -> None:
    """The engine forgets an activation that some operators have an option for, e.g. CONCATENATION."""
    names = ", ".join(part for part in (weights, bounds) if part)
    values = {"w": 5 * normal(*model_weights(weights, "w")), "v": 5 * normal(4)}
    values = {name: array for name, array in values.items() if f"] {name}" in weights}
    x = 5 * normal(1, 4, 4, 6)
    plain = with_weights(model_of("float[1,4,4,6] x", f"y = {made}", weights), values)
    active = with_weights(model_of("float[1,4,4,6] x", f"m = {made}\ny = {activation}", names), values)
    before, artifact = ran(compiled(plain), {"x": x})["y"], compiled(active)
    assert before.min() < limits[0]
    np.testing.assert_allclose(ran(artifact, {"x": x})["y"], np.clip(before, *limits), rtol=1e-5, atol=1e-5)
    assert any(code.startswith("RELU") for code in ops_of(artifact)) != fused


def model_weights(weights: str, name: str) -> tuple[int, ...]:
    """The shape that ONNX text declares for ``name``; (1,) where it declares none."""
    found = re.search(rf"\[([0-9,]+)\] {name}\b", weights)
    return tuple(map(int, found[1].split(","))) if found else (1,)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 6, {"ADD": 1}), (-1, 1, {"ADD": 1}), (0, 5, {"ADD": 1, "MAXIMUM": 1, "MINIMUM": 1})],
)
def test_clip_is_fused_where_tflite_has_its_bounds(low: int, high: int, expected: dict[str, int]) -> None:
    weights = f"float l = {{{low}.0}}, float h = {{{high}.0}}"
    model = model_of("float[4] x", "a = Add(x, x)\ny = Clip(a, l, h)", weights)
    assert ops_of(compiled(model)) == expected


def test_a_stride_2_window_with_pads_of_1_is_pad_and_valid() -> None:
    body = "y = Conv<strides=[2,2], pads=[1,1,1,1]>(x, w)"
    even = with_weights(model_of("float[1,3,8,8] x", body, CONV), conv_weights())
    odd = with_weights(model_of("float[1,3,9,9] x", body, CONV), conv_weights())
    assert ops_of(compiled(even)) == {"CONV_2D": 1, "PAD": 1, "TRANSPOSE": 2}
    assert ops_of(compiled(odd)) == {"CONV_2D": 1, "TRANSPOSE": 2}


FOCUS = "\n".join(
    f"s{i} = Slice(x, b{i}, e, a, t)" for i in range(4)
) + "\nc = Concat<axis=1>(s0, s1, s2, s3)\ny = Conv(c, w)"  # fmt: skip
FOCUS_WEIGHTS = (
    "int64[2] b0 = {0,0}, int64[2] b1 = {1,0}, int64[2] b2 = {0,1}, int64[2] b3 = {1,1}, "
    "int64[2] e = {8,8}, int64[2] a = {2,3}, int64[2] t = {2,2}, float[4,12,1,1] w"
)


@pytest.mark.needs_tflite
def test_slices_of_an_image_joined_as_channels_are_one_transpose() -> None:
    model = with_weights(model_of("float[1,3,8,8] x", FOCUS, FOCUS_WEIGHTS), {"w": normal(4, 12, 1, 1)})
    artifact = compiled(model)
    assert ops_of(artifact) == {"CONV_2D": 1, "RESHAPE": 2, "TRANSPOSE": 2}
    x = normal(1, 3, 8, 8)
    weights = model.graph.initializers["w"].const_value
    assert weights is not None
    parts = np.concatenate([x[:, :, r::2, c::2] for c in (0, 1) for r in (0, 1)], axis=1)
    expected = np.einsum("nchw,oc->nohw", parts, weights.numpy()[:, :, 0, 0])
    assert np.allclose(ran(artifact, {"x": x})["y"], expected, atol=1e-4)


@pytest.mark.needs_tflite
def test_gemm_takes_a_flattened_image_as_it_is_stored() -> None:
    body = "c = Conv(x, w)\nf = Flatten(c)\ny = Gemm(f, g)"
    model = model_of("float[2,3,4,4] x", body, f"{CONV}, float[16,5] g")
    w, g, x = normal(4, 3, 3, 3), normal(16, 5), normal(2, 3, 4, 4)
    artifact = compiled(with_weights(model, {"w": w, "g": g}))
    assert ops_of(artifact) == {"CONV_2D": 1, "FULLY_CONNECTED": 1, "RESHAPE": 1, "TRANSPOSE": 1}
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    convolved = np.einsum("nchwij,ocij->nohw", windows, w)
    assert np.allclose(ran(artifact, {"x": x})["y"], convolved.reshape(2, -1) @ g, atol=1e-3)


@pytest.mark.needs_tflite
def test_more_operands_than_xnnpack_joins_are_joined_in_two_steps() -> None:
    model = model_of("float[1,7] x, float[1,2] z", "y = Concat<axis=1>(x, z, x, z, z, x)")
    artifact = compiled(model)
    assert ops_of(artifact) == {"CONCATENATION": 3}
    assert artifact.facts["outside_xnnpack"] == []
    x, z = normal(1, 7), normal(1, 2)
    assert np.array_equal(ran(artifact, {"x": x, "z": z})["y"], np.concatenate([x, z, x, z, z, x], axis=1))


@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("starts", "ends", "steps", "ops"),
    [
        ((0, 0), (8, 6), (2, 3), {"RESHAPE": 3, "SLICE": 2}),
        ((1, 2), (8, 6), (2, 3), {"RESHAPE": 3, "SLICE": 2}),
        ((3, 1), (8, 6), (2, 2), {"STRIDED_SLICE": 1}),  # the last group of rows is not whole
        ((1, 1), (7, 5), (2, 2), {"RESHAPE": 3, "SLICE": 3}),
        ((7, 5), (-9, -9), (-1, -2), {"RESHAPE": 2, "REVERSE_V2": 1, "SLICE": 1}),
    ],
)
def test_steps_of_a_slice(
    starts: tuple[int, int], ends: tuple[int, int], steps: tuple[int, int], ops: dict[str, int]
) -> None:
    pairs = {"s": starts, "e": ends, "t": steps, "a": (1, 2)}
    weights = ", ".join(f"int64[2] {name} = {{{a},{b}}}" for name, (a, b) in pairs.items())
    artifact = compiled(model_of("float[2,8,6,3] x", "y = Slice(x, s, e, a, t)", weights))
    assert ops_of(artifact) == ops
    x = normal(2, 8, 6, 3)
    rows, columns = (slice(s, e if e >= 0 else None, t) for s, e, t in zip(starts, ends, steps, strict=True))
    assert np.array_equal(ran(artifact, {"x": x})["y"], x[:, rows, columns])


@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("indices", "ops"),
    [
        ((2,), {"RESHAPE": 1, "SLICE": 1}),
        ((1, 2, 3), {"SLICE": 1}),
        ((-2, -1), {"SLICE": 1}),
        ((3, 1), {"GATHER": 1}),
    ],
)
def test_consecutive_indices_are_a_slice(indices: tuple[int, ...], ops: dict[str, int]) -> None:
    scalar = len(indices) == 1
    declared = "int64" if scalar else f"int64[{len(indices)}]"
    body = "y = Gather<axis=1>(x, i)"
    model = model_of("float[2,4,3] x", body, f"{declared} i = {{{','.join(map(str, indices))}}}")
    artifact = compiled(model)
    assert ops_of(artifact) == ops
    x = normal(2, 4, 3)
    expected = x[:, indices[0]] if scalar else x[:, list(indices)]
    assert np.array_equal(ran(artifact, {"x": x})["y"], expected)


@pytest.mark.needs_tflite
def test_a_product_of_a_moved_value_with_itself() -> None:
    """XNNPACK gets TRANSPOSE, BATCH_MATMUL(t, t) wrong; the second operand is a copy."""
    model = model_of("float[4,4,4] x", "t = Transpose<perm=[1,0,2]>(x)\ny = MatMul(t, t)")
    x = normal(4, 4, 4)
    moved = x.transpose(1, 0, 2)
    assert np.allclose(ran(compiled(model), {"x": x})["y"], moved @ moved, atol=1e-4)


@pytest.mark.needs_tflite
def test_fp16_stores_large_weights_in_half_the_bytes() -> None:
    model = model_of("float[1,256] x", "y = Gemm(x, g)", "float[256,128] g")
    with_weights(model, {"g": normal(256, 128)})
    whole, half = compiled(model), compiled(model, "fp16")
    assert ops_of(half) == {"DEQUANTIZE": 1, "FULLY_CONNECTED": 1}
    assert len(whole.files[FILE]) - len(half.files[FILE]) == pytest.approx(256 * 128 * 2, abs=500)
    x = normal(1, 256)
    difference = ran(whole, {"x": x})["y"] - ran(half, {"x": x})["y"]
    assert 0 < np.abs(difference).max() < 0.1


def test_fp16_leaves_weights_that_would_overflow() -> None:
    model = model_of("float[1,256] x", "y = Gemm(x, g)", "float[256,128] g")
    with_weights(model, {"g": np.full((256, 128), 1e6, np.float32)})
    assert ops_of(compiled(model, "fp16")) == {"FULLY_CONNECTED": 1}


def test_compiling_leaves_the_model_as_it_was() -> None:
    model = with_weights(model_of("float[1,3,8,8] x", "y = Conv(x, w)", CONV), conv_weights())
    before = str(model)
    compiled(model)
    assert str(model) == before


def test_options_say_how_values_are_found() -> None:
    model = model_of("int64[2,3] x, float[1] z", "y = Cast<to=7>(z)\nw = Add(x, y)", outputs="w, y")
    assert compiled(model).options == {
        "signature": "serving_default",
        "inputs": [
            {"name": "x", "signature_name": "x", "dtype": "int32", "shape": [2, 3]},
            {"name": "z", "signature_name": "z", "dtype": "float32", "shape": [1]},
        ],
        "outputs": [
            {"name": "w", "signature_name": "w", "dtype": "int32", "shape": [2, 3]},
            {"name": "y", "signature_name": "y", "dtype": "int32", "shape": [1]},
        ],
        "precision": "fp32",
    }


@pytest.mark.needs_tflite
def test_an_input_that_is_an_output_twice() -> None:
    model = model_of("float[2] x", "y = Identity(x)\nz = Identity(x)", outputs="y, z")
    x = normal(2)
    answers = ran(compiled(model), {"x": x})
    assert np.array_equal(answers["y"], x)
    assert np.array_equal(answers["z"], x)


BAD = (
    '[a] i = Equal(n, big)\n[b] c = BitShift<direction="LEFT">(u, u)\n'
    "[c] s = RandomUniformLike(x)\n[d] y = Relu(s)"
)


def test_all_nodes_without_a_form_are_refused_at_once() -> None:
    given = "float[1,1,2,2] x, int64[2] n, uint8[2] u"
    model = model_of(given, BAD, "int64 big = {4294967296}", outputs="y, i, c")
    with pytest.raises(UnsupportedError) as caught:
        compile_model(model, PROFILE, "fp32")
    assert str(caught.value) == (
        "tflite: 2 nodes have no form in TFLite\n"
        "  EK1004  a  Equal              a constant contains 4294967296 to 4294967296, beyond TFLite's "
        "int32\n"
        "  EK1001  c  RandomUniformLike  tflite does not support RandomUniformLike at opset 23; build it "
        "for ort, or see docs/add-an-op.md"
    )
    assert [f.node for f in caught.value.findings] == ["a", "c"]
    assert check_model(model, PROFILE) == caught.value.findings


def test_a_dynamic_shape_is_refused_with_the_flag() -> None:
    findings = check_model(model_of("float[N,3] x", "y = Relu(x)"), PROFILE)
    assert [(f.code, f.node, f.message, f.fix) for f in findings] == [
        ("EK1003", "x", "the shape of x is [N,3], not static", "set it with --shape x=..."),
    ]


def test_an_element_type_without_kernels_is_refused() -> None:
    findings = check_model(model_of("bfloat16[3] x", "y = Relu(x)"), PROFILE)
    first = findings[0]
    assert (first.code, first.node, first.message) == (
        "EK1004", "x", "x is BFLOAT16, which TFLite does not support",
    )  # fmt: skip


def test_float64_is_computed_in_float32_and_told() -> None:
    (finding,) = check_model(model_of("double[3] x", "y = Relu(x)"), PROFILE)
    assert (finding.code, finding.node) == ("EK1108", "x")


def test_a_constant_beyond_int32_is_refused() -> None:
    model = model_of("int64[1] x", "y = Add(x, k)", "int64[1] k = {4294967296}")
    assert [f.message for f in check_model(model, PROFILE)] == [
        "a constant contains 4294967296 to 4294967296, beyond TFLite's int32"
    ]


def test_warnings_name_what_leaves_the_fast_path() -> None:
    body = "[conv] c = Conv(x, w)\n[top] t = ReduceProd<keepdims=1>(c, k)\n[out] y = Mul(c, t)"
    weights = f"{CONV}, int64[1] k = {{1}}"
    model = with_weights(model_of("float[1,3,8,8] x", body, weights), conv_weights())
    assert [(f.code, f.severity, f.node, f.op, f.message) for f in check_model(model, PROFILE)] == [
        (
            "EK1102", "warning", "conv", "TRANSPOSE",
            "0.8 kB are transposed: Conv takes its data channels last, and it is stored as in the source",
        ),
        (
            "EK1101", "warning", "top", "REDUCE_PROD",
            "XNNPACK does not support REDUCE_PROD; a plain kernel runs it",
        ),
        (
            "EK1102", "warning", "out", "TRANSPOSE",
            "0.6 kB are transposed: output y keeps the source's layout, and it is stored channels last",
        ),
    ]  # fmt: skip


def test_no_two_constants_have_one_name() -> None:
    """ai-edge-quantizer refuses such a file."""
    body, weights = "c = Conv(x, w, b)\ny = Conv(c, v)", f"{CONV}, float[4] b, float[4,4,3,3] v"
    arrays = {**conv_weights(), "b": normal(4), "v": normal(4, 4, 3, 3)}
    model = with_weights(model_of("float[1,3,8,8] x", body, weights), arrays)
    graph = read_file(bytes(compiled(model).files[FILE])).graph
    names = [tensor.name for tensor in graph.tensors if tensor.data is not None]
    assert len(names) == len(set(names)) >= 4
