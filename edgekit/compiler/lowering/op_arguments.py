"""Arguments of ONNX nodes as lowerings use them, decoded once for all targets.

    Conv, pools     auto_pad, ceil_mode, dilations, kernel_shape, pads, strides  =>  frame: Window
    Reduce...       the input axes, noop_with_empty_axes                         =>  axes
    Resize          roi, scales, sizes and ten attributes                        =>  resizing: Resizing

A decoder takes the node's attributes, with the defaults of ONNX's schema, and its inputs. It returns the
inputs and the keywords of the lowering. An attribute that no lowering needs (``stash_type``) ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
import onnx.defs
import onnx.helper
import onnx_ir as ir

from edgekit.compiler.lowering.activation_parameters import refuse_random_dropout
from edgekit.compiler.lowering.index_arguments import NodeInput, axes_from, reduced_axes, slice_ranges
from edgekit.compiler.lowering.pad_amounts import pad_amounts
from edgekit.compiler.lowering.resize_arguments import Resizing, resized_axes
from edgekit.compiler.model.rewriting import array_of, dims_of
from edgekit.compiler.model.sliding_windows import Window, conv_window, transposed_window, window
from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array

Axes = tuple[int, ...]
"""Axes that a lowering reduces: non-negative, sorted, each once."""
Decoded = tuple[tuple[Any, ...], dict[str, Any]]
"""Inputs of the lowering, and its keywords."""
Attributes = Any
"""Attributes of a node, by name: those of its op's schema; None for one that is absent and has no default."""
CANONICAL_OPSET = 23


class Node(Protocol):
    """Node being lowered, as a decoder sees it."""

    def out_shape(self, index: int = 0) -> tuple[int, ...]:
        """Return the static shape of an output."""


class _Input(NamedTuple):
    shape: tuple[int, ...]
    const: Array | None


class _StaticNode(NamedTuple):
    node: ir.Node

    def out_shape(self, index: int = 0) -> tuple[int, ...]:
        return dims_of(self.node.outputs[index]) or ()


@cache
def defaults_of(op: str) -> Mapping[str, Any]:
    """Return the attributes of an op of ONNX's own domain in the canonical opset, with their defaults."""
    defaults: dict[str, Any] = {}
    for name, attribute in onnx.defs.get_schema(op, CANONICAL_OPSET).attributes.items():
        stated = attribute.default_value
        default = onnx.helper.get_attribute_value(stated) if stated.type else None
        if isinstance(default, float):
            short = float(f"{default:.6g}")  # 1e-5, of which the schema has the nearest float32
            default = short if np.float32(short) == np.float32(default) else default
        defaults[name] = default.decode() if isinstance(default, bytes) else default
    return defaults


def attributes_of(node: ir.Node) -> Attributes:
    """Return the attributes of a node of ONNX's own domain, with the defaults of its op."""
    stated = {name: attribute.value for name, attribute in node.attributes.items()}
    return SimpleNamespace(**{**defaults_of(node.op_type), **stated})


def arguments_of(node: ir.Node) -> dict[str, Any]:
    """Decode a node outside of an op table: return the keywords of its lowering. Its shapes must be static.

    Raises:
        KeyError: the op has no decoder.
        Inexpressible: as the decoder.
    """
    inputs = [_Input(dims_of(value) or (), array_of(value)) for value in node.inputs if value is not None]
    return DECODERS[node.op_type](_StaticNode(node), attributes_of(node), *inputs)[1]


def _conv(b: Node, a: Attributes, X: NodeInput, W: NodeInput, B: NodeInput | None = None) -> Decoded:
    sizes = X.shape[2:], b.out_shape()[2:], W.shape[2:]
    frame = conv_window(*sizes, a.kernel_shape, a.strides, a.dilations, a.auto_pad, a.pads)
    return (X, W, B), {"frame": frame, "group": a.group}


def _conv_transpose(
    b: Node, a: Attributes, X: NodeInput, W: NodeInput, B: NodeInput | None = None
) -> Decoded:
    sizes = X.shape[2:], b.out_shape()[2:], W.shape[2:]
    ends = a.auto_pad, a.pads, a.output_padding, a.output_shape
    return (X, W, B), {"frame": transposed_window(*sizes, a.strides, a.dilations, *ends), "group": a.group}


def _frame(b: Node, a: Attributes, X: NodeInput) -> Window:
    sizes = X.shape[2:], b.out_shape()[2:]
    return window(*sizes, a.kernel_shape, a.strides, a.dilations, a.auto_pad, a.pads)


