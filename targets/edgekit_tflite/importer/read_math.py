"""Arithmetic, comparisons, logic and reductions: the inverse of ops_math.py, ops_logic.py, ops_reduce.py."""

from __future__ import annotations

from collections.abc import Mapping

from edgekit_tflite.graph import Op
from edgekit_tflite.importer.element_types import element_type
from edgekit_tflite.importer.onnx_graph import OnnxGraph
from edgekit_tflite.importer.read_shape import axis_of
from edgekit_tflite.importer.readers import reads, reads_as

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

reads_as({"ADD": "Add", "SUB": "Sub", "MUL": "Mul", "DIV": "Div"}, inputs=2, fused=True)
reads_as(
    {
        "BITWISE_XOR": "BitwiseXor",
        "EQUAL": "Equal",
        "GREATER": "Greater",
        "GREATER_EQUAL": "GreaterOrEqual",
        "LESS": "Less",
        "LESS_EQUAL": "LessOrEqual",
        "LOGICAL_AND": "And",
        "LOGICAL_OR": "Or",
        "MAXIMUM": "Max",
        "MINIMUM": "Min",
        "POW": "Pow",
    },
    inputs=2,
)
reads_as({"SELECT_V2": "Where"}, inputs=3)
reads_as(
    {
        "ABS": "Abs",
        "CEIL": "Ceil",
        "COS": "Cos",
        "EXP": "Exp",
        "FLOOR": "Floor",
        "LOG": "Log",
        "LOGICAL_NOT": "Not",
        "NEG": "Neg",
        "ROUND": "Round",
        "SIGN": "Sign",
        "SIN": "Sin",
        "SQRT": "Sqrt",
    }
)


