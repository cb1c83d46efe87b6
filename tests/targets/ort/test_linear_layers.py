from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from edgekit_ort.linear_layers import with_integer_gemms
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.model.onnx_file import open_bytes, save_model
from edgekit.tensor_spec import Array

pytestmark = pytest.mark.needs_ort
K = 16


def network(
    dims: Sequence[int],
    after: Sequence[str] = (),
    per_channel: bool = True,
    bias: Array | None = None,
    layers: int = 1,
) -> bytes:
    """x -> Q -> DQ, then for each layer MatMul(int8 weights) -> Add -> ``after``."""
    rng = np.random.default_rng(1)
    scales = rng.uniform(0.005, 0.02, K if per_channel else ()).astype(np.float32)
    held = {
        "scale": np.float32(0.05),
        "zero": np.uint8(120),
        "w": rng.integers(-64, 65, (K, K)).astype(np.int8),  # in 8 bits their sums saturate on AVX2
        "w_scale": scales,
        "w_zero": np.zeros(scales.shape, np.int8),
        "b": rng.normal(0, 2, K).astype(np.float32) if bias is None else bias,
        "after_scale": np.float32(0.02),  # 0 to 5.1: within the Clip's range
        "after_zero": np.uint8(0),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    pair = ["QuantizeLinear", "DequantizeLinear"]
    more = {"Clip": ["low", "high"], **{op: ["after_scale", "after_zero"] for op in pair}}
    nodes: list[onnx.NodeProto] = []

    def add(op: str, inputs: Sequence[str]) -> str:
        name = f"{op}_{len(nodes)}"
        node = helper.make_node(op, inputs, [name], name)
        if "w" in inputs:
            node.attribute.append(helper.make_attribute("axis", 1))
        nodes.append(node)
        return name

    value = "x"
    for op in pair:
        value = add(op, [value, "scale", "zero"])
    for _ in range(layers):
        product = add("MatMul", [value, add("DequantizeLinear", ["w", "w_scale", "w_zero"])])
        value = add("Add", [product, "b"])
        for op in after:
            value = add(op, [value, *more.get(op, [])])
    nodes[-1].output[0] = "y"
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*dims, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*dims, K])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in held.items() if name in read],
    )
    opsets = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    return content


def rewritten(content: bytes) -> onnx.ModelProto:
    made = onnx.load_from_string(save_model(with_integer_gemms(open_bytes(content, "model.onnx"))))
    onnx.checker.check_model(made, full_check=True)
    return made


def outputs(content: bytes, x: Array, kernels: set[str] | None = None, folder: str = "") -> Array:
    settings = onnxruntime.SessionOptions()
    if kernels is None:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    else:
        settings.optimized_model_filepath = f"{folder}/optimized.onnx"
    session = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    if kernels is not None:
        kernels |= {node.op_type for node in onnx.load(f"{folder}/optimized.onnx").graph.node}
    found: Array = session.run(None, {"x": x})[0]
    return found


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("dims", [(5,), (2, 5), (2, 3, 5)])
@pytest.mark.parametrize(
    "after",
    [
        (),
        ("Sigmoid",),
        ("Relu",),
        ("Clip", "QuantizeLinear", "DequantizeLinear"),
        ("Relu", "QuantizeLinear", "DequantizeLinear"),
    ],
    ids=str,
)
def test_a_linear_layer_on_integers_runs_as_qgemm(
    tmp_path: object, dims: tuple[int, ...], after: tuple[str, ...], per_channel: bool
) -> None:
    content = network(dims, after, per_channel)
    made = rewritten(content).SerializeToString()
    x = np.random.default_rng(0).normal(0, 2, (*dims, K)).astype(np.float32)
    kernels: set[str] = set()
    fast = outputs(made, x, kernels, str(tmp_path))
    assert "QGemm" in kernels
    assert kernels.isdisjoint({"MatMulNBits", "MatMul", "Gemm", "FusedGemm"})
    plain = outputs(content, x)
    assert fast.shape == plain.shape
    step = 0.02 if "QuantizeLinear" in after else 0.001  # a bias is rounded to at most 0.05 * 0.02
    assert np.abs(fast - plain).max() <= step * 1.01


def test_layers_that_follow_each_other_reshape_at_the_ends_only() -> None:
    content = network((2, 5), ("Relu", "QuantizeLinear", "DequantizeLinear"), layers=3)
    ops = Counter(node.op_type for node in rewritten(content).graph.node)
    assert (ops["Gemm"], ops["MatMul"], ops["Reshape"]) == (3, 0, 2)


@pytest.mark.parametrize(
    ("rows", "bias"),
    [
        (5, np.full(K, 1e9, np.float32)),
        (5, np.ones((5, 1), np.float32)),
        (K, np.ones((K, 1), np.float32)),  # as many as the columns, but one for each row
    ],
)
def test_a_bias_that_int32_or_a_gemm_cannot_hold_stays(rows: int, bias: Array) -> None:
    model = open_bytes(network((2, rows), bias=bias), "model.onnx")
    assert with_integer_gemms(model) is model
