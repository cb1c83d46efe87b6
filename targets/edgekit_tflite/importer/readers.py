"""Table of supported operators: TFLite operator -> the function in a read_*.py that writes it in
ONNX."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError

Read = Callable[[OnnxGraph, Op], None]


class OpReader(NamedTuple):
    """Reader of an operator.

    Attributes:
        inputs: Minimum number of inputs; the rest may be left out.
        outputs: Minimum number of outputs.
    """

    read: Read
    inputs: int
    outputs: int


READERS: dict[str, OpReader] = {}
"""By the name of a builtin operator."""
CUSTOM_READERS: dict[str, OpReader] = {}
"""By the name of a custom operator."""


def reads(*codes: str, inputs: int = 1, outputs: int = 1) -> Callable[[Read], Read]:
    """Register a function for these operators."""

    def register(read: Read) -> Read:
        READERS.update(dict.fromkeys(codes, OpReader(read, inputs, outputs)))
        return read

    return register


def reads_as(codes: Mapping[str, str], inputs: int = 1, fused: bool = False, **attributes: Any) -> None:
    """Register operators that are one node of ONNX: operator -> the node's op."""

    @reads(*codes, inputs=inputs)
    def read(g: OnnxGraph, op: Op) -> None:
        value = g.node(codes[op.code], [g.value(i) for i in op.inputs[:inputs]], **attributes)
        g.set(op.outputs[0], activated(g, value) if fused else value)


def reads_custom(name: str, *, inputs: int = 1, outputs: int = 1) -> Callable[[Read], Read]:
    """Register a function for a custom operator."""

    def register(read: Read) -> Read:
        CUSTOM_READERS[name] = OpReader(read, inputs, outputs)
        return read

    return register


def find_reader(op: Op) -> OpReader | None:
    """Return the reader of an operator; None if it is not supported."""
    return CUSTOM_READERS.get(op.options["custom_code"]) if op.code == "CUSTOM" else READERS.get(op.code)


def read(g: OnnxGraph, index: int, op: Op) -> None:
    """Write one operator in ONNX.

    Raises:
        UnreadableError: it cannot be expressed in ONNX, or is damaged.
    """
    reader = find_reader(op)
    assert reader is not None
    g.begin(index, op)
    if len(op.inputs) < reader.inputs or min(op.inputs[: reader.inputs], default=0) < 0:
        raise UnreadableError(op, f"it has the inputs {op.inputs}, and needs {reader.inputs}")
    if len(op.outputs) < reader.outputs:
        raise UnreadableError(op, f"it has the outputs {op.outputs}, and needs {reader.outputs}")
    reader.read(g, op)


def activated(g: OnnxGraph, value: str) -> str:
    """Apply the activation that is fused into the operator being read."""
    activation = g.op.options["fused_activation_function"]
    dtype = g.dtype(g.op.outputs[0])
    if activation == "NONE":
        return value
    if activation in ("RELU", "TANH"):
        return g.node(activation.capitalize(), [value])
    if activation in BOUNDS:
        return g.node("Clip", [value, *(g.scalar(bound, dtype) for bound in BOUNDS[activation])])
    raise UnreadableError(g.op, f"its fused activation {activation} has no form in ONNX")


BOUNDS = {"RELU6": (0, 6), "RELU_N1_TO_1": (-1, 1), "RELU_0_TO_1": (0, 1)}


def need_rank(g: OnnxGraph, i: int, rank: int) -> tuple[int, ...]:
    """Return the shape of a tensor of this rank.

    Raises:
        UnreadableError: it has another rank.
    """
    shape = g.shape(i)
    if len(shape) != rank:
        raise UnreadableError(g.op, f"its data have {len(shape)} dimensions; {rank} are read")
    return shape
