"""Opening, refusing and saving models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model, save_model, signature
from edgekit.errors import ModelError, UsageError
from edgekit.tensor_spec import TensorSpec

pytestmark = pytest.mark.needs_ort

DYNAMIC = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,3,H,W] x, float[1,4] z) => (float[N,3,H,W] y, float[1,4] q) { y = Relu(x)  q = Neg(z) }"""
DYNAMIC_INPUTS = "x Nx3xHxW; z 1x4"


def write(folder: Path, model: str | onnx.ModelProto | bytes) -> Path:
    path = folder / "model.onnx"
    proto = parser.parse_model(model) if isinstance(model, str) else model
    path.write_bytes(proto if isinstance(proto, bytes) else proto.SerializeToString())
    return path


def refusal(folder: Path, model: str | onnx.ModelProto | bytes, **shapes: tuple[int, ...]) -> str:
    with pytest.raises(ModelError) as caught:
        open_model(write(folder, model), shapes)
    return str(caught.value)


def simple(nodes: str, opset: int = 17, inputs: str = "float[1,4,8,8] x", weights: str = "") -> str:
    return f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (y) {weights} {{ {nodes} }}'


def test_a_model_keeps_its_names_and_gets_its_shapes(tmp_path: Path) -> None:
    nodes = "[first] a = Relu(x)  y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)"
    model = open_model(write(tmp_path, simple(nodes)))
    assert signature(model) == (
        (TensorSpec("x", "float32", (1, 4, 8, 8)),),
        (TensorSpec("y", "float32", (1, 4, 4, 4)),),
    )
    assert [node.name for node in model.graph] == ["first", "MaxPool_1"]


def test_dynamic_dimensions_are_fixed_by_shapes(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, DYNAMIC), {"x": (1, 3, 480, 640)})
    assert [str(spec) for spec in signature(model)[1]] == ["y float32 1x3x480x640", "q float32 1x4"]


