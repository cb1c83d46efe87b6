"""Lookahead for the layout that the readers of an ONNX value want.

The layout is only a hint: it decides between layouts that cost the same, and correctness never depends on it.
"""

from __future__ import annotations

import onnx_ir as ir

from edgekit.compiler.lowering.io_layouts import is_channels_last
from edgekit.compiler.model.node_checks import static_dims
from edgekit_tflite import layout
from edgekit_tflite.layout import Perm, channels_last, identity
from edgekit_tflite.pairs import PAIR, is_constant, per_tensor

CHANNELS_LAST_OPS = frozenset(
    {"AveragePool", "Conv", "ConvTranspose", "DepthToSpace", "LRN", "MaxPool", "Resize", "SpaceToDepth"}
)
LAST_AXIS_OPS = frozenset({"Attention", "Gemm", "LayerNormalization", "MatMul", "RMSNormalization"})
RESHAPING_OPS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
FOLLOWING_OPS = frozenset(
    {
        "Add", "BatchNormalization", "Clip", "Concat", "DequantizeLinear", "Div", "Elu", "Gelu",
        "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "Mul", "PRelu", "Pad", "Pow", "QuantizeLinear",
        "Relu", "Sigmoid", "Slice", "Split", "Sqrt", "Sub", "Sum", "Tanh",
    }
)  # fmt: skip
"""Ops that take any layout, so that what they feed decides."""

DEMAND_STEPS = 12
"""How far a reader is looked for."""


class Demands:
    """Cache of wanted layouts, for one compilation."""

    def __init__(self) -> None:
        self._layouts: dict[ir.Value, Perm | None] = {}

    def layout_of(self, value: ir.Value, steps: int = DEMAND_STEPS) -> Perm | None:
        """Return the layout that the readers of ``value`` want, through ops that take any; None for any."""
        if value in self._layouts or steps == 0:
            return self._layouts.get(value)
        self._layouts[value] = None
        demanded = io_perm(value) if value.is_graph_output() else None
        for node, index in value.uses():
            demanded = self._of_reader(value, node, index, steps)
            if demanded is not None:
                break
        self._layouts[value] = demanded
        return demanded

    def _of_reader(self, value: ir.Value, node: ir.Node, index: int, steps: int) -> Perm | None:
        rank, out = _rank(value), node.outputs[0]
        if node.op_type in CHANNELS_LAST_OPS and index == 0:
            return channels_last(rank)
        if node.op_type in LAST_AXIS_OPS and index == 0:
            return identity(rank)
        if node.op_type == "Transpose":
            demanded = self.layout_of(out, steps - 1)
            order = node.attributes.get_ints("perm", tuple(reversed(range(rank))))
            return None if demanded is None else tuple(order[axis] for axis in demanded)
        if node.op_type in RESHAPING_OPS and index == 0:
            demanded = self.layout_of(out, steps - 1)
            a, b = static_dims(value) or (), static_dims(out) or ()
            if demanded is None or not layout.can_group(a, b, demanded):
                return None
            return layout.grouped_perm(a, b, demanded)
        if node.op_type in FOLLOWING_OPS and _rank(out) == rank:
            return self.layout_of(out, steps - 1)
        return None


def io_perm(value: ir.Value) -> Perm:
    """Return the perm of a graph input or output: the source's order, or channels last on request."""
    rank = _rank(value)
    return channels_last(rank) if is_channels_last(value) else identity(rank)


def only_multiplied(value: ir.Value) -> bool:
    """Check that all readers of ``value`` multiply its rows by a constant matrix."""
    return not value.is_graph_output() and all(_multiplies(node, index) for node, index in value.uses())


def _multiplies(node: ir.Node, index: int) -> bool:
    if node.op_type in PAIR:
        return index == 0 and per_tensor(node) is not None and only_multiplied(node.outputs[0])
    transposed = node.attributes.get("transA")
    if node.op_type not in ("Gemm", "MatMul") or index != 0 or (transposed is not None and transposed.value):
        return False
    weights = node.inputs[1]
    return weights is not None and is_constant(weights) and _rank(weights) == 2


def _rank(value: ir.Value) -> int:
    return len(static_dims(value) or ())
