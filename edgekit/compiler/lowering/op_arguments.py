"""Arguments of ONNX nodes as lowerings use them, decoded once for all targets.

    Conv, pools     auto_pad, ceil_mode, dilations, kernel_shape, pads, strides  =>  frame: Window
    Reduce...       the input axes, noop_with_empty_axes                         =>  axes
    Resize          roi, scales, sizes and ten attributes                        =>  resizing: Resizing

A decoder has ONNX's signature and defaults, and returns the inputs and the keywords of the lowering.
An attribute without effect on any lowering (``saturate``, ``stash_type``) is accepted here and ends here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

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


def arguments_of(node: ir.Node) -> dict[str, Any]:
    """Decode a node outside of an op table: return the keywords of its lowering. Its shapes must be static.

    Raises:
        KeyError: the op has no decoder.
        Inexpressible: as the decoder.
    """
    inputs = [_Input(dims_of(value) or (), array_of(value)) for value in node.inputs if value is not None]
    attributes = {name: attribute.value for name, attribute in node.attributes.items()}
    return DECODERS[node.op_type](_StaticNode(node), *inputs, **attributes)[1]


def _conv(
    b: Node,
    X: NodeInput,
    W: NodeInput,
    B: NodeInput | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Decoded:
    sizes = X.shape[2:], b.out_shape()[2:], W.shape[2:]
    frame = conv_window(*sizes, kernel_shape, strides, dilations, auto_pad, pads)
    return (X, W, B), {"frame": frame, "group": group}


def _conv_transpose(
    b: Node,
    X: NodeInput,
    W: NodeInput,
    B: NodeInput | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Decoded:
    sizes = X.shape[2:], b.out_shape()[2:], W.shape[2:]
    frame = transposed_window(*sizes, strides, dilations, auto_pad, pads, output_padding, output_shape)
    return (X, W, B), {"frame": frame, "group": group}


def _frame(
    b: Node,
    X: NodeInput,
    *,
    kernel_shape: Sequence[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Window:
    return window(X.shape[2:], b.out_shape()[2:], kernel_shape, strides, dilations, auto_pad, pads)


def _max_pool(b: Node, X: NodeInput, *, storage_order: int = 0, **sliding: Any) -> Decoded:
    return (X,), {"frame": _frame(b, X, **sliding)}


def _average_pool(b: Node, X: NodeInput, *, count_include_pad: int = 0, **sliding: Any) -> Decoded:
    return (X,), {"frame": _frame(b, X, **sliding), "count_include_pad": bool(count_include_pad)}


def _lp_pool(b: Node, X: NodeInput, *, p: int = 2, **sliding: Any) -> Decoded:
    return (X,), {"frame": _frame(b, X, **sliding), "p": p}


def _reduce(
    b: Node,
    data: NodeInput,
    axes: NodeInput | None = None,
    *,
    keepdims: int = 1,
    noop_with_empty_axes: int = 0,
) -> Decoded:
    # axes is None where each element is reduced alone
    reduced = reduced_axes(len(data.shape), axes, noop_with_empty_axes)
    return (data,), {"axes": reduced, "keepdims": bool(keepdims)}


def _resize(
    b: Node,
    X: NodeInput,
    roi: NodeInput | None = None,
    scales: NodeInput | None = None,
    sizes: NodeInput | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Decoded:
    lines = resized_axes(
        X.shape, b.out_shape(), roi, scales, sizes, axes=axes, mode=mode,
        coordinate_transformation_mode=coordinate_transformation_mode,
        keep_aspect_ratio_policy=keep_aspect_ratio_policy,
    )  # fmt: skip
    crops = coordinate_transformation_mode == "tf_crop_and_resize"
    even, clipped = bool(antialias), bool(exclude_outside)
    resizing = Resizing(lines, mode, nearest_mode, cubic_coeff_a, even, clipped, crops, extrapolation_value)
    return (X,), {"resizing": resizing}


def _layer_norm(
    b: Node,
    X: NodeInput,
    Scale: NodeInput,
    B: NodeInput | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Decoded:
    return (X, Scale, B), {"axes": axes_from(axis, len(X.shape)), "epsilon": epsilon}


def _rms_norm(
    b: Node, X: NodeInput, scale: NodeInput, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Decoded:
    return (X, scale), {"axes": axes_from(axis, len(X.shape)), "epsilon": epsilon}


def _group_norm(
    b: Node, *inputs: NodeInput, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Decoded:
    return inputs, {"num_groups": num_groups, "epsilon": epsilon}


def _batch_norm(
    b: Node, *inputs: NodeInput, epsilon: float = 1e-5, momentum: float = 0.9, training_mode: int = 0
) -> Decoded:
    if training_mode:
        raise Inexpressible("training_mode=1 updates statistics; export the model for inference")
    return inputs, {"epsilon": epsilon}


def _quantize(
    b: Node,
    *inputs: NodeInput,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Decoded:
    return inputs, {"axis": axis, "block_size": block_size}


def _gemm(
    b: Node,
    *matrices: NodeInput | None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Decoded:
    added = matrices[2] if len(matrices) > 2 else None
    return (*matrices[:2], added), {"alpha": alpha, "beta": beta, "transA": transA, "transB": transB}


def _selu(
    b: Node,
    X: NodeInput,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Decoded:
    return (X,), {"alpha": alpha, "gamma": gamma}


def _pad(
    b: Node,
    data: NodeInput,
    pads: NodeInput,
    constant_value: NodeInput | None = None,
    axes: NodeInput | None = None,
    *,
    mode: str = "constant",
) -> Decoded:
    return (data, constant_value), {"amounts": pad_amounts(data.shape, pads, axes, mode), "mode": mode}


def _slice(
    b: Node,
    data: NodeInput,
    starts: NodeInput,
    ends: NodeInput,
    axes: NodeInput | None = None,
    steps: NodeInput | None = None,
) -> Decoded:
    return (data,), {"ranges": slice_ranges(data.shape, starts, ends, axes, steps)}


def _cast(b: Node, *inputs: NodeInput, saturate: int = 1, round_mode: str = "up", **to: int) -> Decoded:
    return inputs, to


def _dropout(b: Node, data: NodeInput, *rest: NodeInput | None, seed: int = 0) -> Decoded:
    refuse_random_dropout(rest[1] if len(rest) > 1 else None)
    return (data,), {}


def _view(b: Node, data: NodeInput, *rest: NodeInput | None, allowzero: int = 0, axis: int = 1) -> Decoded:
    return (data,), {}


VIEWS = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
"""Ops that keep the elements in their order; their lowerings take the data alone."""
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
DECODERS: Mapping[str, Callable[..., Decoded]] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "CastLike": _cast,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DequantizeLinear": _quantize,
    "Dropout": _dropout,
    **dict.fromkeys(VIEWS, _view),
    "Gemm": _gemm,
    "GroupNormalization": _group_norm,
    "LayerNormalization": _layer_norm,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "Pad": _pad,
    "QuantizeLinear": _quantize,
    "RMSNormalization": _rms_norm,
    "Resize": _resize,
    "Selu": _selu,
    "Slice": _slice,
    **{f"Reduce{name}": _reduce for name in _REDUCTIONS},
}
"""Op of ONNX's own domain -> its decoder. Lowerings of other ops have the ONNX signature themselves."""
