from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import dims_of, ints_of
from edgekit.compiler.model.shape_inference import infer_shapes
from edgekit.compiler.passes.explicit_padding import explicit_padding
from tests.compiler.passes.meaning import model_of, rewritten

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("rule", "size", "attributes", "out", "pads"),
    [
        ("SAME_UPPER", 8, "strides=[2,2]", 4, [0, 0, 1, 1]),
        ("SAME_LOWER", 8, "strides=[2,2]", 4, [1, 1, 0, 0]),
        ("SAME_UPPER", 7, "strides=[1,1]", 7, [1, 1, 1, 1]),
        ("VALID", 7, "strides=[2,2]", 3, [0, 0, 0, 0]),
    ],
)
def test_conv(rule: str, size: int, attributes: str, out: int, pads: list[int]) -> None:
    text = f"""g (float[1,2,{size},{size}] x) => (float[1,3,{out},{out}] y) {{
        y = Conv <auto_pad="{rule}", {attributes}> (x, w) }}"""
    model = model_of(text, w=np.random.default_rng(0).standard_normal((3, 2, 3, 3)).astype(np.float32))
    assert rewritten(model, explicit_padding) == ["Conv"]
    assert ints_of(model.graph[0], "pads") == pads
    assert "auto_pad" not in model.graph[0].attributes


def test_a_dilated_kernel_reaches_further() -> None:
    """ONNX Runtime has no such Conv; the numbers are those of ONNX's formula."""
    text = """g (float[1,1,7] x) => (float[1,1,7] y) { y = Conv <auto_pad="SAME_UPPER", dilations=[2]> (x, w)
    }"""
    model = model_of(text, w=np.ones((1, 1, 3), np.float32))
    assert explicit_padding(model)
    assert ints_of(model.graph[0], "pads") == [2, 2]


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_pools(op: str) -> None:
    model = model_of(f"""g (float[1,2,8,8] x) => (float[1,2,4,4] y) {{
        y = {op} <auto_pad="SAME_UPPER", kernel_shape=[3,3], strides=[2,2]> (x) }}""")
    assert rewritten(model, explicit_padding) == [op]
    assert ints_of(model.graph[0], "pads") == [0, 0, 1, 1]


def test_numbers_stay() -> None:
    text = "g (float[1,1,8] x) => (float[1,1,8] y) { y = MaxPool <kernel_shape=[3], pads=[1,1]> (x) }"
    assert rewritten(model_of(text), explicit_padding) == ["MaxPool"]


@pytest.mark.parametrize(
    ("rule", "attributes", "out", "pads"),
    [
        ("SAME_UPPER", "strides=[2,2]", "10,10", [0, 0, 1, 1]),
        ("SAME_LOWER", "strides=[2,2]", "10,10", [1, 1, 0, 0]),
        ("SAME_UPPER", "strides=[2,2], output_padding=[1,0]", "9,8", [1, 1, 2, 2]),
        ("SAME_UPPER", "strides=[2,2], dilations=[2,1]", "10,10", [1, 0, 2, 1]),
    ],
)
def test_a_transposed_conv_of_an_output_shape(rule: str, attributes: str, out: str, pads: list[int]) -> None:
    text = f"""g (float[1,2,5,5] x) => (float[1,3,{out}] y) {{
        y = ConvTranspose <auto_pad="{rule}", {attributes}, output_shape=[{out}]> (x, w) }}"""
    model = model_of(text, w=np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32))
    assert rewritten(model, explicit_padding) == ["ConvTranspose"]
    assert ints_of(model.graph[0], "pads") == pads
    assert not {"auto_pad", "output_shape"} & set(model.graph[0].attributes)


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("kernel", "attributes", "out"),
    [
        (3, "strides=[2,2]", "10,10"),
        (3, "strides=[2,2], output_padding=[1,1]", "10,10"),
        (4, "strides=[3,2], output_padding=[2,0]", "15,10"),
        (2, "strides=[2,2], dilations=[3,1], output_padding=[0,1]", "10,10"),
        (1, "strides=[3,2], output_padding=[1,1]", "14,10"),
    ],
)
def test_a_transposed_conv_of_input_times_stride(rule: str, kernel: int, attributes: str, out: str) -> None:
    text = f"""g (float[1,2,5,5] x) => (float[1,3,{out}] y) {{
        y = ConvTranspose <auto_pad="{rule}", {attributes}> (x, w) }}"""
    weights = np.random.default_rng(0).standard_normal((2, 3, kernel, kernel)).astype(np.float32)
    model = model_of(text, w=weights)
    infer_shapes(model)
    assert dims_of(model.graph.outputs[0]) == (1, 3, *map(int, out.split(",")))
    assert rewritten(model, explicit_padding) == ["ConvTranspose"]
    assert "pads" in model.graph[0].attributes