def test_a_shape_replaces_a_static_one_and_outputs_follow(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[10,3,32,32] x) => (float[10,3,32,32] y) { y = Relu(x) }"""
    model = open_model(write(tmp_path, text), {"x": (1, 3, 480, 640)})
    assert str(signature(model)[1][0]) == "y float32 1x3x480x640"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("w", (1, 2), f"--shape w=1x2: the model has no input w; its inputs are {DYNAMIC_INPUTS}"),
        (
            "x",
            (1, 3),
            f"--shape x=1x3: has 2 dimensions but input x has 4; the model's inputs are {DYNAMIC_INPUTS}",
        ),
        (
            "x",
            (1, 3, -1, 4),
            "--shape x=1x3x-1x4: each dimension must be 0 or more, with at most 2^31 elements in total",
        ),
        (
            "x",
            (1, 3, 2**20, 2**20),
            f"--shape x=1x3x{2**20}x{2**20}: each dimension must be 0 or more, with at most 2^31 "
            "elements in total",
        ),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, name: str, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_model(write(tmp_path, DYNAMIC), {name: shape})
    assert str(caught.value) == message


def test_weights_as_inputs_stale_shapes_and_dead_weights(tmp_path: Path) -> None:
    proto = parser.parse_model(
        '<ir_version: 3, opset_import: ["": 9]> g (float[10,3,4,4] x, float[2,3,1,1] w, float[9] dead)'
        " => (float[10,2,4,4] y) { a = Conv(x, w)  y = Relu(a) }"
    )
    for name, shape in (("w", (2, 3, 1, 1)), ("dead", (9,))):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), name))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("a", 1, [10, 2, 99, 99]))
    model = open_model(write(tmp_path, proto), {"x": (1, 3, 8, 8)})
    assert [str(spec) for part in signature(model) for spec in part] == [
        "x float32 1x3x8x8",
        "y float32 1x2x8x8",
    ]
    assert list(model.graph.initializers) == ["w"]


@pytest.mark.parametrize(
    ("opset", "message"),
    [
        (
            6,
            "model.onnx: it uses opset 6, older than the supported opsets (7 to 28); export it again with "
            "one of those",
        ),
    ],
)
def test_other_opsets_are_refused(tmp_path: Path, opset: int, message: str) -> None:
    assert refusal(tmp_path, simple("y = Add(x, x)", opset)) == message


def test_a_model_of_other_domains_alone_is_refused(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["com.microsoft": 1, "a": 2]> g (float[1] x) => (y) { y = a.F(x) }'
    assert refusal(tmp_path, text) == "model.onnx: it does not import an ONNX opset, only a, com.microsoft"


def test_an_older_opset_opens_where_its_ops_have_stayed_as_they_were(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, simple("y = Relu(x)", 6)))
    assert [node.op_type for node in model.graph] == ["Relu"]


def test_no_element_is_a_shape_where_it_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, simple("y = Relu(x)", inputs="float[2,0] x"))
    assert str(signature(open_model(path, {"x": (2, 0)}))[1][0]) == "y float32 2x0"
    assert refusal(tmp_path, simple("y = Relu(x)", inputs="float[2,0] x")) == (
        "model.onnx: has dimensions that are not fixed; add a shape, with your numbers:\n"
        "  --shape x=2x16000\n"
        "  length (dimension 1 of x): 16000, an example"
    )


def test_a_model_of_the_second_domain_alone_opens(tmp_path: Path) -> None:
    model = open_model(
        write(
            tmp_path,
            """<ir_version: 8, opset_import: ["ai.onnx.ml": 3]> g (float[2,3] x) => (float[2,3] y)
            { y = ai.onnx.ml.Binarizer <threshold = 0.5> (x) }""",
        )
    )
    assert str(signature(model)[1][0]) == "y float32 2x3"


@pytest.mark.parametrize("opset", range(7, 27))
def test_every_opset_opens(tmp_path: Path, opset: int) -> None:
    model = open_model(write(tmp_path, simple("y = Relu(x)", opset)))
    assert model.graph.opset_imports[""] == opset


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "model.onnx: is empty"),
        (
            b"hello, I am no model",
            "model.onnx: is not an ONNX model: it is a text file: pass the file of the model",
        ),
        (
            b"hello, I am no model\xff",
            "model.onnx: is not an ONNX model: it is not valid protobuf, or it is truncated (21 bytes): "
            "export or download it again",
        ),
        (
            onnx.ModelProto(ir_version=8).SerializeToString(),
            "model.onnx: it is not an ONNX model: it has no graph, no opset or no IR version 3 or later",
        ),
    ],
)
def test_what_is_no_model(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path, data) == message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(tmp_path / "none.onnx")
    assert str(caught.value) == f"{tmp_path / 'none.onnx'}: file not found"
    with pytest.raises(ModelError, match="is a URL: download the file first"):
        open_model(Path("https://example.com/m.onnx"))


@pytest.mark.parametrize(
    ("nodes", "weights", "message"),
    [
        (
            "[conv1] y = Conv(x, w)",
            "<float[2,3,1,1] w = {1,2,3,4,5,6}>",
            "node conv1 (Conv, opset 17): weight has 3 input channels, but its input has 4",
        ),
        (
            "[conv1] y = Conv<group=2>(x, w)",
            "<float[2,3,1,1] w = {1,2,3,4,5,6}>",
            "node conv1 (Conv, opset 17): weight has 3 input channels in each of 2 groups, but its "
            "input has 4",
        ),
        (
            "[up] y = ConvTranspose(x, w)",
            "<float[3,2,1,1] w = {1,2,3,4,5,6}>",
            "node up (ConvTranspose, opset 17): weight has 3 input channels, but its input has 4",
        ),
        (
            "[fc] y = MatMul(x, w)",
            "<float[3,2] w = {1,2,3,4,5,6}>",
            "node fc (MatMul, opset 17): inputs are 1x4x8x8 and 3x2: the inner sizes 8 and 3 differ",
        ),
        (
            "[add] y = Add(x, w)",
            "<float[3,2] w = {1,2,3,4,5,6}>",
            "node add (Add, opset 17): inputs 1x4x8x8 and 3x2 do not broadcast",
        ),
        (
            "[add] y = Add(x, w)",
            "<int64[1] w = {1}>",
            "node add (Add, opset 17): input 0 is float, but input 1 (w) is int64",
        ),
        (
            "[re] y = Reshape(x, w)",
            "<int64[2] w = {3,2}>",
            "node re (Reshape, opset 17): reshapes 1x4x8x8 (256 elements) to 3x2 (6 elements)",
        ),
        ("[conv1] y = Conv(x)", "", "node conv1 (Conv, opset 17): has 1 inputs; the op takes 2 to 3"),
        ("[cast] y = Cast(x)", "", "node cast (Cast, opset 17): attribute to is missing"),
        (
            "[pool] y = MaxPool<kernel_shape=[2,2], size=3>(x)",
            "",
            "node pool (MaxPool, opset 17): has an attribute size, which the op does not have",
        ),
        (
            "[nz] n = NonZero(x)  t = Transpose(n)  y = MatMul(t, n)",
            "",
            "output y has no fixed shape: node nz (NonZero) has a data-dependent number of outputs; cut "
            "the model before that node",
        ),
        (
            "[one] a = ReduceMax<keepdims=0>(x)  [count] b = Cast<to=7>(a)  [cut] y = ConstantOfShape(c)"
            "  [list] c = Expand(b, w)",
            "<int64[1] w = {2}>",
            "output y has no fixed shape: the output shape of node cut (ConstantOfShape) cannot be "
            "inferred; cut the model before that node",
        ),
        (
            "[relu] y = Relu(nothing)",
            "",
            "node relu: its input nothing is not a graph input, a weight or the output of a node",
        ),
        ("x = Relu(x)  y = Neg(x)", "", "value x is produced twice, the second time by node Relu"),
        (
            "a = Relu(b)  b = Relu(a)  y = Neg(b)",
            "",
            "it is malformed: Graph contains a cycle, topological sort is not possible.",
        ),
    ],
)
def test_nodes_that_cannot_work(tmp_path: Path, nodes: str, weights: str, message: str) -> None:
    assert refusal(tmp_path, simple(nodes, weights=weights)) == f"model.onnx: {message}"


def test_an_operator_of_onnx_runtime_alone(tmp_path: Path) -> None:
    opsets = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> '
    model = opsets + "g (float[1,L] x) => (float[K,M] y) { [lstm] y = com.microsoft.DynamicQuantizeLSTM(x) }"
    assert refusal(tmp_path, model, x=(1, 4)) == (
        "model.onnx: output y has no fixed shape: node lstm (DynamicQuantizeLSTM) is an operator of ONNX "
        "Runtime alone; pass the model from before ONNX Runtime quantized or optimized it"
    )


def test_one_dimension_of_an_output_may_be_as_the_data_give(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, simple("n = NonZero(x)  y = Neg(n)")))
    assert str(signature(model)[1][0]) == "y int64 4x?"


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("k = NonZero(w)  t = Transpose(k)  y = GatherND(a, t)", (2,)),
        ("c = Cast<to=9>(w)  k = Compress(w, c)  y = Neg(k)", (2,)),
        ("k = Unique(w)  y = Neg(k)", (3,)),
    ],
)
def test_elements_of_a_weight_are_counted_ahead(tmp_path: Path, nodes: str, shape: tuple[int, ...]) -> None:
    """How many come out depends on values, but on none of a run."""
    text = simple(f"{nodes}  z = Relu(x)", inputs="float[3] a, float[1] x", weights="<float[3] w = {1,0,2}>")
    model = open_model(write(tmp_path, text))
    assert signature(model)[1][0].shape == shape


@pytest.mark.parametrize(
    ("opset", "node"),
    [
        (21, "GroupNormalization<num_groups=2>(x, w, w)"),
        (17, "MeanVarianceNormalization(x)"),
    ],
)
def test_ops_that_onnx_infers_nothing_for(tmp_path: Path, opset: int, node: str) -> None:
    text = simple(f"n = {node}  y = Relu(n)", opset, weights="<float[4] w = {1,1,1,1}>")
    assert signature(open_model(write(tmp_path, text)))[1] == (TensorSpec("y", "float32", (1, 4, 8, 8)),)


def test_a_custom_op_is_for_the_targets_to_refuse(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]>
    g (float[1,4] x) => (float[1,4] y) { [mine] a = com.acme.Secret(x)  y = Relu(a) }"""
    model = open_model(write(tmp_path, text))
    secret = model.graph[0]
    assert (secret.domain, secret.op_type, secret.name) == ("com.acme", "Secret", "mine")


