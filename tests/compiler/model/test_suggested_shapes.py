from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, parser

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.shape_trials import Attempt
from edgekit.compiler.model.suggested_shapes import suggest_shapes
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
        "height and width (dimensions 2 and 3 of x): 96x96, from the constants of the graph",
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(  # x is N x 13 by the weight, whatever a second of sound has
            "(float[N,K] x) => (y) <int64[2] size = {13, 2}> {"
            " w = ConstantOfShape<value = float[1] {0.5}>(size)  y = MatMul(x, w) }",
            "K (dimension 1 of x): 13, from the constants of the graph",
            id="weight",
        ),
        pytest.param(  # (8000 - 80) / 16 + 1 = 496 of 16 channels; rounded to two digits
            "(float[N,1,T] x) => (y) <int64[3] size = {16, 1, 80}, int64[2] rows = {7936, 3},"
            " int64[2] flat = {1, -1}> { w = ConstantOfShape<value = float[1] {0.5}>(size)"
            " c = Conv<strides = [16]>(x, w)  f = Reshape(c, flat)"
            " v = ConstantOfShape<value = float[1] {0.5}>(rows)  y = MatMul(f, v) }",
            "T (dimension 2 of x): 8000, from the constants of the graph",
            id="sound of half a second",
        ),
        pytest.param(
            "(float[N,T,8] x) => (y) <int64[3] size = {1, 1500, 8}> {"
            " table = ConstantOfShape<value = float[1] {0.5}>(size)  y = Add(x, table) }",
            "T (dimension 1 of x): 1500, from the constants of the graph",
            id="positions",
        ),
        pytest.param(
            "(float[N,T,64] tgt, float[N,M,64] memory) => (y) {"
            " m = ReduceMean<axes = [1]>(memory)  y = Add(tgt, m) }",
            "M (dimension 1 of memory): 128, an example",
            id="memory of an encoder",
        ),
        pytest.param(
            "(float[N,T,80] x) => (y) { y = Relu(x) }",
            "T (dimension 1 of x): 100, an example",
            id="feature vectors of a second",
        ),
        pytest.param(
            "(float[N,3,H,W] x) => (y) { c = Concat<axis = 1>(x, x, x, x)"
            " y = DepthToSpace<blocksize = 2>(c) }",
            "height and width (dimensions 2 and 3 of x): 128x128, an example",
            id="a larger picture comes out",
        ),
        pytest.param(
            "(float[N,3,H,W] x) => (y) { y = MaxPool<kernel_shape = [2,1], strides = [2,1]>(x) }",
            "height and width (dimensions 2 and 3 of x): 48x320, an example",
            id="text line",
        ),
        pytest.param(
            "(float[N,1,32,W] x) => (y) { y = Relu(x) }",
            "width (dimension 3 of x): 320, an example",
            id="line of a fixed height",
        ),
        pytest.param(
            "(float[N,1,64,time] mel) => (y) { y = Relu(mel) }",
            "time (dimension 3 of mel): 100, an example",
            id="spectrogram",
        ),
        pytest.param(
            "(float[N,1,L] ids, float[N,4,past,16] past_key) => (y, z) { y = Relu(ids)  z = Relu(past_key) }",
            "past (dimension 2 of past_key): 127, an example",
            id="cache",
        ),
    ],
)
def test_sizes_make_sense_for_the_network(tmp_path: Path, text: str, expected: str) -> None:
    assert expected in offer(tmp_path, text)


def test_a_recurrent_state_has_the_sizes_of_the_layers_that_read_it(tmp_path: Path) -> None:
    nodes = """
        h0 = Slice(h, zero, one, zero)  h1 = Slice(h, one, two, zero)
        a, a1 = GRU<hidden_size = 24>(x, w, r, , , h0)  b, b1 = GRU<hidden_size = 24>(x, w, r, , , h1)"""
    sizes = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}"
    text = f"(float[T,N,8] x, float[L,N,D] h) => (a, b) <{sizes}> {{ {nodes} }}"
    path = tmp_path / "model.onnx"
    proto = parser.parse_model(HEAD + text)
    for name, dims in (("w", (1, 72, 8)), ("r", (1, 72, 24))):
        tensor = helper.make_tensor(name, TensorProto.FLOAT, dims, bytes(4 * math.prod(dims)), raw=True)
        proto.graph.initializer.append(tensor)
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_model(path)
    assert "h=2x1x24" in str(caught.value)


def test_a_table_of_patches_tells_the_trained_size(tmp_path: Path) -> None:
    proto = parser.parse_model(
        HEAD
        + "(float[N,3,H,W] x) => (y, z) { y = Conv<kernel_shape=[14,14], strides=[14,14]>(x, w) z = Neg(p) }"
    )
    for name, dims in (("w", (8, 3, 14, 14)), ("p", (1, 1 + 37 * 37, 8))):
        tensor = helper.make_tensor(name, TensorProto.FLOAT, dims, bytes(4 * math.prod(dims)), raw=True)
        proto.graph.initializer.append(tensor)
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="--shape x=1x3x518x518"):
        open_model(path)


def test_sizes_that_are_named_after_others_are_computed(tmp_path: Path) -> None:
    text = """(int64[B,S] ids, int64[B,PS] mask, float[B,2,P,4] past) => (y)
    { m = Cast<to=1>(mask)  t = Cast<to=1>(ids)  a = ReduceSum(m)  b = ReduceSum(t)  c = ReduceSum(past)
      d = Add(a, b)  y = Add(c, d) }"""
    proto = parser.parse_model(HEAD + text)
    proto.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "P + S"
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="--shape ids=1x1 --shape mask=1x128 --shape past=1x2x127x4"):
        open_model(path)
    opened = open_model(path, {"ids": (1, 4), "past": (1, 2, 12, 4)})
    assert [tuple(value.shape or ()) for value in opened.graph.inputs][1] == (1, 16)


def test_a_suggestion_never_depends_on_the_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = "s = Constant<value = int64[2] {1, 27648}>()  y = Reshape(x, s)"
    text = f"(float[N,3,H,W] x) => (y) {{ {nodes} }}"
    fast = offer(tmp_path, text)
    clock = iter(range(10**9))
    monkeypatch.setattr(time, "thread_time", lambda: next(clock) * 1e-3)  # 1 ms passes at each look
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) * 1e3)
    assert offer(tmp_path, text) == fast


def test_trials_are_limited_by_the_nodes_that_they_infer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Mapping[str, tuple[int, ...]]] = []

    def refuse(shapes: Mapping[str, tuple[int, ...]]) -> Attempt:
        asked.append(shapes)
        return Attempt(None, 4000)

    value = ir.Value(name="x", shape=ir.Shape(["N", 3, "H", "W"]), type=ir.TensorType(ir.DataType.FLOAT))
    suggest_shapes([value], [], [], refuse)
    assert len(asked) == 3  # 12,000 nodes