@pytest.mark.parametrize(
    ("attributes", "out"),
    [
        ("strides=[2,2], output_shape=[10,10]", "10,10"),
        ('auto_pad="SAME_UPPER", strides=[2,2], output_shape=[13,13]', "13,13"),
    ],
    ids=["no_rule", "out_of_reach"],
)
def test_other_transposed_convs_stay(attributes: str, out: str) -> None:
    text = f"g (float[1,2,5,5] x) => (float[1,3,{out}] y) {{ y = ConvTranspose <{attributes}> (x, w) }}"
    assert not explicit_padding(model_of(text, w=np.ones((2, 3, 3, 3), np.float32)))


COUNTED = "kernel_shape=[3,3], strides=[2,2], ceil_mode=1, count_include_pad=1"


@pytest.mark.parametrize(
    ("size", "pads", "out"), [("8,8", "1,1,1,1", "5,5"), ("7,8", "1,1,0,0", "4,4"), ("8,9", "0,2,0,1", "4,6")]
)
@pytest.mark.needs_ort_after_1_23
def test_an_average_that_hangs_over_its_padding(size: str, pads: str, out: str) -> None:
    model = model_of(f"""g (float[1,2,{size}] x) => (float[1,2,{out}] y) {{
        [pool] y = AveragePool <{COUNTED}, pads=[{pads}]> (x) }}""")
    assert rewritten(model, explicit_padding) == ["Pad", "AveragePool"]
    assert [node.name for node in model.graph] == ["pool/pad", "pool"]
    assert not {"pads", "count_include_pad"} & set(model.graph[1].attributes)


@pytest.mark.parametrize(
    ("size", "attributes", "out"),
    [
        ("9,9", f"{COUNTED}, pads=[1,1,1,1]", "5,5"),
        ("8,8", COUNTED, "4,4"),
        ("8,8", f"{COUNTED.replace('count_include_pad=1', 'count_include_pad=0')}, pads=[1,1,1,1]", "5,5"),
        ("8,8", f"{COUNTED.replace('ceil_mode=1', 'ceil_mode=0')}, pads=[1,1,1,1]", "4,4"),
        ("4,4", "kernel_shape=[1,1], strides=[3,3], ceil_mode=1, count_include_pad=1, pads=[0,0,1,1]", "2,2"),
    ],
    ids=["fits", "no_pads", "not_counted", "rounds_down", "single"],
)
def test_other_averages_stay(size: str, attributes: str, out: str) -> None:
    text = f"g (float[1,2,{size}] x) => (float[1,2,{out}] y) {{ y = AveragePool <{attributes}> (x) }}"
    assert not explicit_padding(model_of(text))


def test_an_average_that_leaves_out_a_window_in_the_padding_stays() -> None:
    """9 + 1 cells take windows at 0, 4 and 8; of 8 + 2, the one at 8 would start in the padding."""
    text = """g (float[1,1,8] x) => (float[1,1,2] y) {
        y = AveragePool <kernel_shape=[3], strides=[4], ceil_mode=1, count_include_pad=1, pads=[0,2]> (x) }"""
    assert not explicit_padding(model_of(text))