def _max_pool(b: Node, a: Attributes, X: NodeInput) -> Decoded:
    return (X,), {"frame": _frame(b, a, X)}


def _average_pool(b: Node, a: Attributes, X: NodeInput) -> Decoded:
    return (X,), {"frame": _frame(b, a, X), "count_include_pad": bool(a.count_include_pad)}


def _lp_pool(b: Node, a: Attributes, X: NodeInput) -> Decoded:
    return (X,), {"frame": _frame(b, a, X), "p": a.p}


def _reduce(b: Node, a: Attributes, data: NodeInput, axes: NodeInput | None = None) -> Decoded:
    # axes is None if each element is reduced alone
    reduced = reduced_axes(len(data.shape), axes, a.noop_with_empty_axes)
    return (data,), {"axes": reduced, "keepdims": bool(a.keepdims)}


def _resize(b: Node, a: Attributes, X: NodeInput, *rest: NodeInput | None) -> Decoded:
    roi, scales, sizes = (*rest, None, None, None)[:3]
    lines = resized_axes(
        X.shape, b.out_shape(), roi, scales, sizes, axes=a.axes, mode=a.mode,
        coordinate_transformation_mode=a.coordinate_transformation_mode,
        keep_aspect_ratio_policy=a.keep_aspect_ratio_policy,
    )  # fmt: skip
    crops = a.coordinate_transformation_mode == "tf_crop_and_resize"
    even, clipped = bool(a.antialias), bool(a.exclude_outside)
    modes = a.mode, a.nearest_mode, a.cubic_coeff_a
    return (X,), {"resizing": Resizing(lines, *modes, even, clipped, crops, a.extrapolation_value)}


def _layer_norm(
    b: Node, a: Attributes, X: NodeInput, Scale: NodeInput, B: NodeInput | None = None
) -> Decoded:
    return (X, Scale, B), {"axes": axes_from(a.axis, len(X.shape)), "epsilon": a.epsilon}


def _rms_norm(b: Node, a: Attributes, X: NodeInput, scale: NodeInput) -> Decoded:
    return (X, scale), {"axes": axes_from(a.axis, len(X.shape)), "epsilon": a.epsilon}


def _batch_norm(b: Node, a: Attributes, *inputs: NodeInput) -> Decoded:
    if a.training_mode:
        raise Inexpressible("training_mode=1 updates statistics; export the model for inference")
    return inputs, {"epsilon": a.epsilon}


def _gemm(b: Node, a: Attributes, A: NodeInput, B: NodeInput, C: NodeInput | None = None) -> Decoded:
    return (A, B, C), dict(vars(a))


def _pad(b: Node, a: Attributes, data: NodeInput, pads: NodeInput, *rest: NodeInput | None) -> Decoded:
    constant_value, axes = (*rest, None, None)[:2]
    return (data, constant_value), {"amounts": pad_amounts(data.shape, pads, axes, a.mode), "mode": a.mode}


def _slice(b: Node, a: Attributes, data: NodeInput, *ranges: NodeInput) -> Decoded:
    return (data,), {"ranges": slice_ranges(data.shape, *ranges)}


def _dropout(b: Node, a: Attributes, data: NodeInput, *rest: NodeInput | None) -> Decoded:
    refuse_random_dropout(rest[1] if len(rest) > 1 else None)
    return (data,), {}


def _view(b: Node, a: Attributes, data: NodeInput, *rest: NodeInput | None) -> Decoded:
    return (data,), {}


def _only(*names: str) -> Callable[..., Decoded]:
    return lambda b, a, *inputs: (inputs, {name: getattr(a, name) for name in names})


VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
"""Ops that keep the elements in their order; their lowerings take the data alone."""
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
DECODERS: Mapping[str, Callable[..., Decoded]] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _only("to"),
    "CastLike": _only(),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": _only("axis", "block_size"),
    "Dropout": _dropout,
    **dict.fromkeys(VIEWS, _view),
    "Gemm": _gemm,
    "GroupNormalization": _only("num_groups", "epsilon"),
    "LayerNormalization": _layer_norm,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "QuantizeLinear": _only("axis", "block_size"),
    "RMSNormalization": _rms_norm,
    "Resize": _resize,
    "Selu": _only("alpha", "gamma"),
    "Slice": _slice,
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
}
"""Op of ONNX's own domain -> its decoder. Lowerings of other ops have the ONNX signature themselves."""
