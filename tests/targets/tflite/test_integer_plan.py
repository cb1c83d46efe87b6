"""What is planned on integers, what stays float and why, and what the report says of it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tflite.compile import check_model

from edgekit.compiler.model.reference import Reference
from edgekit.errors import UnsupportedError
from edgekit.target import Artifact
from edgekit.tensor_spec import Array
from tests.targets.tflite.running import PROFILE, compiled, model_of, ops_of, ran

RNG = np.random.default_rng(11)
IN, OUT = "d = DequantizeLinear(x, s, z)\n", "\ny = QuantizeLinear(r, s, z)"
SCALE = "float s = {0.0503}, int8 z = {3}"
WEIGHTS = "int8[4,8,1,1] wq = {" + ", ".join(str(v) for v in RNG.integers(-127, 128, 32)) + "}, "
CONV = IN + "w = DequantizeLinear(wq, ws)\nr = Conv(d, w)"
KERNEL = WEIGHTS + "float ws = {0.004}"


def integers(*shape: int) -> Array:
    return RNG.integers(-128, 128, shape).astype(np.int8)


def same_as_reference(model: ir.Model, artifact: Artifact, feeds: dict[str, Array]) -> None:
    """Integers at most one step off, floats at most one step of 0.06."""
    answers = ran(artifact, feeds)
    for name, expected in Reference(model).run(feeds).items():
        step = 0.06 if expected.dtype == np.float32 else 1
        assert np.abs(answers[name].astype(np.float64) - expected.astype(np.float64)).max() <= step


@pytest.mark.parametrize(
    ("body", "weights", "op", "why"),
    [
        (IN + "r = Softplus(d)", "", "Softplus", "EdgeKit has no integer kernel for Softplus"),
        (
            IN + "w = DequantizeLinear(wq, ws, wz)\nr = Conv(d, w)",
            f", {KERNEL}, int8 wz = {{2}}",
            "Conv",
            "its weights w are not int8 by one scale, or one for each output channel, with zero point 0",
        ),
        (
            IN + "r = Conv(d, w)",
            ", float[4,8,1,1] w",
            "Conv",
            "its weights w are not int8 by one scale, or one for each output channel, with zero point 0",
        ),
        (
            IN + "k = DequantizeLinear<axis=1>(kq, ks)\nr = Add(d, k)",
            ", int8[1,2] kq = {1, 2}, float[2] ks = {0.1, 0.2}",
            "Add",
            "its constant k is not stored as 8-bit integers by one scale",
        ),
        (
            IN + "t = Clip(d, lo)\ne = Exp(t)\nr = Add(t, e)",
            ", float lo = {0.01}",
            "Clip",
            "its bound 0.01 cannot be stored with its input's scale",
        ),
        (
            IN + "r = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(d)",
            "",
            "AveragePool",
            "its windows at the border count fewer elements than the others",
        ),
        (
            IN + 'r = Resize<mode="cubic">(d, , k)',
            ", float[4] k = {1.0, 1.0, 2.0, 2.0}",
            "Resize",
            "TFLite has no integer kernel for its mode and coordinates",
        ),
        (
            'd = DequantizeLinear(x, t, z)\nr = Resize<mode="linear">(d, , k)',
            ", float t = {0.2}, float[4] k = {1.0, 1.0, 2.0, 2.0}",
            "Resize",
            "it rounds to steps of its input's scale, and its result is not stored in such steps",
        ),
        (
            "d = DequantizeLinear(x, t, z)\nr = Pad(d, k, f)",
            ", float t = {0.02}, int64[8] k = {0,0,1,1,0,0,1,1}, float f = {4.0}",
            "Pad",
            "its fill 4 cannot be stored with its input's scale",
        ),
        (IN + "r = Elu<alpha=2.0>(d)", "", "Elu", "TFLite's integer kernel has no alpha 2"),
        (IN + "t = Sigmoid(d)\nr = Exp(t)", "", "Sigmoid", "its result is read in float"),
    ],
)
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_node_that_stays_float_is_named_with_the_reason(body: str, weights: str, op: str, why: str) -> None:
    shape = "1,2" if op == "Add" else "1,8,4,4"
    model = model_of(f"int8[{shape}] x", body + OUT, SCALE + weights)
    artifact = compiled(model)
    first = artifact.facts["float_islands"][0]
    assert (first["op"], first["why"]) == (op, why)
    assert first["converted_bytes"] > 0
    same_as_reference(model, artifact, {"x": integers(*map(int, shape.split(",")))})


def test_a_finer_scale_than_the_kernels_fixed_one_stays_float() -> None:
    body = "d = DequantizeLinear(x, s, z)\nr = Softmax(d)\ny = QuantizeLinear(r, t, z)"
    artifact = compiled(model_of("int8[4] x", body, SCALE + ", float t = {0.001}"))
    assert ops_of(artifact) == {"DEQUANTIZE": 1, "QUANTIZE": 1, "SOFTMAX": 1}
    assert artifact.facts["float_islands"] == [
        {
            "node": "r",
            "op": "Softmax",
            "why": "its result is stored in steps of 0.001, and TFLite's kernel gives steps of 0.00391",
            "nodes": ["r"],
            "converted_bytes": 32,
        }
    ]


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_what_is_read_in_float_before_its_pair_is_not_rounded_by_it() -> None:
    model = model_of("int8[1,8,4,4] x", CONV + "\nf = Exp(r)" + OUT, f"{SCALE}, {KERNEL}", "y, f")
    artifact = compiled(model)
    (island,) = artifact.facts["float_islands"]
    assert (island["op"], island["why"]) == ("Conv", "its result is read in float")
    assert island["nodes"] == ["r", "f"]
    x = {"x": integers(1, 8, 4, 4)}
    expected = Reference(model).run(x)
    answers = ran(artifact, x)
    assert np.allclose(answers["f"], expected["f"], rtol=1e-5)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_what_is_read_as_integers_and_in_float_is_dequantized_once() -> None:
    body = CONV + "\nq = QuantizeLinear(r, s, z)\ne = DequantizeLinear(q, s, z)\n"
    body += "y = Exp(e)\nf = Abs(e)\ng = Relu(e)\nh = QuantizeLinear(g, s, z)"
    model = model_of("int8[1,8,1,1] x", body, f"{SCALE}, {KERNEL}", "y, f, h")
    artifact = compiled(model)
    ops = {code: n for code, n in ops_of(artifact).items() if code != "RESHAPE"}
    # one for Exp and Abs; Relu, behind which is a pair, is a table with one of its own
    assert ops == {"ABS": 1, "CONV_2D": 1, "DEQUANTIZE": 2, "EXP": 1, "QUANTIZE": 1, "RELU": 1}
    assert artifact.facts["tables"] == ["g"]
    x = {"x": integers(1, 8, 1, 1) // 8}
    expected, answers = Reference(model).run(x), ran(artifact, x)
    for name in expected:
        assert np.allclose(answers[name], expected[name], rtol=1e-5)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_float_inputs_and_outputs_are_transposed_as_integers(dtype: str) -> None:
    zero = 3 if dtype == "int8" else 131
    body = "q = QuantizeLinear(x, s, z)\nd = DequantizeLinear(q, s, z)\nw = DequantizeLinear(wq, ws)\n"
    body += "r = Conv(d, w)\no = QuantizeLinear(r, s, z)\ny = DequantizeLinear(o, s, z)"
    model = model_of("float[1,8,4,4] x", body, f"float s = {{0.0503}}, {dtype} z = {{{zero}}}, {KERNEL}")
    artifact = compiled(model)
    assert ops_of(artifact) == {"CONV_2D": 1, "DEQUANTIZE": 1, "QUANTIZE": 1, "TRANSPOSE": 2}
    assert [row["size_bytes"] for row in artifact.facts["transposes"]] == [128, 64]
    same_as_reference(model, artifact, {"x": RNG.normal(size=(1, 8, 4, 4)).astype(np.float32)})


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_uint8_moved_between_the_halves_of_a_pair_is_held_as_int8() -> None:
    body = "q = QuantizeLinear(x, s, z)\nm = Reshape(q, k)\nd = DequantizeLinear(m, s, z)\n"
    body += "r = Transpose(d)\no = QuantizeLinear(r, s, z)\ny = DequantizeLinear(o, s, z)"
    weights = "float s = {0.0503}, uint8 z = {131}, int64[2] k = {2, 8}"
    model = model_of("float[1,16] x", body, weights)
    artifact = compiled(model)
    assert ops_of(artifact) == {"DEQUANTIZE": 1, "QUANTIZE": 1, "RESHAPE": 1, "TRANSPOSE": 1}
    same_as_reference(model, artifact, {"x": RNG.normal(size=(1, 16)).astype(np.float32)})


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_uint8_that_the_model_reads_as_integers_stays_uint8() -> None:
    body = IN + "w = DequantizeLinear(wq, ws)\nr = Conv(d, w)" + OUT + "\nf = Cast<to=1>(y)"
    model = model_of("uint8[1,8,1,1] x", body, f"float s = {{0.0503}}, uint8 z = {{131}}, {KERNEL}", "y, f")
    artifact = compiled(model)
    x = {"x": RNG.integers(0, 256, (1, 8, 1, 1)).astype(np.uint8)}
    expected, answers = Reference(model).run(x), ran(artifact, x)
    assert np.abs(answers["y"].astype(int) - expected["y"].astype(int)).max() <= 1
    assert np.array_equal(answers["f"], answers["y"].astype(np.float32))


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_integers_with_two_meanings_keep_both() -> None:
    """One int8 input, read by two scales: the second one is computed in primitives."""
    body = IN + "e = DequantizeLinear(x, t, z)\ny = Neg(d)\nf = Neg(e)"
    model = model_of("int8[6] x", body, SCALE + ", float t = {0.2}", "y, f")
    x = {"x": integers(6)}
    expected, answers = Reference(model).run(x), ran(compiled(model), x)
    for name in expected:
        assert np.allclose(answers[name], expected[name], rtol=1e-6)


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_int4_weights_are_held_as_int8() -> None:
    model = model_of("int8[1,8,4,4] x", CONV + OUT, f"{SCALE}, int8[4,8,1,1] wq, float ws = {{0.05}}")
    stored = RNG.integers(-8, 8, (4, 8, 1, 1)).astype(ml_dtypes.int4)
    weights = model.graph.initializers["wq"]
    weights.const_value = ir.tensor(stored)
    weights.dtype = ir.DataType.INT4
    artifact = compiled(model)
    assert ops_of(artifact) == {"CONV_2D": 1, "TRANSPOSE": 2}
    assert artifact.facts["float_islands"] == []
    same_as_reference(model, artifact, {"x": integers(1, 8, 4, 4)})


def test_requantizations_are_counted_and_said() -> None:
    body = "d = DequantizeLinear(x, s, z)\nr = Concat<axis=0>(d, d)\ny = QuantizeLinear(r, t, z)"
    model = model_of("int8[4] x", body, SCALE + ", float t = {0.1}")
    assert compiled(model).facts["requantizations"] == [
        {"node": "r", "why": "scale 0.0503, zero point 3 to scale 0.1, zero point 3"}
    ]
    assert [(f.code, f.node, f.message) for f in check_model(model, PROFILE)] == [
        (
            "EK1106",
            "r",
            "integers are given another scale, by a QUANTIZE of their own: "
            "scale 0.0503, zero point 3 to scale 0.1, zero point 3",
        )
    ]


def test_warnings_name_float_between_integers_and_plain_kernels() -> None:
    body = IN + "e = Softplus(d)\nq = QuantizeLinear(e, s, z)\nf = DequantizeLinear(q, s, z)\n"
    found = check_model(model_of("int8[4] x", body + "r = Max(f, d)" + OUT, SCALE), PROFILE)
    assert [(f.code, f.node, f.op, f.message) for f in found] == [
        ("EK1101", "r", "MAXIMUM", "XNNPACK does not support MAXIMUM of int8; a plain kernel runs it"),
        (
            "EK1105",
            "e",
            "Softplus",
            "it is computed in float between integers: EdgeKit has no integer kernel for Softplus",
        ),
    ]


def test_islands_are_told_apart_and_those_that_meet_are_one() -> None:
    body = IN + "a = Softplus(d)\nb = Exp(a)\nq = QuantizeLinear(b, s, z)\ne = DequantizeLinear(q, s, z)\n"
    body += "f = Softplus(e)\ng = Softplus(d)\nr = Add(f, g)"
    artifact = compiled(model_of("int8[4] x", body + OUT, SCALE))
    assert [(row["nodes"], row["converted_bytes"]) for row in artifact.facts["float_islands"]] == [
        (["a", "b"], 48),
        (["f", "g", "r"], 80),
    ]


def test_a_float_model_has_no_islands() -> None:
    assert "float_islands" not in compiled(model_of("float[4] x", "y = Exp(x)")).facts


@pytest.mark.parametrize(
    ("dtype", "name", "halves"),
    [("int4", "INT4", [("q", "x")]), ("float8e4m3fn", "FLOAT8E4M3FN", [("q", "x"), ("y", "q")])],
)
def test_a_pair_without_a_form_is_refused_by_name(
    dtype: str, name: str, halves: list[tuple[str, str]]
) -> None:
    weights = f"float s = {{0.05}}, {dtype} z = {{0}}"
    model = model_of("float[8] x", "q = QuantizeLinear(x, s, z)\ny = DequantizeLinear(q, s, z)", weights)
    with pytest.raises(UnsupportedError) as caught:
        compiled(model)
    assert [(f.code, f.node, f.message, f.fix) for f in caught.value.findings] == [
        (
            "EK1004",
            node,
            f"the pair at {value} stores {name}; TFLite supports int8, uint8 and int16",
            "quantize it to int8, or build it for ort",
        )
        for node, value in halves
    ]


def test_a_bias_beyond_32_bits_is_refused() -> None:
    body = IN + "w = DequantizeLinear(wq, ws)\nc = Conv(d, w, b)\nr = Relu(c)" + OUT
    weights = f"{SCALE}, {WEIGHTS}float ws = {{1e-9}}, float[4] b = {{1.0, 1.0, 1.0, 1.0}}"
    with pytest.raises(
        UnsupportedError, match="its bias does not fit 32 bits in steps of input scale x weigh"
    ):
        compiled(model_of("int8[1,8,4,4] x", body, weights))


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_channel_without_weights_takes_the_scale_that_its_bias_needs() -> None:
    body = IN + "w = DequantizeLinear<axis=0>(wq, ws)\nr = Conv(d, w, b)" + OUT
    weights = "int8[2,8,1,1] wq = {0,0,0,0,0,0,0,0,1,2,3,4,5,6,7,8}, float[2] ws = {1e-9, 0.01}, "
    model = model_of("int8[1,8,4,4] x", body, f"{SCALE}, {weights}float[2] b = {{2.0, -1.0}}")
    artifact = compiled(model)
    assert ops_of(artifact) == {"CONV_2D": 1, "TRANSPOSE": 2}
    same_as_reference(model, artifact, {"x": integers(1, 8, 4, 4)})


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize(("scale", "ops"), [
    ("0.2", {"ADD": 1}), ("20.0", {"ADD": 1, "DEQUANTIZE": 2, "QUANTIZE": 1})
])  # fmt: skip
def test_add_of_steps_that_the_kernel_overflows_with_stays_float(scale: str, ops: dict[str, int]) -> None:
    body = IN + "e = DequantizeLinear(t, ts, z)\nr = Add(d, e)" + OUT
    model = model_of("int8[40] x, int8[40] t", body, f"{SCALE}, float ts = {{{scale}}}")
    artifact = compiled(model)
    assert ops_of(artifact) == ops
    same_as_reference(model, artifact, {"x": integers(40), "t": integers(40)})


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("inside", [False, True], ids=["pairs around Flatten", "Flatten inside a pair"])
def test_a_flattened_image_is_multiplied_as_it_is_stored(inside: bool) -> None:
    body = CONV + "\nq = QuantizeLinear(r, s, z)\n"
    if inside:
        body += "g = Flatten(q)\nh = DequantizeLinear(g, s, z)\n"
    else:
        body += "e = DequantizeLinear(q, s, z)\nf = Flatten(e)\ng = QuantizeLinear(f, s, z)\n"
        body += "h = DequantizeLinear(g, s, z)\n"
    body += "v = DequantizeLinear<axis=1>(vq, vs)\nm = MatMul(h, v)\ny = QuantizeLinear(m, t, z)"
    drawn = ", ".join(str(v) for v in RNG.integers(-127, 128, 128))
    more = f"int8[64,2] vq = {{{drawn}}}, float[2] vs = {{0.01, 0.02}}, float t = {{0.3}}"
    model = model_of("int8[1,8,4,4] x", body, f"{SCALE}, {KERNEL}, {more}")
    artifact = compiled(model)
    ops = {code: n for code, n in ops_of(artifact).items() if code != "RESHAPE"}
    assert ops == {"CONV_2D": 1, "FULLY_CONNECTED": 1, "TRANSPOSE": 1}
    same_as_reference(model, artifact, {"x": integers(1, 8, 4, 4)})
