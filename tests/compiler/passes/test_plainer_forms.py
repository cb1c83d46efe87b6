"""Forms of ops that a target's kernels may lack, written with plainer ones: each against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.expand_functions import expand_functions
from tests.compiler.passes.meaning import Weight, answers, assert_same, folded, ops

pytestmark = pytest.mark.needs_ort


def _plainer(text: str, /, *gone: str, **weights: Weight) -> list[str]:
    """The ops after every node with a decomposition was written out, once; none of ``gone`` may be left."""
    model = folded(text, 23, **weights)
    want = answers(model)
    assert expand_functions(model, lambda node: True)
    assert_same(want, model, 100)
    assert not set(gone) & set(ops(model))
    return ops(model)


@pytest.mark.parametrize(
    ("y", "attributes"),
    [
        ("4,4", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1"),
        ("4,4", "kernel_shape = [3, 3], strides = [2, 2], ceil_mode = 1, count_include_pad = 1"),
        ("5,4", "kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 0], ceil_mode = 1"),
        ("5,4", "kernel_shape = [3, 2], strides = [2, 3], pads = [2, 1, 1, 1], count_include_pad = 1"),
        ("6,4", "kernel_shape = [3, 3], dilations = [1, 2]"),
        ("4,4", "kernel_shape = [3, 3], dilations = [2, 2], strides = [2, 2], pads = [1, 1, 1, 1]"),
    ],
)
@pytest.mark.parametrize("op", ["AveragePool", "LpPool <p = 3,", "LpPool <p = 2,", "LpPool <p = 1,"])
def test_windows(op: str, y: str, attributes: str) -> None:
    if "Lp" in op and "count" in attributes:
        pytest.skip("LpPool counts nothing")
    head = op if "<" in op else f"{op} <"
    _plainer(f"g (float[2,3,8,8] x) => (float[2,3,{y}] y) {{ y = {head} {attributes}> (x) }}", "LpPool")


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(
    "attributes", ["kernel_shape = [3, 2]", "kernel_shape = [2, 2], pads = [1, 0, 1, 1]"]
)
def test_indices_of_the_largest(attributes: str, order: int) -> None:
    y = "4,6" if "3, 2" in attributes else "7,7"
    text = f"""g (float[2,3,6,7] x) => (float[2,3,{y}] y, int64[2,3,{y}] at) {{
        y, at = MaxPool <{attributes}, storage_order = {order}> (x)
    }}"""
    _plainer(text, "MaxPool")


def test_the_largest_of_dilated_windows() -> None:
    text = """g (float[2,3,8,9] x) => (float[2,3,3,4] y) {
        y = MaxPool <kernel_shape = [3, 2], dilations = [2, 3], strides = [2, 2], pads = [1, 1, 1, 0]> (x)
    }"""
    assert "Max" in _plainer(text, "MaxPool")


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("2,4,5", "4,3,3", "2,3,11", "strides = [2]"),
        ("1,4,5,6", "4,3,3,2", "1,3,9,13", "strides = [2, 2], pads = [1, 0, 1, 0], output_padding = [0, 1]"),
        ("1,4,5,6", "4,2,3,3", "1,4,13,17", "strides = [2, 2], dilations = [2, 3], group = 2"),
        ("1,2,3,3", "2,3,1,1", "1,3,5,1", "strides = [3, 1], pads = [1, 1, 1, 1]"),
        ("1,2,2,3,4", "2,2,2,3,2", "1,2,4,7,5", "strides = [2, 2, 1]"),
        ("1,2,1,4", "2,2,3,3", "1,2,4,6", "output_padding = [1, 0], strides = [2, 1]"),
    ],
)
@pytest.mark.parametrize("computed", [True, False])
def test_transposed_convolutions(x: str, w: str, y: str, attributes: str, computed: bool) -> None:
    shape = [int(n) for n in w.split(",")]
    weights: dict[str, Weight] = {"b": np.arange(int(y.split(",")[1]), dtype=np.float32)}
    given = f", float[{w}] w" if computed else ""
    if not computed:
        weights["w"] = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    text = f"g (float[{x}] x{given}) => (float[{y}] y) {{ y = ConvTranspose <{attributes}> (x, w, b) }}"
    assert "Conv" in _plainer(text, "ConvTranspose", **weights)


@pytest.mark.parametrize("zero", ["uint8", "int8", "uint16"])
@pytest.mark.parametrize("axis", [None, 1])
def test_pairs(zero: str, axis: int | None) -> None:
    scale = np.array([0.1, 0.02, 0.3] if axis else 0.05, np.float32)
    point = np.array([3, 100, 0] if axis else 7, zero)
    text = f"""g (float[2,3,4] x) => ({zero}[2,3,4] q, float[2,3,4] y) {{
        q = QuantizeLinear <axis = 1> (x, s, z)
        y = DequantizeLinear <axis = 1> (q, s, z)
    }}"""
    _plainer(text, "QuantizeLinear", "DequantizeLinear", s=scale, z=point)


@pytest.mark.parametrize("training", [0, 1])
def test_batch_normalization_by_what_the_model_computes(training: int) -> None:
    outs = ", float[3] rm, float[3] rv" if training else ""
    text = f"""g (float[2,3,4,5] x, float[3] s, float[3] b, float[3] m, float[3] v0) =>
        (float[2,3,4,5] y{outs}) {{
        v = Abs (v0)
        y{", rm, rv" * training} = BatchNormalization
            <training_mode = {training}, momentum = 0.7> (x, s, b, m, v)
    }}"""
    _plainer(text, "BatchNormalization")


@pytest.mark.parametrize("op", ["BitwiseAnd", "BitwiseOr", "BitwiseXor"])
@pytest.mark.parametrize("kind", ["int32", "int16", "uint8"])
def test_bits(op: str, kind: str) -> None:
    limits = np.iinfo(kind)
    special = np.array([limits.min, limits.max, 0, 1, limits.max // 3], kind)
    _plainer(f"g ({kind}[5,1] x) => ({kind}[5,5] y) {{ y = {op} (x, w) }}", op, w=special)


@pytest.mark.parametrize("kind", ["int32", "uint8", "int16"])
def test_all_bits(kind: str) -> None:
    assert _plainer(f"g ({kind}[7] x) => ({kind}[7] y) {{ y = BitwiseNot (x) }}") == ["Sub"]


@pytest.mark.parametrize(
    "attributes", ["", "<reverse = 1>", "<exclusive = 1>", "<exclusive = 1, reverse = 1>"]
)
def test_running_sums_of_integers(attributes: str) -> None:
    text = f"g (int64[2,5,3] x) => (int64[2,5,3] y) {{ y = CumSum {attributes} (x, a) }}"
    _plainer(text, "CumSum", a=np.array(1))


@pytest.mark.parametrize(
    ("a", "b", "y"), [("int32[2,3,4]", "int32[4,5]", "2,3,5"), ("int32[4]", "int32[2,4,5]", "2,5"),
                      ("float[4]", "float[2,4,5]", "2,5"), ("int32[3,4]", "int32[4]", "3")],
)  # fmt: skip
def test_products(a: str, b: str, y: str) -> None:
    kind = a.split("[")[0]
    _plainer(f"g ({a} a, {b} b) => ({kind}[{y}] y) {{ y = MatMul (a, b) }}")


@pytest.mark.parametrize(("x", "axis"), [("4,5", 0), ("4,5", -1), ("2,3,4", 1), ("6", 0)])
def test_hardmax(x: str, axis: int) -> None:
    _plainer(f"g (float[{x}] x) => (float[{x}] y) {{ y = Hardmax <axis = {axis}> (x) }}", "Hardmax")


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_the_place_in_a_vector(op: str, keep: int) -> None:
    y = "[1]" if keep else "[]"
    _plainer(f"g (float[6] x) => (int64{y} y) {{ y = {op} <keepdims = {keep}> (x) }}")


@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
def test_reversed_sequences(time: int, batch: int) -> None:
    lengths = np.array([1, 4, 2, 3])
    text = f"""g (float[4,4,3] x) => (float[4,4,3] y) {{
        y = ReverseSequence <time_axis = {time}, batch_axis = {batch}> (x, n)
    }}"""
    _plainer(text, "ReverseSequence", n=lengths)


def test_padding_by_a_computed_number() -> None:
    text = "g (float[2,3] x, float v) => (float[3,5] y) { y = Pad (x, p, v) }"
    assert "Where" in _plainer(text, p=np.array([1, 0, 0, 2]))


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scattering_with_a_reduction(reduction: str) -> None:
    text = f"""g (float[4,5,2] x, float[3,2] u, float[2,3,2] v) => (float[4,5,2] y, float[4,5,2] z) {{
        y = ScatterND <reduction = "{reduction}"> (x, i, u)
        z = ScatterElements <reduction = "{reduction}", axis = 1> (x, j, v)
    }}"""
    at = np.array([[1, 2], [-1, 0], [1, 2]])
    along = np.array([[[0, 1], [0, -1], [4, 2]], [[3, 3], [3, 3], [0, 1]]])
    _plainer(text, "ScatterND", "ScatterElements", i=at, j=along)


def test_booleans() -> None:
    text = """g (float[3,4] x, float[3,4] t) => (bool[3] a, bool[3,4] b) {
        p = Less (x, t) q = Greater (x, zero) a = ReduceMax <keepdims = 0> (p, axes) b = Equal (p, q)
    }"""
    left = _plainer(text, "Equal", zero=np.array(0, np.float32), axes=np.array([1]))
    assert "Cast" in left


def test_what_is_plain_stays() -> None:
    pool = "g (float[2,3,8,8] x) => (float[2,3,7,7] y) {{ y = {} <kernel_shape = [2, 2]> (x) }}"
    for text in (
        pool.format("AveragePool"),
        pool.format("MaxPool"),
        "g (float[2,3] x, float[3,4] w) => (float[2,4] y) { y = MatMul (x, w) }",
        "g (float[2,3] x) => (bool[2,3] y) { y = Equal (x, x) }",
    ):
        model = folded(text, 23)
        assert not expand_functions(model, lambda node: True)


def test_axes_that_nothing_separates_are_merged() -> None:
    text = """g (float[2,3,2,2,3,2,2] x, float[3,1,1,1,1,1] s, int64[2,3,2,2,3,2,2] i0) =>
        (float[2,3,2,2,3,2,2] y, float[2,2,2,3,2,2] z, float[2,1,2,2,3,2,2] r, float[2,3,2,2,3,2,2] l) {
        i = Mod (i0, three) n = Neg (x) m = Mul (n, s) y = GatherElements <axis = 1> (m, i)
        z = Gather <axis = 1> (m, one) r = ReduceSum (m, axis) l = LogSoftmax <axis = 1> (m)
    }"""
    weights = {"three": np.array(3), "one": np.array(1), "axis": np.array([1])}
    model = folded(text, 23, **weights)
    want = answers(model)
    assert expand_functions(model, lambda node: True)
    assert_same(want, model)
    widest = [
        len(value.shape or ())
        for node in model.graph
        if node.op_type not in ("Reshape", "Identity", "Mod")
        for value in node.outputs
    ]
    assert max(widest) <= 5


SEVEN = "2,3,2,2,3,2,2"


@pytest.mark.parametrize(
    ("out", "node"),
    [
        (SEVEN, "LayerNormalization <axis = 5> (x, w, w)"),
        (SEVEN, "InstanceNormalization (x, three, three)"),
        (SEVEN, "LpNormalization <axis = 4> (x)"),
        ("2,3,2,4,3,2,2", "Concat <axis = 3> (x, x)"),
        ("2,3,2,2,3,2,4", "MatMul (x, m)"),
        ("2,3,2,2,3,2,4", "MatMul (x, k)"),
        ("2,3,3,2,3,2,4", "Pad (x, pads)"),
        ("2,1,2,1,3,1,2", "ReduceSum (x, apart)"),
        ("2,3,1,2,3,2,2", "ReduceL2 (x, two)"),
    ],
)
def test_seven_axes(out: str, node: str) -> None:
    rng = np.random.default_rng(5)
    weights: dict[str, Weight] = {
        "w": rng.standard_normal((2, 2)).astype(np.float32),
        "three": rng.standard_normal(3).astype(np.float32),
        "m": rng.standard_normal((2, 4)).astype(np.float32),
        "k": rng.standard_normal((2, 1, 1, 2, 4)).astype(np.float32),
        "pads": np.array([0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]),
        "apart": np.array([1, 3, 5]),
        "two": np.array([2]),
    }
    names = node.partition("(")[2].strip(")").split(", ")
    used = {name: weight for name, weight in weights.items() if name in names}
    model = folded(f"g (float[{SEVEN}] x) => (float[{out}] y) {{ y = {node} }}", 23, **used)
    want = answers(model)
    assert expand_functions(model, lambda node: True)
    assert_same(want, model)
    assert all(
        len(value.shape or ()) <= 5 for n in model.graph for value in n.outputs if n.op_type not in ENDS
    )


ENDS = ("Reshape", "Identity")
