"""Our own bodies of ops, each against ONNX Runtime's kernel for the op."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.newer_opsets import newest_known
from edgekit.compiler.passes.decompositions.linear_algebra import MOST_ROWS
from edgekit.compiler.passes.decompositions.recurrent import MOST_STEPS
from edgekit.compiler.passes.expand_functions import expand_functions
from edgekit.diagnostics import Inexpressible
from tests.compiler.passes.meaning import Weight, answers, assert_same, folded
from tests.compiler.passes.written_out import written_out

pytestmark = pytest.mark.needs_ort

GRID = "g (float[2,3,{x}] x, float[2,{g}] t) => (float[2,3,{y}] y) {{ y = GridSample <{a}> (x, t) }}"
PLANE = {"x": "4,5", "g": "3,4,2", "y": "3,4"}
SPACE = {"x": "3,4,5", "g": "2,3,4,3", "y": "2,3,4"}
TFIDF = """g (int64[{x}] x) => (float[{y}] y) {{
    y = TfIdfVectorizer <mode = "{mode}", min_gram_length = {least}, max_gram_length = 2,
        max_skip_count = {skip}, ngram_counts = [0, 3], ngram_indexes = [1, 5, 0, 3, 2],
        pool_int64s = [0, 1, 2, 0, 1, 1, 0],
        weights = [1.0, 2.0, 0.5, 4.0, 3.0]> (x)
}}"""


def refusal(model: ir.Model) -> str:
    reasons: dict[str, Inexpressible] = {}
    assert not expand_functions(model, lambda node: True, reasons=reasons)
    (reason,) = reasons.values()
    return reason.reason


@pytest.mark.parametrize("size", range(1, MOST_ROWS + 1))
def test_det(size: int) -> None:
    written_out(f"g (float[2,3,{size},{size}] x) => (float[2,3] y) {{ y = Det (x) }}", 100)


def test_det_of_one_matrix_and_of_a_large_one() -> None:
    written_out("g (float[3,3] x) => (float[] y) { y = Det (x) }")
    size = MOST_ROWS + 1
    large = folded(f"g (float[{size},{size}] x) => (float[] y) {{ y = Det (x) }}")
    assert not expand_functions(large, lambda node: True)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [("linear", PLANE), ("nearest", PLANE), ("cubic", PLANE), ("linear", SPACE), ("nearest", SPACE)],
)
def test_grid_sample(mode: str, shape: dict[str, str], padding: str, aligned: int) -> None:
    attributes = f'mode = "{mode}", padding_mode = "{padding}", align_corners = {aligned}'
    written_out(GRID.format(a=attributes, **shape), 100)


def test_grid_sample_of_a_single_pixel() -> None:
    written_out(GRID.format(x="1,1", g="3,4,2", y="3,4", a='padding_mode = "reflection", align_corners = 1'))


@pytest.mark.parametrize(
    ("out", "attributes"),
    [
        ("4,5", "strides = [1, 1]"),
        ("2,3", "strides = [2, 2], kernel_shape = [3, 2]"),
        ("6,4", "pads = [1, 0, 1, 0], dilations = [1, 2], kernel_shape = [3, 2]"),
        ("6,7", "pads = [1, 1, 1, 1]"),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_deform_conv(out: str, attributes: str, masked: bool) -> None:
    taps = 3 * 2
    text = f"""g (float[2,4,6,6] x, float[2,{4 * taps},{out}] offset, float[2,{2 * taps},{out}] mask) =>
        (float[2,6,{out}] y) {{
        y = DeformConv <offset_group = 2, group = 2, {attributes}> (x, w, offset, b {", mask" * masked})
    }}"""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((6, 2, 3, 2)).astype(np.float32)
    left = written_out(text, 100, w=w, b=rng.standard_normal(6).astype(np.float32))
    assert left.count("GridSample") == 2


@pytest.mark.parametrize(
    ("x", "image", "block", "attributes"),
    [
        ("2,8,12", [4, 5], [2, 2], "strides = [1, 1]"),
        ("1,8,6", [5, 6], [2, 2], "strides = [2, 2], pads = [0, 0, 0, 0]"),
        ("1,8,12", [4, 6], [2, 2], "dilations = [1, 2], pads = [0, 0, 0, 0]"),
        ("1,8,16", [3, 4], [2, 2], "pads = [1, 0, 1, 1], strides = [1, 1]"),
        ("1,24,12", [4, 2, 3], [2, 1, 2], "strides = [1, 1, 1]"),
    ],
)
def test_col2im(x: str, image: list[int], block: list[int], attributes: str) -> None:
    channels = int(x.split(",")[1]) // int(np.prod(block))
    text = f"""g (float[{x}] x) => (float[{x.split(",")[0]},{channels},{",".join(map(str, image))}] y) {{
        y = Col2Im <{attributes}> (x, image, block)
    }}"""
    written_out(text, image=np.array(image), block=np.array(block))


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", [", , , , p", "b, , , , p", ", , h, c, p", ", , h, c", "b", "b, n, h, c"])
def test_lstm(direction: str, given: str) -> None:
    both = 2 if direction == "bidirectional" else 1
    rng = np.random.default_rng(0)
    shapes = {"w": (both, 12, 4), "r": (both, 12, 3), "b": (both, 24), "p": (both, 9)}
    shapes |= {"h": (both, 2, 3), "c": (both, 2, 3)}
    weights: dict[str, Weight] = {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
        if name in ("w", "r") or name in given
    }
    if "n" in given:
        weights["n"] = np.array([2, 5], np.int32)
    written_out(
        f"""g (float[5,2,4] x) => (float[5,{both},2,3] y, float[{both},2,3] yh, float[{both},2,3] yc) {{
        y, yh, yc = LSTM <hidden_size = 3, direction = "{direction}"> (x, w, r, {given})
    }}""",
        100,
        **weights,
    )


ACTIVATIONS = {  # of an LSTM: f, g, h
    "usual": "",
    "clipped": "clip = 0.3",
    "elu": 'activations = ["Relu", "Elu", "Softsign"], activation_alpha = [0.5]',
    "hard": """activations = ["HardSigmoid", "Affine", "LeakyRelu"],
        activation_alpha = [0.3, 0.7, 0.2], activation_beta = [0.4, 0.1]""",
    "scaled": """activations = ["sigmoid", "ScaledTanh", "ThresholdedRelu"],
        activation_alpha = [0.7, 0.2], activation_beta = [0.6]""",
}


@pytest.mark.parametrize("activations", ["usual", "elu", "hard", "scaled"])
@pytest.mark.parametrize("coupled", [0, 1])
def test_lstm_of_other_gates(activations: str, coupled: int) -> None:
    text = f"""g (float[5,2,4] x) => (float[5,1,2,3] y, float[1,2,3] yh, float[1,2,3] yc) {{
        y, yh, yc = LSTM <hidden_size = 3, input_forget = {coupled}{", " * bool(ACTIVATIONS[activations])}
            {ACTIVATIONS[activations]}> (x, w, r, b)
    }}"""
    weights = _weights(4)
    del weights["h"]
    written_out(text, 100, **weights)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "gates", "attributes"),
    [
        ("GRU", 3, "linear_before_reset = 0"),
        ("GRU", 3, "linear_before_reset = 1"),
        ("GRU", 3, ACTIVATIONS["clipped"]),
        ("RNN", 1, ACTIVATIONS["clipped"]),
    ],
)
@pytest.mark.parametrize("given", ["", "b, , h", "b, n, h"])
def test_gru_and_rnn(direction: str, op: str, gates: int, attributes: str, given: str) -> None:
    both = 2 if direction == "bidirectional" else 1
    weights = {n: array for n, array in _weights(gates, both).items() if n in ("w", "r") or n in given}
    if "n" in given:
        weights["n"] = np.array([2, 5], np.int32)
    text = f"""g (float[5,2,4] x) => (float[5,{both},2,3] y, float[{both},2,3] yh) {{
        y, yh = {op} <hidden_size = 3, direction = "{direction}", {attributes}> (x, w, r, {given})
    }}"""
    written_out(text, 100, **weights)


@pytest.mark.parametrize(("op", "gates"), [("GRU", 3), ("RNN", 1)])
def test_a_clip_in_float16(op: str, gates: int) -> None:
    weights = {
        name: np.asarray(array, np.float16) for name, array in _weights(gates).items() if name in ("w", "r")
    }
    left = written_out(
        f"""g (float16[5,2,4] x) => (float16[5,1,2,3] y) {{
            y = {op} <hidden_size = 3, clip = 0.3> (x, w, r)
        }}""",
        50,
        **weights,
    )
    assert "Clip" in left


def _weights(gates: int, directions: int = 1) -> dict[str, Weight]:
    rng = np.random.default_rng(0)
    shapes = {"w": (gates * 3, 4), "r": (gates * 3, 3), "b": (2 * gates * 3,), "h": (2, 3)}
    return {
        name: rng.standard_normal((directions, *shape)).astype(np.float32) for name, shape in shapes.items()
    }


def test_batches_first_are_batches_second_turned() -> None:
    """ONNX Runtime has no kernel for layout 1."""
    weights = _weights(3)
    del weights["h"]
    x, h = "float[{}] x, float[{}] h", "y, yh = GRU <hidden_size = 3, layout = {}> (x, w, r, b, , h)"
    first = folded(
        f"g ({x.format('2,5,4', '2,1,3')}) => (float[2,5,1,3] y, float[2,1,3] yh) {{ {h.format(1)} }}",
        23,
        **weights,
    )
    second = folded(
        f"""g ({x.format("2,5,4", "2,1,3")}) => (float[2,5,1,3] y, float[2,1,3] yh) {{
            xt = Transpose <perm = [1, 0, 2]> (x)
            ht = Transpose <perm = [1, 0, 2]> (h)
            yt, yht = GRU <hidden_size = 3> (xt, w, r, b, , ht)
            y = Transpose <perm = [2, 0, 1, 3]> (yt)
            yh = Transpose <perm = [1, 0, 2]> (yht)
        }}""",
        23,
        **weights,
    )
    assert expand_functions(first, lambda node: True)
    assert_same(answers(second), first, 100)


@pytest.mark.parametrize(
    ("attributes", "steps", "why"),
    [
        ("hidden_size = 3", 257, "it has 257 steps; at most 256 are unrolled"),
        ("hidden_size = 3, clip = 0.5", 2, "an LSTM with clip is not supported"),
    ],
)
def test_what_is_not_unrolled_says_why(attributes: str, steps: int, why: str) -> None:
    model = folded(
        f"""g (float[{steps},1,4] x, float[1,12,4] w, float[1,12,3] r) => (float[{steps},1,1,3] y)
        {{ y = LSTM <{attributes}> (x, w, r) }}"""
    )
    assert refusal(model) == why


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bqhd,bkhd->bhqk", ["2,3,2,5", "2,4,2,5"]),
        ("bsd,dhk->bhsk", ["1,3,8", "8,2,4"]),
        ("i,j->ij", ["3", "4"]),
        ("bi,bj->bij", ["2,3", "2,4"]),
        ("ij,ij->", ["3,4", "3,4"]),
        ("bij,bij->b", ["2,3,4", "2,3,4"]),
        ("ij,jk,kl->il", ["2,3", "3,4", "4,5"]),
        ("ij,jk,ik->i", ["2,3", "3,4", "2,4"]),
        ("iij->j", ["3,3,4"]),
        ("bii->bi", ["2,3,3"]),
        ("...ij,...jk->...ik", ["2,5,3,4", "2,5,4,2"]),
        ("ab...,bc...->ac...", ["2,3,4", "3,5,4"]),
        ("abcde,abcef->abcdf", ["2,3,2,4,5", "2,3,2,5,3"]),
        ("ij,jk", ["2,3", "3,4"]),
        ("ji", ["2,3"]),
        ("ij->ji", ["2,3"]),
        ("ijk,ilm->jl", ["2,3,4", "2,5,2"]),
    ],
)
def test_einsum(equation: str, shapes: list[str]) -> None:
    inputs = ", ".join(f"float[{shape}] x{k}" for k, shape in enumerate(shapes))
    names = ", ".join(f"x{k}" for k in range(len(shapes)))
    arrays = [np.zeros(tuple(map(int, shape.split(",")))) for shape in shapes]
    out = ",".join(map(str, np.einsum(equation, *arrays).shape))
    text = f'g ({inputs}) => (float[{out}] y) {{ y = Einsum <equation = "{equation}"> ({names}) }}'
    written_out(text)


def test_max_unpool() -> None:
    text = """g (float[1,2,4,4] x) => (float[1,2,4,4] y) {
        small, places = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
        y = MaxUnpool <kernel_shape = [2, 2], strides = [2, 2]> (small, places)
    }"""
    assert "ScatterElements" in written_out(text)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize(("least", "skip"), [(1, 0), (1, 2), (2, 5)])
@pytest.mark.parametrize(("x", "y"), [("6", "6"), ("3,6", "3,6")])
def test_tfidf(mode: str, least: int, skip: int, x: str, y: str) -> None:
    written_out(TFIDF.format(mode=mode, least=least, skip=skip, x=x, y=y))


@pytest.mark.parametrize("zeros", ["", "x", "xw"])
def test_integer_products(zeros: str) -> None:
    """Weights of 7 bits: with more, ONNX Runtime's own sums of pairs saturate on chips without VNNI."""
    rng = np.random.default_rng(0)
    text = "".join(f", z{name}" for name in zeros)
    given: dict[str, Weight] = {"zx": np.array(12, np.uint8)} if "x" in zeros else {}
    columns: dict[str, Weight] = {"zw": np.array([3, -4, 5], np.int8)} if "w" in zeros else {}
    written_out(
        f"g (uint8[2,7] x) => (int32[2,3] y) {{ y = MatMulInteger (x, w{text}) }}",
        110,
        w=rng.integers(-64, 63, (7, 3), np.int8),
        **given,
        **columns,
    )
    one: dict[str, Weight] = {"zw": np.array(7, np.int8)} if "w" in zeros else {}
    written_out(
        f"g (uint8[1,2,5,5] x) => (int32[1,3,4,4] y) {{ y = ConvInteger (x, w{text}) }}",
        110,
        w=rng.integers(-64, 63, (3, 2, 2, 2), np.int8),
        **given,
        **one,
    )


