"""Rules for the operators that TFLite computes on integers, and their scales: one pure rule per operator.

Source: https://ai.google.dev/edge/litert/models/quantization_spec, and the kernels as LiteRT 2.3 and XNNPACK
run them. A rule returns the form of a node, or the reason that it is computed in float.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.op_arguments import arguments_of
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.resize_matrix import resize_lines
from edgekit.compiler.model.sliding_windows import divisors
from edgekit_tflite.graph import TensorQuantization
from edgekit_tflite.padding import bilinear_options
from edgekit_tflite.pairs import (
    CLAMPS,
    MOVES,
    attributes_of,
    clip_bounds,
    constant_array,
    following_quantization,
    is_constant,
    per_tensor,
    stored_number,
)

INDICES = frozenset({"ArgMax", "ArgMin"})
"""They read integers as they are, and give positions."""

FIXED: Mapping[str, TensorQuantization] = {
    "Sigmoid": TensorQuantization((1 / 256,), (-128,)),
    "Softmax": TensorQuantization((1 / 256,), (-128,)),
    "Tanh": TensorQuantization((1 / 128,), (0,)),
}
"""Output scales that the specification fixes. Kernels of other runtimes than LiteRT 2.3 refuse any other."""

TABLES = frozenset(
    {
        "Abs", "Ceil", "Cos", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Log", "Neg", "Round",
        "Sin", "Sqrt",
    }
)  # fmt: skip
"""Functions of one number whose float operators are all in XNNPACK. Measured: what LiteRT has for some of
them on int8 (HARD_SWISH, RELU) are plain kernels, 50 times as slow as the table."""

FUSING = frozenset({"Add", "Conv", "Gemm", "MatMul", "Mul", "Sub"})
"""Ops whose integer kernel clamps for a Relu or Clip after it."""

SOFTMAX_NUMBERS = 1024
"""Up to so many the integer SOFTMAX, a plain kernel, takes no more than 3 us; beyond, the float one in
XNNPACK is four times as fast."""


COARSEST = 256
"""From this ratio of input to output steps on ADD and SUB are not in XNNPACK, and the plain ones overflow."""


class InFloat(Exception):  # noqa: N818  (says what happens)
    """Signal that a node is computed in float; the text is the reason."""


@dataclass(frozen=True)
class Form:
    """Form of a node that computes on integers.

    Attributes:
        output: Quantization of the output; None if it is that of the input.
        bias: Constant that the next node adds, fused into this one.
        table: Whether it is a function of one number, so of 256 values: float operators between DEQUANTIZE
            and QUANTIZE, which XNNPACK turns into a table. No integer operator is faster or rounds better.
        dtype: Element type of the output: int8, or int16 if the next pair would round int8 again.
    """

    output: TensorQuantization | None = None
    bias: ir.Value | None = None
    table: bool = False
    dtype: str = "int8"


Quantizations = Mapping[ir.Value, TensorQuantization]
"""Float value -> the quantization of the int8 that it is held as."""

Rule = Callable[[ir.Node, Quantizations], Form]
"""How a node computes. Raises InFloat."""


def data_of(node: ir.Node) -> list[ir.Value]:
    """Return the inputs that are neither constants nor constants after a DequantizeLinear."""
    return [v for v in node.inputs if v is not None and v.name and not is_constant(v)]


def need_integers(node: ir.Node, quantizations: Quantizations) -> list[ir.Value]:
    """Return the non-constant inputs. Raises InFloat: some are not held as integers."""
    data = data_of(node)
    missing = [str(v.name) for v in data if v not in quantizations]
    if missing or not data:
        raise InFloat(f"{missing[0] if missing else 'nothing it reads'} is not stored as int8 by one scale")
    return data


def need_following_pair(value: ir.Value) -> TensorQuantization:
    """Return the quantization by which its reader stores it. Raises InFloat: it is read in float."""
    quantization = following_quantization(value)
    if quantization is None:
        raise InFloat("its result is read in float")
    return quantization


def _shape(value: ir.Value | None) -> tuple[int, ...]:
    return () if value is None else static_dims(value) or ()


def _moves(node: ir.Node, quantizations: Quantizations) -> Form:
    """Keep the input's numbers and scale; only positions change."""
    if node.inputs[0] is None or node.inputs[0] not in quantizations:
        need_integers(node, {})
    return Form()


