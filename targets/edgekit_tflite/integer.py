"""The plan of a model with Q/DQ pairs: what becomes an integer kernel, by which scales, and why not others.

    DequantizeLinear -> op [-> Relu or Clip] -> QuantizeLinear        one int8 kernel
    DequantizeLinear -> op that only moves data                       the same numbers, moved as integers

The scales are the model's own. A node that is in no plan is computed in float between DEQUANTIZE and
QUANTIZE, which is what its pairs say, and ``why_not`` has the reason. Nothing is emitted here.

Which operator takes which scales: https://ai.google.dev/edge/litert/models/quantization_spec
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from edgekit_tflite.graph import Quantization
from edgekit_tflite.values import static_shape

MOVES = frozenset(
    {
        "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalMaxPool", "Identity", "MaxPool", "ReduceMax",
        "ReduceMin", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""The output holds some of the input's own numbers, so it has the input's scale."""

MOVES_STORED = frozenset({"Flatten", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
"""Those that models also have between a QuantizeLinear and its DequantizeLinear."""

CLAMPS = frozenset({"Clip", "Relu"})
INDICES = frozenset({"ArgMax", "ArgMin"})
"""They read integers as they are, and give positions."""

FIXED: Mapping[str, Quantization] = {
    "Sigmoid": Quantization((1 / 256,), (-128,)),
    "Softmax": Quantization((1 / 256,), (-128,)),
    "Tanh": Quantization((1 / 128,), (0,)),
}
"""Output scales that TFLite's specification fixes."""

RULES_TEXT = {
    "float": "its result is read in float",
    "source": "{} is not stored as 8-bit integers by one scale",
    "weights": "its weights {} are not int8 by one scale, or one for each output channel, with zero point 0",
}


@dataclass(frozen=True)
class Form:
    """How one node computes on integers.

    Attributes:
        output: How the integers that it makes stand for reals; None where they do as those of its input.
        bias: A constant that the next node adds, taken into this one.
    """

    output: Quantization | None = None
    bias: ir.Value | None = None


@dataclass
class IntegerPlan:
    """What is computed on integers.

    Attributes:
        forms: Node -> how, for those that are.
        why_not: Node -> why it is computed in float, in a model that has pairs.
        shifted: uint8 values that are held as int8, less 128; only their pairs read them.
        stored: int8 graph inputs and what is moved from them -> how they stand for reals.
        taken: Nodes that another one has taken into it: a bias.
    """

    forms: dict[ir.Node, Form] = field(default_factory=dict)
    why_not: dict[ir.Node, str] = field(default_factory=dict)
    shifted: set[ir.Value] = field(default_factory=set)
    stored: dict[ir.Value, Quantization] = field(default_factory=dict)
    taken: set[ir.Node] = field(default_factory=set)


def plan_integers(graph: ir.Graph) -> IntegerPlan:
    """The plan for a canonical graph; an empty one where no activation is quantized."""
    plan = IntegerPlan()
    if not any(_is_pair(node) for node in graph):
        return plan
    real: dict[ir.Value, Quantization] = {}
    for node in graph:
        if node.op_type == "DequantizeLinear":
            found = per_tensor(node)
            if found is not None:
                real[node.outputs[0]] = found
                _trace_stored(plan, node, found)
        elif node.op_type != "QuantizeLinear" and node not in plan.taken and _reads_floats(node):
            _plan_node(plan, real, node)
    return plan


def _is_pair(node: ir.Node) -> bool:
    """Whether it is the half of a pair around an activation that integer kernels know."""
    return (
        node.op_type in ("QuantizeLinear", "DequantizeLinear")
        and per_tensor(node) is not None
        and (node.inputs[0] is not None and node.inputs[0].const_value is None)
    )


def _reads_floats(node: ir.Node) -> bool:
    return any(v is not None and v.dtype == ir.DataType.FLOAT and not is_constant(v) for v in node.inputs)


def per_tensor(node: ir.Node) -> Quantization | None:
    """Scale and zero point of a Q or DQ node in int8 terms; None unless constant, 8 bits and one for all."""
    stored = node.outputs[0] if node.op_type == "QuantizeLinear" else node.inputs[0]
    scale = _constant(node, 1)
    if stored is None or stored.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return None
    if scale is None or scale.size != 1 or scale.dtype != np.float32:
        return None
    shift = 128 if stored.dtype == ir.DataType.UINT8 else 0
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    zero_point = _constant(node, 2) if given else np.zeros((), np.int64)
    if zero_point is None:
        return None
    return Quantization((float(scale.ravel()[0]),), (int(zero_point.ravel()[0]) - shift,))


def _constant(node: ir.Node, place: int) -> np.ndarray | None:
    value = node.inputs[place] if place < len(node.inputs) else None
    return None if value is None or value.const_value is None else value.const_value.numpy()


def _trace_stored(plan: IntegerPlan, node: ir.Node, quantization: Quantization) -> None:
    """Say of the integers behind ``node``, back to where they are made, what they stand for."""
    value = node.inputs[0]
    path = []
    while value is not None:
        path.append(value)
        maker = value.producer()
        if maker is None or maker.op_type not in MOVES_STORED:
            break
        value = maker.inputs[0]
    if value is None or value.const_value is not None:
        return
    maker = value.producer()
    if maker is None:
        for passed in path:
            plan.stored.setdefault(passed, quantization)
    elif maker.op_type == "QuantizeLinear" and value.dtype == ir.DataType.UINT8 and _only_paired(value):
        plan.shifted.update(path)


def _only_paired(value: ir.Value) -> bool:
    """Whether only DequantizeLinear reads ``value``, or what is moved from it."""
    if value.is_graph_output():
        return False
    return all(
        per_tensor(node) is not None
        if node.op_type == "DequantizeLinear"
        else node.op_type in MOVES_STORED and all(_only_paired(o) for o in node.outputs)
        for node, _ in value.uses()
    )


def _plan_node(plan: IntegerPlan, real: dict[ir.Value, Quantization], node: ir.Node) -> None:
    rule = RULES.get(node.op_type)
    if rule is None:
        plan.why_not[node] = f"EdgeKit has no integer kernel for {node.op_type}"
        return
    found = rule(node, real)
    if isinstance(found, str):
        plan.why_not[node] = found
        return
    plan.forms[node] = found
    made = list(node.outputs)
    if found.bias is not None:
        ((adder, _),) = node.outputs[0].uses()
        plan.taken.add(adder)
        plan.forms[adder] = Form()
        made += adder.outputs
    if node.op_type not in INDICES:
        output = found.output or real[_data(node)[0]]
        real.update(dict.fromkeys(made, output))


Rule = Callable[[ir.Node, Mapping[ir.Value, Quantization]], "Form | str"]
"""How a node computes on integers, or why it doesn't."""


def _data(node: ir.Node) -> list[ir.Value]:
    """The inputs that are not constants, nor constants behind a DequantizeLinear."""
    return [v for v in node.inputs if v is not None and v.name and not is_constant(v)]


def is_constant(value: ir.Value) -> bool:
    """Whether ``value`` is a constant, or one behind a DequantizeLinear."""
    if value.const_value is not None:
        return True
    maker = value.producer()
    return (
        maker is not None
        and maker.op_type == "DequantizeLinear"
        and maker.inputs[0] is not None
        and maker.inputs[0].const_value is not None
    )


def behind(value: ir.Value) -> Quantization | None:
    """How the only reader of ``value`` stores it: the QuantizeLinear behind it and what clamps it."""
    if value.is_graph_output() or len(value.uses()) != 1:
        return None
    ((reader, place),) = value.uses()
    if reader.op_type in CLAMPS and place == 0 and all(is_constant(v) for v in reader.inputs[1:] if v):
        return behind(reader.outputs[0])
    return per_tensor(reader) if reader.op_type == "QuantizeLinear" and place == 0 else None


def _as_integers(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> str:
    """Why the data of ``node`` is not all integers; empty where it is."""
    data = _data(node)
    if not data:
        return "all of its inputs are constants"
    missing = [str(v.name) for v in data if v not in real]
    return RULES_TEXT["source"].format(missing[0]) if missing else ""


def _moved(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    first = node.inputs[0]
    if first is None or first not in real:
        return RULES_TEXT["source"].format("" if first is None else first.name)
    return Form()


def _own(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """Its own output scale, whatever that of the inputs is."""
    why = _as_integers(node, real)
    output = behind(node.outputs[0])
    return why or (RULES_TEXT["float"] if output is None else Form(output))


def _clamped(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """Relu or Clip: the Q behind clamps by itself, or the bounds are stored numbers of the input's scale."""
    why = _as_integers(node, real)
    if why:
        return why
    bounds = clip_bounds(node)
    if bounds is None:
        return "its bounds are computed by the model"
    source = real[_data(node)[0]]
    after = behind(node.outputs[0])
    if after is None and not all(b is None or _exact(b, source) for b in bounds):
        return f"its bounds {bounds} are not numbers of its input's scale"
    return Form()


def clip_bounds(node: ir.Node) -> tuple[float | None, float | None] | None:
    """Least and greatest value that Relu or Clip lets through, None for no bound; None if not constant."""
    if node.op_type == "Relu":
        return 0.0, None
    found: list[float | None] = []
    for place in (1, 2):
        value = node.inputs[place] if place < len(node.inputs) else None
        array = _constant(node, place)
        if value is not None and value.name and array is None:
            return None
        found.append(None if array is None else float(array.ravel()[0]))
    return found[0], found[1]


def _exact(number: float, quantization: Quantization) -> bool:
    """Whether ``number`` is beyond what is stored, or stored without a rest."""
    stored = number / quantization.scale[0] + quantization.zero_point[0]
    return stored <= -128 or stored >= 127 or abs(stored - round(stored)) < 1e-4


def _joined(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """One scale for all: the Q's behind it, or that which all inputs have."""
    why = _as_integers(node, real)
    if why:
        return why
    if len(_data(node)) != len(node.inputs):
        return "one of its inputs is a constant"
    scales = {real[v] for v in _data(node)}
    output = behind(node.outputs[0])
    if output is None and len(scales) > 1:
        return "its inputs have different scales, and its result is read in float"
    return Form(output if output is not None else scales.pop())


def _compared(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """Max and Min of two: one scale for both, a constant among them."""
    if len(node.inputs) != 2:
        return f"TFLite's kernel takes two inputs, and it has {len(node.inputs)}"
    return _joined(node, real)


def _arithmetic(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """Add, Sub, Mul: three scales; a constant has to be stored as integers, or be a single number."""
    found = _own(node, real)
    if isinstance(found, str):
        return found
    for value in node.inputs:
        if value is None or not is_constant(value):
            continue
        size = int(np.prod(static_shape(value) or ()))
        maker = value.producer()
        stored = maker is not None and per_tensor(maker) is not None
        if not stored and (size != 1 or (value.const_value is None)):
            return f"its constant {value.name} is not stored as 8-bit integers by one scale"
    return found


def _fixed(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    """The scale that the specification fixes; another one behind it takes a requantization."""
    why = _as_integers(node, real)
    output = behind(node.outputs[0])
    if why or output is None:
        return why or RULES_TEXT["float"]
    fixed = FIXED[node.op_type]
    if output.scale[0] < fixed.scale[0] * 0.999:
        return (
            f"its result is stored in steps of {output.scale[0]:.3g}, and TFLite's kernel gives steps of "
            f"{fixed.scale[0]:.3g}"
        )
    return Form(fixed)


def _softmax(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    return _fixed(node, real)


def _multiplied(weight_axis: Callable[[ir.Node], int]) -> Rule:
    def rule(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
        data, weights = node.inputs[0], node.inputs[1]
        if data is None or data not in real:
            return RULES_TEXT["source"].format("" if data is None else data.name)
        if weights is None or not _kernel_weights(weights, weight_axis(node)):
            return RULES_TEXT["weights"].format("" if weights is None else weights.name)
        if len(node.inputs) > 2 and node.inputs[2] is not None and not is_constant(node.inputs[2]):
            return f"its bias {node.inputs[2].name} is computed by the model"
        output, bias = behind(node.outputs[0]), None
        if output is None and node.op_type == "MatMul":
            bias = added_constant(node)
            if bias is not None:
                ((adder, _),) = node.outputs[0].uses()
                output = behind(adder.outputs[0])
        return RULES_TEXT["float"] if output is None else Form(output, bias)

    return rule


def _kernel_weights(value: ir.Value, axis: int) -> bool:
    """Whether ``value`` is int8 (or uint8 about 128) by one scale or one for each index of ``axis``."""
    maker = value.producer()
    if maker is None or maker.op_type != "DequantizeLinear" or not is_constant(value):
        return False
    source = maker.inputs[0]
    scale = _constant(maker, 1)
    shape = static_shape(value)
    if source is None or scale is None or shape is None or "block_size" in _set(maker):
        return False
    if source.dtype not in (ir.DataType.INT8, ir.DataType.UINT8):
        return False
    zero_point = _constant(maker, 2)
    middle = 128 if source.dtype == ir.DataType.UINT8 else 0
    if np.any((0 if zero_point is None else zero_point) != middle):
        return False
    along = maker.attributes.get_int("axis", 1) % len(shape)
    return scale.size == 1 or (along == axis % len(shape) and scale.size == shape[along])


def _set(node: ir.Node) -> Sequence[str]:
    """Names of the attributes that are not their zero default."""
    return [name for name, attribute in node.attributes.items() if attribute.value]


def added_constant(node: ir.Node) -> ir.Value | None:
    """The bias of a MatMul: a constant vector that the only reader of its result adds."""
    output = node.outputs[0]
    if output.is_graph_output() or len(output.uses()) != 1:
        return None
    ((reader, place),) = output.uses()
    if reader.op_type != "Add":
        return None
    bias = reader.inputs[1 - place]
    shape = None if bias is None else static_shape(bias)
    width = static_shape(output)
    if bias is None or shape is None or width is None or not is_constant(bias):
        return None
    return bias if int(np.prod(shape)) == width[-1] == (shape or (1,))[-1] else None


def _gemm(node: ir.Node) -> int:
    return 0 if node.attributes.get_int("transB", 0) else 1


def _gemm_rule(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    plain = {"alpha": 1.0, "beta": 1.0}
    for name, value in plain.items():
        if node.attributes.get_float(name, value) != value:
            return f"it scales by {name}"
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None and (static_shape(bias) or (0,))[-1] != int(np.prod(static_shape(bias) or (1,))):
        return "its bias is a matrix"
    return _multiplied(_gemm)(node, real)


def _matmul_rule(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    weights = node.inputs[1]
    if weights is not None and is_constant(weights) and len(static_shape(weights) or ()) == 2:
        return _multiplied(lambda _: 1)(node, real)
    if any(is_constant(v) for v in node.inputs if v is not None):
        return "its constant operand is no matrix"
    return _own(node, real)


def _pad(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    found = _moved(node, real)
    if isinstance(found, str):
        return found
    fill = _constant(node, 2)
    source = real[_data(node)[0]]
    if fill is not None and not _exact(float(fill.ravel()[0]), source):
        return f"its fill {float(fill.ravel()[0]):.6g} is no number of its input's scale"
    return found


def _resized(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    if node.attributes.get_string("mode", "nearest") not in ("nearest", "linear"):
        return "TFLite has no integer kernel for its mode"
    return _moved(node, real)


def _positions(node: ir.Node, real: Mapping[ir.Value, Quantization]) -> Form | str:
    return _moved(node, real)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(MOVES, _moved),
    **dict.fromkeys(CLAMPS, _clamped),
    **dict.fromkeys(INDICES, _positions),
    **dict.fromkeys(FIXED, _fixed),
    "Add": _arithmetic,
    "AveragePool": _own,
    "Concat": _joined,
    "Conv": _multiplied(lambda _: 0),
    "ConvTranspose": _multiplied(lambda _: 1),
    "Elu": _own,
    "Gemm": _gemm_rule,
    "GlobalAveragePool": _own,
    "HardSwish": _own,
    "LeakyRelu": _own,
    "MatMul": _matmul_rule,
    "Max": _compared,
    "Min": _compared,
    "Mul": _arithmetic,
    "Pad": _pad,
    "ReduceMean": _own,
    "ReduceSum": _own,
    "Resize": _resized,
    "Sub": _arithmetic,
}
"""ONNX op -> its rule. What is not here is computed in float."""