def test_sums_that_float32_does_not_hold_are_left() -> None:
    text = "g (uint8[1,259] x, uint8[259,1] w) => (int32[1,1] y) { y = MatMulInteger (x, w) }"
    assert not expand_functions(folded(text), lambda node: True)


def test_quantized_products_become_pairs() -> None:
    rng = np.random.default_rng(0)
    numbers: dict[str, Weight] = {
        "sx": 0.02, "zx": np.array(120, np.uint8), "sy": 0.3, "zy": np.array(100, np.uint8),
    }  # fmt: skip
    left = written_out(
        """g (uint8[1,2,5,5] x) => (uint8[1,3,5,5] y) {
        y = QLinearConv <pads = [1, 1, 1, 1]> (x, sx, zx, w, sw, zw, sy, zy, b) }""",
        40,
        **numbers,
        sw=[0.01, 0.02, 0.03],
        zw=np.zeros(3, np.int8),
        w=rng.integers(-64, 63, (3, 2, 3, 3), np.int8),
        b=rng.integers(-500, 500, 3, np.int32),
    )
    assert left == ["DequantizeLinear", "DequantizeLinear", "Conv", "QuantizeLinear"]
    left = written_out(
        "g (uint8[2,7] x) => (uint8[2,3] y) { y = QLinearMatMul (x, sx, zx, w, one, none, sy, zy) }",
        40,
        **numbers,
        one=0.02,
        w=rng.integers(-64, 63, (7, 3), np.int8),
        none=np.array(0, np.int8),
    )
    assert left == ["DequantizeLinear", "DequantizeLinear", "MatMul", "QuantizeLinear"]


