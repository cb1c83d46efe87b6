"""A crafted model, and short ways to write one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64, INT32, UINT8, BOOL, STRING = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.UINT8, TensorProto.BOOL,
    TensorProto.STRING,
)  # fmt: skip
Value = tuple[str, int, Sequence[int | str] | None]
"""Name, element type and shape."""
X: Value = ("x", FLOAT, (1, 4))
Y: Value = ("y", FLOAT, None)


class Crafted(NamedTuple):
    """A crafted model.

    Attributes:
        kind: Its class.
        name: What is wrong with it.
        content: The file.
        prepare: Makes what lies beside it, in its folder.
    """

    kind: str
    name: str
    content: Callable[[], bytes]
    prepare: Callable[[Path], object] = lambda folder: None


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """A node; names are separated by spaces, ``-`` stands for a missing input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), name=f"the_{kind}", **attributes)


def graph(
    nodes: Iterable[onnx.NodeProto],
    inputs: Sequence[Value] = (X,),
    outputs: Sequence[Value] = (Y,),
    constants: Mapping[str, Any] | None = None,
) -> onnx.GraphProto:
    made = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
    )
    for name, value in (constants or {}).items():
        is_tensor = isinstance(value, onnx.TensorProto)
        made.initializer.append(value if is_tensor else numpy_helper.from_array(np.asarray(value), name))
        made.initializer[-1].name = name
    return made


def model(
    nodes: Iterable[onnx.NodeProto] | onnx.GraphProto,
    inputs: Sequence[Value] = (X,),
    outputs: Sequence[Value] = (Y,),
    opset: int = 17,
    functions: Sequence[onnx.FunctionProto] = (),
    **constants: Any,
) -> bytes:
    """A file; what is given by name is a constant of the graph."""
    whole = nodes if isinstance(nodes, onnx.GraphProto) else graph(nodes, inputs, outputs, constants)
    made = helper.make_model(
        whole,
        opset_imports=[
            helper.make_opsetid("", opset),
            *(helper.make_opsetid(domain, 1) for domain in ("com.microsoft", "local")),
            helper.make_opsetid("ai.onnx.ml", 3),
        ],
        ir_version=10,
        functions=functions,
    )
    return bytes(made.SerializeToString())


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*values: float) -> Any:
    return np.array(values, np.float32)


def scalar(value: float, dtype: Any = np.int64) -> Any:
    return np.array(value, dtype)


def all_constant(
    kind: str, result: int = FLOAT, opset: int = 17, attributes: Any = None, **given: Any
) -> bytes:
    """One node of constants alone, which is computed ahead; the input is added, so that it is not unused."""
    nodes = [
        node(kind, " ".join(given), "c", **(attributes or {})),
        node("Cast", "c", "f", to=FLOAT),
        node("ReduceSum", "f", "s", keepdims=0),
        node("Add", "x s"),
    ]
    return model(nodes, opset=opset, **given)