@reads("NOT_EQUAL", inputs=2)
def not_equal(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to Not of Equal."""
    x, y = (g.value(i) for i in op.inputs[:2])
    g.set(op.outputs[0], g.node("Not", [g.node("Equal", [x, y])]))


@reads("SQUARE")
def square(g: OnnxGraph, op: Op) -> None:
    """x * x."""
    x = g.value(op.inputs[0])
    g.set(op.outputs[0], g.node("Mul", [x, x]))


@reads("RSQRT")
def rsqrt(g: OnnxGraph, op: Op) -> None:
    """1 / sqrt(x)."""
    g.set(op.outputs[0], g.node("Reciprocal", [g.node("Sqrt", [g.value(op.inputs[0])])]))


@reads("SQUARED_DIFFERENCE", inputs=2)
def squared_difference(g: OnnxGraph, op: Op) -> None:
    """(x - y)^2."""
    difference = g.node("Sub", [g.value(i) for i in op.inputs[:2]])
    g.set(op.outputs[0], g.node("Mul", [difference, difference]))


@reads("ADD_N")
def add_n(g: OnnxGraph, op: Op) -> None:
    """Add the inputs from the left."""
    total = g.value(op.inputs[0])
    for i in op.inputs[1:]:
        total = g.node("Add", [total, g.value(i)])
    g.set(op.outputs[0], total)


def _is_integer(g: OnnxGraph, i: int) -> bool:
    return g.dtype(i) in INTEGERS and g.quantization(i) is None


def _floor_mod(g: OnnxGraph, x: str, y: str, integer: bool) -> str:
    """Write x - floor(x / y) * y: the remainder has the sign of y.

    For floats ONNX has only C's fmod, whose remainder has the sign of x.
    """
    if integer:
        return g.node("Mod", [x, y])
    zero = g.scalar(0.0, "float32")
    rest = g.node("Mod", [x, y], fmod=1)
    signs_differ = g.node("Less", [g.node("Mul", [g.node("Sign", [rest]), g.node("Sign", [y])]), zero])
    return g.node("Where", [signs_differ, g.node("Add", [rest, y]), rest])


@reads("FLOOR_MOD", inputs=2)
def floor_mod(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to a Mod whose result has the divisor's sign."""
    x, y = (g.value(i) for i in op.inputs[:2])
    g.set(op.outputs[0], _floor_mod(g, x, y, _is_integer(g, op.inputs[0])))


@reads("FLOOR_DIV", inputs=2)
def floor_div(g: OnnxGraph, op: Op) -> None:
    """Write the floor of the quotient; for integers, whose quotient ONNX truncates, (x - x mod y) / y."""
    x, y = (g.value(i) for i in op.inputs[:2])
    if _is_integer(g, op.inputs[0]):
        g.set(op.outputs[0], g.node("Div", [g.node("Sub", [x, _floor_mod(g, x, y, True)]), y]))
    else:
        g.set(op.outputs[0], g.node("Floor", [g.node("Div", [x, y])]))


@reads("SELECT", inputs=3)
def select(g: OnnxGraph, op: Op) -> None:
    """Read as Where; a vector of conditions applies to the first axis, and nothing else is broadcast."""
    condition, x, y = op.inputs[:3]
    chosen, rank = g.value(condition), len(g.shape(x))
    if len(g.shape(condition)) == 1 and rank > 1:
        chosen = g.reshape(chosen, (*g.shape(condition), *(1,) * (rank - 1)))
    g.set(op.outputs[0], g.node("Where", [chosen, g.value(x), g.value(y)]))


@reads("CUMSUM", inputs=2)
def cumsum(g: OnnxGraph, op: Op) -> None:
    """CumSum."""
    options = {name: int(op.options[name]) for name in ("exclusive", "reverse")}
    axis = g.int64(g.integer(op.inputs[1]))
    g.set(op.outputs[0], g.node("CumSum", [g.value(op.inputs[0]), axis], **options))


@reads("BITCAST", inputs=1)
def bit_cast(g: OnnxGraph, op: Op) -> None:
    """Write BitCast to the type of the output."""
    to = element_type(g.dtype(op.outputs[0]))
    g.set(op.outputs[0], g.node("BitCast", [g.value(op.inputs[0])], to=to))
    g.casts_bits = True


@reads("ATAN2", inputs=2)
def atan2(g: OnnxGraph, op: Op) -> None:
    """Write atan(y / x), with the quadrant chosen by the signs."""
    y, x = (g.value(i) for i in op.inputs[:2])
    zero, pi = g.number(0.0, op.inputs[0]), g.number(3.141592653589793, op.inputs[0])
    half = g.number(1.5707963267948966, op.inputs[0])
    sign = g.node("Where", [g.node("Less", [y, zero]), g.node("Neg", [pi]), pi])
    plain = g.node("Atan", [g.node("Div", [y, x])])
    left = g.node("Where", [g.node("Less", [x, zero]), g.node("Add", [plain, sign]), plain])
    upright = g.node("Mul", [g.node("Sign", [y]), half])
    g.set(op.outputs[0], g.node("Where", [g.node("Equal", [x, zero]), upright, left]))


REDUCTIONS: Mapping[str, str] = {
    "MEAN": "ReduceMean",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
    "SUM": "ReduceSum",
}
OF_BOOLS: Mapping[str, str] = {"REDUCE_ALL": "ReduceMin", "REDUCE_ANY": "ReduceMax"}


def _reduced(g: OnnxGraph, op_type: str, value: str) -> str:
    rank = len(g.shape(g.op.inputs[0]))
    axes = sorted({axis_of(g, axis, rank) for axis in g.ints(g.op.inputs[1])})
    if not axes:  # TFLite reduces no axis then, and ONNX all of them
        return g.node("Identity", [value])
    return g.node(op_type, [value, g.int64(axes)], keepdims=int(g.op.options["keep_dims"]))


@reads(*REDUCTIONS, inputs=2)
def reduction(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to one reduction node."""
    g.set(op.outputs[0], _reduced(g, REDUCTIONS[op.code], g.value(op.inputs[0])))


@reads(*OF_BOOLS, inputs=2)
def reduction_of_bools(g: OnnxGraph, op: Op) -> None:
    """Convert the operator to the minimum or maximum, computed as integers."""
    reduced = _reduced(g, OF_BOOLS[op.code], g.cast(g.value(op.inputs[0]), "int32"))
    g.set(op.outputs[0], g.cast(reduced, "bool"))


@reads("ARG_MAX", "ARG_MIN", inputs=2)
def arg_extreme(g: OnnxGraph, op: Op) -> None:
    """ArgMax or ArgMin, in the integers that the result has."""
    axis = axis_of(g, g.integer(op.inputs[1]), len(g.shape(op.inputs[0])))
    op_type = "ArgMax" if op.code == "ARG_MAX" else "ArgMin"
    indices = g.node(op_type, [g.value(op.inputs[0])], axis=axis, keepdims=0)
    dtype = g.dtype(op.outputs[0])
    g.set(op.outputs[0], indices if dtype == "int64" else g.cast(indices, dtype))


@reads("TOPK_V2", inputs=2, outputs=2)
def top_k(g: OnnxGraph, op: Op) -> None:
    """TopK along the last axis, sorted."""
    k = [g.integer(op.inputs[1])]
    values, indices = g.nodes("TopK", [g.value(op.inputs[0]), g.int64(k)], 2, axis=-1, largest=1, sorted=1)
    g.set(op.outputs[0], values)
    dtype = g.dtype(op.outputs[1])
    g.set(op.outputs[1], indices if dtype == "int64" else g.cast(indices, dtype))