@pytest.mark.parametrize("k", [-1, 0, 2])
def test_eye_like(k: int) -> None:
    text = f"g (float[3,5] x) => (int32[3,5] y) {{ y = EyeLike <dtype = 6, k = {k}> (x) }}"
    written_out(text)


@pytest.mark.skipif(newest_known() < 27, reason="needs an onnx that knows opset 27")
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("state", ["", "float[2,2,4,3] s, "])
def test_linear_attention(rule: str, state: str) -> None:
    """Against ONNX Runtime's kernel: two query heads for each key head, with and without a past state."""
    given = ", s" if state else ", "
    decay = ", g" if "gated" in rule else ", "
    beta = ", t" if "delta" in rule else ""
    extra = ("float[2,5,8] g, " if "gated" in rule else "") + ("float[2,5,2] t, " if "delta" in rule else "")
    text = f"""g ({state}{extra}float[2,5,16] q, float[2,5,8] k, float[2,5,6] v)
        => (float[2,5,12] y, float[2,2,4,3] z)
        {{ y, z = LinearAttention <q_num_heads=4, kv_num_heads=2, update_rule="{rule}">
        (q, k, v{given}{decay}{beta}) }}"""
    model = folded(text, opset=27)
    before = answers(model)
    assert expand_functions(model, lambda node: True)
    assert "LinearAttention" not in {node.op_type for node in model.graph}
    assert_same(before, model, 100)


@pytest.mark.skipif(newest_known() < 27, reason="needs an onnx that knows opset 27")
def test_a_long_recurrence_says_why() -> None:
    steps = MOST_STEPS + 1
    text = f"""g (float[1,{steps},4] q, float[1,{steps},4] k, float[1,{steps},4] v, float[1,{steps},4] g)
        => (float[1,{steps},4] y, float[1,1,4,4] z)
        {{ y, z = LinearAttention <q_num_heads=1, kv_num_heads=1, update_rule="gated"> (q, k, v, , g) }}"""
    assert refusal(folded(text, opset=27)) == "its recurrence has 257 steps; at most 256 are unrolled"
