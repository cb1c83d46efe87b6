"""Bodies of attention, normalizations and convolutions, each against ONNX Runtime's kernel for the op."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.expand_functions import expand_functions
from tests.compiler.passes.meaning import Weight, answers, assert_same, folded, ops
from tests.compiler.passes.written_out import written_out

pytestmark = pytest.mark.needs_ort

QKV = {
    "apart": ("1,4,3,8", "1,2,5,8", "1,2,5,6", "1,4,3,6"),
    "packed": ("1,3,32", "1,5,16", "1,5,12", "1,3,24"),
}


@pytest.mark.parametrize("heads", QKV)
@pytest.mark.parametrize(
    ("attributes", "mask"),
    [
        ("scale = 0.3", ""),
        ("is_causal = 1", ""),
        ("softcap = 1.5", "float[3,5] m"),
        ("is_causal = 1", "bool[3,5] m"),
        ("scale = 1.0", "float[1,4,3,5] m"),
    ],
)
def test_attention(heads: str, attributes: str, mask: str) -> None:
    q, k, v, y = QKV[heads]
    counts = ", q_num_heads = 4, kv_num_heads = 2" * (heads == "packed")
    left = written_out(
        f"""g (float[{q}] q, float[{k}] k, float[{v}] v{", " * bool(mask)}{mask}) => (float[{y}] y) {{
            y = Attention <{attributes}{counts}> (q, k, v{", m" * bool(mask)})
        }}"""
    )
    assert left.count("MatMul") == 2


def test_a_row_that_sees_nothing_is_zero() -> None:
    mask = np.array([[True, False, True], [False, False, False]])
    text = "g (float[1,1,2,4] q, float[1,1,3,4] k, float[1,1,3,4] v) => (float[1,1,2,4] y) {{ y = {} }}"
    model = folded(text.format("Attention (q, k, v, m)"), m=mask)
    assert expand_functions(model, lambda node: True)
    for each in answers(model):
        assert np.any(each["y"][0, 0, 0])
        assert not np.any(each["y"][0, 0, 1])
    assert ops(model).count("Where") == 2
    seeing = folded(text.format("Attention (q, k, v, m)"), m=mask | [[False], [True]])
    assert expand_functions(seeing, lambda node: True)
    assert ops(seeing).count("Where") == 1


def test_an_attention_with_a_past_is_the_function_of_onnx() -> None:
    model = folded(
        """g (float[1,2,3,8] q, float[1,2,4,8] k, float[1,2,4,8] v, float[1,2,5,8] pk, float[1,2,5,8] pv) =>
        (float[1,2,3,8] y, float[1,2,9,8] k2, float[1,2,9,8] v2) {
            y, k2, v2 = Attention (q, k, v, , pk, pv)
        }"""
    )
    want = answers(model)
    assert expand_functions(model, lambda node: True)
    assert "Attention" not in ops(model)
    assert_same(want, model, 100)


def test_normalizations() -> None:
    rng = np.random.default_rng(0)
    left = written_out(
        "g (float[2,6,4,3] x) => (float[2,6,4,3] y) {"
        " y = GroupNormalization <num_groups = 3, epsilon = 0.01> (x, s, b) }",
        s=rng.standard_normal(6).astype(np.float32),
        b=rng.standard_normal(6).astype(np.float32),
    )
    assert "InstanceNormalization" in left
    for axis, shape in ((-1, (8,)), (1, (5, 8))):
        written_out(
            f"g (float[2,5,8] x) => (float[2,5,8] y) {{ y = RMSNormalization <axis = {axis}> (x, s) }}",
            s=rng.standard_normal(shape).astype(np.float32),
        )


def test_a_square_beyond_float16() -> None:
    left = written_out(
        "g (float16[2,8] x) => (float16[2,8] y) { k = Mul (x, c) y = RMSNormalization (k, s) }",
        60,
        c=np.array(1000, np.float16),
        s=np.linspace(0.5, 2, 8).astype(np.float16),
    )
    assert left == ["Mul", "Cast", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Cast", "Mul"]


@pytest.mark.parametrize(
    ("y", "attributes"),
    [
        ("2,6,3,4,4", ""),
        ("2,6,5,6,6", "pads = [1, 1, 1, 1, 1, 1]"),
        ("2,6,2,2,3", "strides = [2, 2, 2], pads = [0, 0, 1, 0, 0, 1]"),
        ("2,6,4,4,2", "dilations = [2, 1, 2], pads = [2, 0, 0, 1, 0, 0]"),
    ],
)
@pytest.mark.parametrize("biased", [False, True])
def test_conv_over_three_axes(y: str, attributes: str, biased: bool) -> None:
    rng = np.random.default_rng(0)
    bias: dict[str, Weight] = {"b": rng.standard_normal(6).astype(np.float32)} if biased else {}
    left = written_out(
        f"g (float[2,4,5,6,6] x) => (float[{y}] y) {{"
        f" y = Conv <group = 2{', ' * bool(attributes)}{attributes}> (x, w{', b' * biased}) }}",
        w=rng.standard_normal((6, 2, 3, 3, 3)).astype(np.float32),
        **bias,
    )
    assert left.count("Conv") == 3


def test_a_conv_over_two_axes_is_left() -> None:
    text = "g (float[1,2,5,5] x, float[3,2,3,3] w) => (float[1,3,3,3] y) { y = Conv (x, w) }"
    assert not expand_functions(folded(text), lambda node: True)