def test_unsorted_nodes_are_sorted(tmp_path: Path) -> None:
    model = open_model(write(tmp_path, simple("y = Neg(a)  a = Relu(x)")))
    assert [node.op_type for node in model.graph] == ["Relu", "Neg"]


def test_functions_are_expanded(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
    g (float[1,4] x) => (float[1,4] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["": 17]> twice (v) => (u) { u = Add(v, v) }"""
    model = open_model(write(tmp_path, text))
    assert [node.op_type for node in model.graph] == ["Add"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("string", "model.onnx: input x is string; supported types: "),
        ("bfloat16", "model.onnx: input x is bfloat16; supported types: "),
    ],
)
def test_inputs_of_types_that_numpy_does_not_have(tmp_path: Path, kind: str, message: str) -> None:
    assert refusal(tmp_path, simple("y = Identity(x)", inputs=f"{kind}[2] x")).startswith(message)


def test_a_scalar_input(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (int64 rate) => (int64 y) { y = Neg(rate) }'
    assert str(signature(open_model(write(tmp_path, text)))[0][0]) == "rate int64 scalar"


def test_saving_is_deterministic_and_opens_again(tmp_path: Path) -> None:
    path = write(tmp_path, simple("a = Conv(x, w)  y = Relu(a)", weights="<float[1,4,1,1] w = {1,2,3,4}>"))
    first, second = save_model(open_model(path)), save_model(open_model(path))
    assert first == second
    path.write_bytes(first)
    assert save_model(open_model(path)) == first


def test_a_folder_is_told_with_the_model_in_it(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        open_model(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a folder; pass the model's file"
    write(tmp_path, simple("y = Relu(x)"))
    with pytest.raises(ModelError) as caught:
        open_model(tmp_path)
    found = tmp_path / "model.onnx"
    assert str(caught.value) == f"{tmp_path}: is a folder; pass the model's file, e.g. {found}"
