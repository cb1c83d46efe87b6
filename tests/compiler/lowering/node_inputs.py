"""Inputs of a node as a decoder sees them, and one node run by ONNX's reference."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgekit.tensor_spec import Array

OPSET = 23


class Given(NamedTuple):
    """An input: its shape, and its array if it is constant."""

    shape: tuple[int, ...]
    const: Array | None = None


def constant(*numbers: float, dtype: str = "int64") -> Given:
    """A constant of rank 1."""
    return Given((len(numbers),), np.array(numbers, dtype))


def held(array: Array) -> Given:
    """A constant of any rank."""
    return Given(array.shape, array)


def computed(*shape: int) -> Given:
    """What the model computes."""
    return Given(shape)


def reference(op: str, *inputs: Array | None, **attributes: Any) -> Array:
    """The first output of one ONNX operator by onnx's own reference, in opset 23."""
    names = ["" if array is None else f"x{index}" for index, array in enumerate(inputs)]
    fed = {name: array for name, array in zip(names, inputs, strict=True) if array is not None}
    node = helper.make_node(op, names, ["y"], **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in fed.items()
    ]
    made = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "g", declared, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    (answer,) = ReferenceEvaluator(model).run(None, fed)
    return np.asarray(answer)
