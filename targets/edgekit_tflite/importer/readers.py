"""The table of what is read: TFLite operator -> the function in one of the read_*.py that writes it in
ONNX."""

from __future__ import annotations

from collections.abc import Callable

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.onnx_graph import OnnxGraph, UnreadableError

Reader = Callable[[OnnxGraph, Op], None]

READERS: dict[str, Reader] = {}
"""By the name of a builtin operator."""
CUSTOM_READERS: dict[str, Reader] = {}
"""By the name of a custom operator."""


def reads(*codes: str) -> Callable[[Reader], Reader]:
    """Register a function for these operators."""

    def register(reader: Reader) -> Reader:
        READERS.update(dict.fromkeys(codes, reader))
        return reader

    return register


def reads_custom(name: str) -> Callable[[Reader], Reader]:
    """Register a function for a custom operator."""

    def register(reader: Reader) -> Reader:
        CUSTOM_READERS[name] = reader
        return reader

    return register


def find_reader(op: Op) -> Reader | None:
    """The function that reads an operator; None if nothing does."""
    return CUSTOM_READERS.get(op.options["custom_code"]) if op.code == "CUSTOM" else READERS.get(op.code)


def activated(g: OnnxGraph, value: str) -> str:
    """The value after the activation that is fused into the operator being read."""
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
    """The shape of a tensor.

    Raises:
        UnreadableError: it has another rank.
    """
    shape = g.shape(i)
    if len(shape) != rank:
        raise UnreadableError(g.op, f"its data have {len(shape)} dimensions; {rank} are read")
    return shape
