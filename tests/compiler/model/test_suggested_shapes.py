from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model
from edgekit.errors import ModelError

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


def offer(folder: Path, text: str) -> list[str]:
    """The lines that the error offers; its option is tried first."""
    path = folder / "model.onnx"
    path.write_bytes(parser.parse_model(HEAD + text).SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_model(path)
    head, option, *lines = str(caught.value).splitlines()
    assert head == "model.onnx: has dimensions that are not fixed; add a shape, with your numbers:"
    given = [part.partition("=") for part in option.split() if part != "--shape"]
    open_model(path, {name: tuple(map(int, sizes.split("x"))) for name, _, sizes in given})
    return [option.strip(), *(line.strip() for line in lines)]


def test_a_network_that_takes_any_size_gets_an_example(tmp_path: Path) -> None:
    text = "(float[N,3,H,W] x, float[?,4] z) => (y, q) { y = Relu(x)  q = Neg(z) }"
    assert offer(tmp_path, text) == [
        "--shape x=1x3x640x640 --shape z=1x4",
        "batch (dimension 0 of x, z): 1",
        "height and width (dimensions 2 and 3 of x): 640x640, an example",
    ]


def test_a_classifier_gets_the_usual_size_of_classifiers(tmp_path: Path) -> None:
    text = "(float[N,H,W,3] x) => (float[N,3] y) { y = ReduceMean<axes=[1,2], keepdims=0>(x) }"
    assert offer(tmp_path, text)[0] == "--shape x=1x224x224x3"


def test_a_size_that_alone_fits_the_graph_is_found(tmp_path: Path) -> None:
    nodes = """
    shape = Constant<value = int64[2] {1, 27648}>()
    y = Reshape(x, shape)"""  # 3 * 96 * 96
    assert offer(tmp_path, f"(float[N,3,H,W] x) => (y) {{ {nodes} }}") == [
        "--shape x=1x3x96x96",
        "batch (dimension 0 of x): 1",
        "height and width (dimensions 2 and 3 of x): 96x96, a common size that fits",
    ]


def test_the_size_that_gives_the_declared_outputs_is_found(tmp_path: Path) -> None:
    nodes = "y = MaxPool<kernel_shape=[8,8], strides=[8,8]>(x)"
    assert offer(tmp_path, f"(float[N,3,H,W] x) => (float[1,3,52,52] y) {{ {nodes} }}")[-1] == (
        "height and width (dimensions 2 and 3 of x): 416x416, from the shapes of the outputs"
    )


def test_dimensions_of_one_name_are_one_line(tmp_path: Path) -> None:
    inputs = "int64[batch,sequence] input_ids, int64[batch,sequence] attention_mask"
    assert offer(tmp_path, f"({inputs}) => (y) {{ y = Add(input_ids, attention_mask) }}") == [
        "--shape input_ids=1x128 --shape attention_mask=1x128",
        "batch (dimension 0 of input_ids, attention_mask): 1",
        "sequence (dimension 1 of input_ids, attention_mask): 128, an example",
    ]


def test_the_length_of_a_position_table_bounds_the_sequence(tmp_path: Path) -> None:
    nodes = """
    table = ConstantOfShape<value = float[1] {0.5}>(size)
    y = Add(x, table)"""
    text = f"(float[N,T,8] x) => (y) <int64[3] size = {{1, 77, 8}}> {{ {nodes} }}"
    assert "T (dimension 1 of x): " in offer(tmp_path, text)[-1]


def test_rows_that_are_no_batch(tmp_path: Path) -> None:
    assert offer(tmp_path, "(float[frames,576] x) => (y) { y = Relu(x) }") == [
        "--shape x=16x576",
        "frames (dimension 0 of x): 16, an example",
    ]


def test_channels_follow_the_weights(tmp_path: Path) -> None:
    nodes = "w = ConstantOfShape<value = float[1] {0.5}>(size)  y = Conv(x, w)"
    text = f"(float[N,C,H,W] x) => (y) <int64[4] size = {{2, 1, 3, 3}}> {{ {nodes} }}"
    assert "--shape x=1x1x640x640" in offer(tmp_path, text)


def test_a_name_that_a_shell_would_read_is_quoted(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    proto = parser.parse_model(HEAD + "(float[H,W] x) => (y) { y = Relu(x) }")
    proto.graph.input[0].name = proto.graph.node[0].input[0] = "a b;c"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="--shape 'a b;c=16x16000'"):
        open_model(path)