def own_scale(node: ir.Node, quantizations: Quantizations) -> Form:
    """Give the output its own scale, independent of the inputs' scales."""
    need_integers(node, quantizations)
    return Form(need_following_pair(node.outputs[0]))


def _table(node: ir.Node, quantizations: Quantizations) -> Form:
    if len(need_integers(node, quantizations)) != 1:
        raise InFloat("it is not a function of one value")
    return Form(need_following_pair(node.outputs[0]), table=True)


def _clamps(node: ir.Node, quantizations: Quantizations) -> Form:
    """Clamp (Relu, Clip) in the pair after or kernel before it; else by a table, or numbers of its scale."""
    data = need_integers(node, quantizations)[0]
    bounds = clip_bounds(node)
    if bounds is None:
        raise InFloat("the model computes its bounds")
    maker, output = data.producer(), following_quantization(node.outputs[0])
    fused = maker is not None and maker.op_type in FUSING and len(data.uses()) == 1
    if output is not None:
        return Form() if fused or _covers(output, bounds) else Form(output, table=True)
    for bound in bounds:
        if bound is not None and not _is_exact(bound, quantizations[data]):
            raise InFloat(f"its bound {bound:.6g} cannot be stored with its input's scale")
    return Form()


def _covers(quantization: TensorQuantization, bounds: tuple[float | None, float | None]) -> bool:
    low, high = bounds
    ends = (-np.inf if low is None else low, np.inf if high is None else high)
    return stored_number(ends[0], quantization) == -128 and stored_number(ends[1], quantization) == 127


def _is_exact(number: float, quantization: TensorQuantization) -> bool:
    stored = number / quantization.scale[0] + quantization.zero_point[0]
    return stored <= -128 or stored >= 127 or abs(stored - round(stored)) < 1e-4


