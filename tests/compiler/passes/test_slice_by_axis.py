"""The decomposition of Slice, against numpy's own slices."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes.expand_functions import expand_functions

pytestmark = pytest.mark.needs_ort


def _model(shape: tuple[int, ...], cut: dict[int, tuple[int, int, int]]) -> onnx.ModelProto:
    """y = x[...], by axis: start, end, step."""
    out = np.empty(shape)[_index(len(shape), cut)].shape
    rows = [(low, high, axis, step) for axis, (low, high, step) in cut.items()]
    inputs = [list(column) for column in zip(*rows, strict=True)]
    names = ("starts", "ends", "axes", "steps")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Slice", ["x", *names], ["y"], "cut")],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, out)],
        [
            onnx.numpy_helper.from_array(np.array(n, np.int64), name)
            for n, name in zip(inputs, names, strict=True)
        ],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)


def _index(rank: int, cut: dict[int, tuple[int, int, int]]) -> tuple[slice, ...]:
    by_axis = {axis % rank: slice(*bounds) for axis, bounds in cut.items()}
    return tuple(by_axis.get(axis, slice(None)) for axis in range(rank))


END = 2**62


@pytest.mark.parametrize(
    ("shape", "cut", "ops"),
    [
        ((1, 3, 8, 8), {2: (0, END, 2), 3: (0, END, 2)}, "Reshape Slice Reshape Reshape Slice Reshape"),
        ((1, 3, 8, 8), {3: (1, END, 2)}, "Slice Reshape Slice Reshape Slice Concat"),
        ((2, 9), {1: (0, 9, 2)}, "Slice Reshape Slice Reshape Slice Concat"),
        ((2, 9), {1: (0, 9, 3)}, "Reshape Slice Reshape"),
        ((2, 9), {1: (1, 8, 3)}, "Slice Reshape Slice Reshape Slice Concat"),
        ((2, 9), {-1: (-4, -1, 1)}, "Slice"),
        ((4, 5), {0: (1, END, 1), 1: (0, 3, 1)}, "Slice Slice"),
        ((4, 5), {0: (0, END, 1), 1: (1, END, 1)}, "Slice"),
    ],
)
def test_the_same_elements(shape: tuple[int, ...], cut: dict[int, tuple[int, int, int]], ops: str) -> None:
    model = open_bytes(_model(shape, cut).SerializeToString(), "cut.onnx", {})
    assert expand_functions(model, lambda node: node.op_type == "Slice")
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    np.testing.assert_array_equal(Reference(model).run({"x": x})["y"], x[_index(len(shape), cut)])
    plain = [node for node in model.graph if node.op_type == "Slice"]
    for node in plain:
        bounds = [constant.numpy().tolist() for constant in _constants(node)]
        assert [len(each) for each in bounds] == [1, 1, 1, 1]
        assert bounds[3] == [1]
        assert bounds[0][0] >= 0
    assert " ".join(node.op_type for node in model.graph if node.op_type != "Identity") == ops


def _constants(node: ir.Node) -> list[ir.TensorProtocol]:
    return [
        value.const_value for value in node.inputs[1:] if value is not None and value.const_value is not None
    ]


@pytest.mark.parametrize("cut", [{1: (1, 3, 1)}, {1: (4, 0, -1)}])
def test_what_is_plain_or_reversed_is_left(cut: dict[int, tuple[int, int, int]]) -> None:
    model = open_bytes(_model((2, 5), cut).SerializeToString(), "cut.onnx", {})
    assert not expand_functions(model, lambda node: node.op_type == "Slice")