def _joins(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use one scale for all: that of the pair after it, or the common one of all inputs."""
    data = need_integers(node, quantizations)
    if len(data) != len(node.inputs):
        raise InFloat("one of its inputs is a constant")
    scales = {quantizations[v] for v in data}
    output = following_quantization(node.outputs[0])
    if output is None and len(scales) > 1:
        raise InFloat("its inputs have different scales, and its result is read in float")
    return Form(output if output is not None else scales.pop())


def _compares(node: ir.Node, quantizations: Quantizations) -> Form:
    if len(node.inputs) != 2:
        raise InFloat(f"TFLite's kernel compares two, and it has {len(node.inputs)} inputs")
    return _joins(node, quantizations)


def _arithmetic(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use three scales; a constant is stored as integers, but a single number makes a table."""
    form = own_scale(node, quantizations)
    for value in node.inputs:
        if value is None or not is_constant(value):
            continue
        if int(np.prod(_shape(value))) == 1:
            return _table(node, quantizations)
        maker = value.producer()
        if maker is None or per_tensor(maker) is None:
            raise InFloat(f"its constant {value.name} is not stored as 8-bit integers by one scale")
    if node.op_type != "Mul" and form.output is not None:
        coarsest = max(quantizations[v].scale[0] for v in data_of(node)) / form.output.scale[0]
        if coarsest >= COARSEST:
            raise InFloat(
                f"its inputs' steps are {coarsest:.0f} of its output's; the kernel takes {COARSEST}"
            )
    return form


def _divides(node: ir.Node, quantizations: Quantizations) -> Form:
    """Divide by a single number, which makes a table."""
    if node.inputs[1] is None or not is_constant(node.inputs[1]) or int(np.prod(_shape(node.inputs[1]))) != 1:
        raise InFloat("TFLite has no integer kernel for a division")
    return _table(node, quantizations)


def _fixed(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use the scale that the specification fixes; for another one, a table."""
    form = _table(node, quantizations)
    return Form(form.output) if form.output == FIXED[node.op_type] else form


def _softmax(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use the scale that the specification fixes; a coarser one after it takes a requantization."""
    need_integers(node, quantizations)
    output, fixed = need_following_pair(node.outputs[0]), FIXED[node.op_type]
    if int(np.prod(_shape(node.outputs[0]))) > SOFTMAX_NUMBERS:
        raise InFloat("on so many numbers TFLite's integer kernel is slower than the float one in XNNPACK")
    if output.scale[0] < fixed.scale[0] * 0.999:
        raise InFloat(
            f"its result is stored in steps of {output.scale[0]:.3g}, and TFLite's kernel gives steps of "
            f"{fixed.scale[0]:.3g}"
        )
    return Form(fixed)


def _only(names: Mapping[str, float], rule: Rule) -> Rule:

    def checked(node: ir.Node, quantizations: Quantizations) -> Form:
        for name, required in names.items():
            value = attributes_of(node).get(name, required)
            if value != required:
                raise InFloat(f"TFLite's integer kernel has no {name} {value:g}")
        return rule(node, quantizations)

    return checked


def _multiplies(weight_axis: Callable[[ir.Node], int]) -> Rule:
    """Return the rule of a product with constant weights and a constant bias."""

    def rule(node: ir.Node, quantizations: Quantizations) -> Form:
        data, weights = node.inputs[:2]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if data is None or data not in quantizations:
            raise InFloat(f"{data.name if data else ''} is not stored as int8 by one scale")
        if weights is None or not _is_kernel(weights, weight_axis(node)):
            raise InFloat(
                f"its weights {weights.name if weights else ''} are not int8 by one scale, or one for each "
                "output channel, with zero point 0"
            )
        if bias is not None and not is_constant(bias):
            raise InFloat(f"its bias {bias.name} is computed by the model")
        if bias is not None and int(np.prod(_shape(bias))) != (_shape(bias) or (1,))[-1]:
            raise InFloat(f"its bias {bias.name} is a matrix")
        added = added_vector(node) if node.op_type == "MatMul" else None
        if added is not None:
            ((adder, _),) = node.outputs[0].uses()
            output = following_quantization(adder.outputs[0])
            if output is not None:
                return Form(output, added)
        return Form(need_following_pair(node.outputs[0]))

    return rule


def _is_kernel(value: ir.Value, axis: int) -> bool:
    """Check for stored int4, int8 or uint8 around 128, with one scale or one per index of ``axis``."""
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear" or not is_constant(value):
        return False
    source, scale, zero_point = maker.inputs[0], constant_array(maker, 1), constant_array(maker, 2)
    shape = _shape(value)
    blocks = maker.attributes.get_int("block_size", 0) != 0
    if source is None or scale is None or not shape or blocks:
        return False
    if source.dtype not in (ir.DataType.INT4, ir.DataType.INT8, ir.DataType.UINT8):
        return False
    middle = 128 if source.dtype == ir.DataType.UINT8 else 0
    if np.any((0 if zero_point is None else zero_point) != middle):
        return False
    along = maker.attributes.get_int("axis", 1) % len(shape)
    return scale.size == 1 or (along == axis % len(shape) and scale.size == shape[along])


def added_vector(node: ir.Node) -> ir.Value | None:
    """Return the bias of a MatMul: a constant vector that the only reader of its result adds."""
    output = node.outputs[0]
    if output.is_graph_output() or len(output.uses()) != 1:
        return None
    ((reader, index),) = output.uses()
    bias = reader.inputs[1 - index] if reader.op_type == "Add" else None
    if bias is None or not is_constant(bias):
        return None
    width = _shape(output)[-1:]
    return bias if width and _shape(bias)[-1:] == width and int(np.prod(_shape(bias))) == width[0] else None


def _mat_mul(node: ir.Node, quantizations: Quantizations) -> Form:
    if any(is_constant(v) for v in node.inputs if v is not None):
        if len(_shape(node.inputs[1])) != 2:
            raise InFloat("its constant operand is not a matrix on the right")
        return _multiplies(lambda _: 1)(node, quantizations)
    raise InFloat("TFLite's integer product of two computed matrices is a plain kernel, slower than in float")


def _average_pool(node: ir.Node, quantizations: Quantizations) -> Form:
    """Use a depthwise convolution with equal weights: all windows must have equally many elements."""
    form = own_scale(node, quantizations)
    arguments = arguments_of(node)
    counts = divisors(arguments["frame"], arguments["count_include_pad"])
    if np.any(counts != counts.flat[0]):
        raise InFloat("its windows at the border count fewer elements than the others")
    return form


def _pads(node: ir.Node, quantizations: Quantizations) -> Form:
    form = _moves(node, quantizations)
    fill = constant_array(node, 2)
    if fill is None or node.inputs[0] is None:
        return form
    number, source = float(fill.ravel()[0]), quantizations[node.inputs[0]]
    stored = number / source.scale[0] + source.zero_point[0]
    held_exactly = -128 <= stored <= 127 and _is_exact(number, source)
    if not held_exactly and following_quantization(node.outputs[0]) != source:
        raise InFloat(f"its fill {number:.6g} cannot be stored with its input's scale")
    return form


def _resizes(node: ir.Node, quantizations: Quantizations) -> Form:
    form = _moves(node, quantizations)
    attributes = attributes_of(node)
    mode = attributes.get("mode", "nearest")
    if mode == "nearest":
        return form
    source, out = _shape(node.inputs[0]), _shape(node.outputs[0])
    lines = resize_lines(
        source, out, list(attributes.get("axes") or range(len(source))),
        attributes.get("coordinate_transformation_mode", "half_pixel"),
        attributes.get("keep_aspect_ratio_policy", "stretch"),
        constant_array(node, 2), constant_array(node, 3), constant_array(node, 1),
    )  # fmt: skip
    shrinks = attributes.get("antialias") and min(line.factor for line in lines) < 1
    if mode != "linear" or shrinks or attributes.get("exclude_outside") or bilinear_options(lines) is None:
        raise InFloat("TFLite has no integer kernel for its mode and coordinates")
    output, data = following_quantization(node.outputs[0]), node.inputs[0]
    if output is None or data is None or output.scale[0] < quantizations[data].scale[0] * 0.999:
        raise InFloat("it rounds to steps of its input's scale, and its result is not stored in such steps")
    return form


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(MOVES | INDICES, _moves),
    **dict.fromkeys(CLAMPS, _clamps),
    **dict.fromkeys(TABLES, _table),
    **dict.fromkeys(("Sigmoid", "Tanh"), _fixed),
    **dict.fromkeys(("Add", "Mul", "Sub"), _arithmetic),
    **dict.fromkeys(("GlobalAveragePool", "LeakyRelu", "ReduceMean", "ReduceSum"), own_scale),
    **dict.fromkeys(("Max", "Min"), _compares),
    "AveragePool": _average_pool,
    "Concat": _joins,
    "Conv": _multiplies(lambda _: 0),
    "ConvTranspose": _only({"group": 1}, _multiplies(lambda _: 1)),
    "Div": _divides,
    "Elu": _only({"alpha": 1.0}, own_scale),
    "Gemm": _only(
        {"alpha": 1.0, "beta": 1.0},
        _multiplies(lambda node: 0 if node.attributes.get_int("transB", 0) else 1),
    ),
    "MatMul": _mat_mul,
    "Pad": _pads,
    "Resize": _resizes,
    "Softmax": _softmax,
}
"""ONNX op -> its rule. What is not here is computed in float."""
