"""ONNX forms of PyTorch's operators that ``torch.onnx`` lacks, or writes with sizes that depend on values.

y[y < 0] = v             =>  where(y < 0, v, y)         index_put by a mask
y[y < 0] *= 2            =>  where(y < 0, y * 2, y)     index and index_put by the same mask
adaptive_max_pool2d(x)   =>  max_pool2d(x), or the maximum of gathered windows
fake_quantize(x)         =>  DequantizeLinear(QuantizeLinear(x))
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from edgekit.errors import ModelError

POOLS = ("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
FUSED = "fused_moving_avg_obs_fake_quant"
"""Operator of PyTorch's fake quantization with an observer, in modules of ``prepare_qat``."""
MASKED = (
    "fake_quantize_per_tensor_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    "fake_quantize_per_channel_affine_cachemask",
)
"""Operators that fake quantization with a gradient is decomposed into."""


@contextlib.contextmanager
def fake_quantize_shapes(torch: Any) -> Iterator[None]:
    """Give the operators of fake quantization with a gradient their shapes, which torch 2.13 lacks and needs
    for the export."""

    def shapes(x: Any, *arguments: Any) -> Any:
        return torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)

    with torch.library._scoped_library("aten", "IMPL") as library:
        for name in MASKED:
            library.impl(name, shapes, "Meta")
        yield


OBSERVERS = (
    "its observers are on or its fake quantization is off, so its ranges change with every input: call "
    "module.apply(torch.ao.quantization.disable_observer) and "
    "module.apply(torch.ao.quantization.enable_fake_quant) before the export"
)


def missing_forms(torch: Any) -> dict[Any, Callable[..., Any]]:
    """Return the forms by operator, for ``torch.onnx.export``'s ``custom_translation_table``.

    ``aten._is_all_true`` is a check of a tensor's values, as transformers writes them into its networks.
    """
    import onnxscript

    opset, aten = onnxscript.opset18, torch.ops.aten

    def is_all_true(values: Any) -> Any:
        smallest = opset.ReduceMin(opset.Cast(values, to=onnxscript.INT32.dtype), keepdims=0)
        return opset.Cast(smallest, to=onnxscript.BOOL.dtype)

    def quantized(x: Any, scale: Any, zero_point: Any, low: int, high: int, axis: int | None = None) -> Any:
        """Quantize and dequantize. ``scale`` and ``zero_point`` are numbers, or an entry for each channel."""
        dtype = _integers(onnxscript, low, high)
        if isinstance(scale, float | int):
            scale, zero_point = opset.Constant(value_float=scale), opset.Constant(value_int=zero_point)
        elif axis is None:  # one entry
            scale, zero_point = (opset.Squeeze(opset.Reshape(v, [1])) for v in (scale, zero_point))
        zero = opset.Cast(zero_point, to=dtype)
        if (low, high) not in ((-128, 127), (0, 255)):
            shape = [-1, *[1] * (len(x.shape) - 1 - axis)] if axis is not None else None
            number = opset.Cast(zero_point, to=onnxscript.FLOAT.dtype)
            ends = [opset.Mul(opset.Sub(float(end), number), scale) for end in (low, high)]
            ends = [opset.Reshape(end, shape) for end in ends] if shape else ends
            x = opset.Min(opset.Max(x, ends[0]), ends[1])
        more = {} if axis is None else {"axis": axis}
        return opset.DequantizeLinear(opset.QuantizeLinear(x, scale, zero, **more), scale, zero, **more)

    def by_tensor(x: Any, scale: Any, zero_point: Any, quant_min: int, quant_max: int) -> Any:
        return quantized(x, scale, zero_point, quant_min, quant_max)

    def by_channel(x: Any, scale: Any, zero: Any, axis: int, quant_min: int, quant_max: int) -> Any:
        return quantized(x, scale, zero, quant_min, quant_max, axis)

    def by_enabled(x: Any, scale: Any, zero: Any, enabled: Any, quant_min: int, quant_max: int) -> Any:
        return quantized(x, scale, zero, quant_min, quant_max), None

    def with_mask(form: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(form)
        def masked(*arguments: Any) -> Any:
            return form(*arguments), None

        return masked

    return {
        aten._is_all_true.default: is_all_true,
        aten.fake_quantize_per_tensor_affine.default: by_tensor,
        aten.fake_quantize_per_tensor_affine.tensor_qparams: by_tensor,
        aten.fake_quantize_per_channel_affine.default: by_channel,
        aten.fake_quantize_per_tensor_affine_cachemask.default: with_mask(by_tensor),
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: by_enabled,
        aten.fake_quantize_per_channel_affine_cachemask.default: with_mask(by_channel),
    }


def _integers(onnxscript: Any, low: int, high: int) -> int:
    """Return ONNX's type of the integers of a fake quantization.

    Raises:
        ModelError: they have more than eight bits.
    """
    if low >= -128 and high <= 127:
        return int(onnxscript.INT8.dtype)
    if low >= 0 and high <= 255:
        return int(onnxscript.UINT8.dtype)
    raise ModelError(
        f"fake quantization to {low} ... {high} does not fit into 8 bits: quantize to -128 ... 127 or "
        "0 ... 255"
    )


def with_static_forms(torch: Any, program: Any) -> Any:
    """Return an exported program without the operators that ``torch.onnx`` cannot write with static shapes.

    Raises:
        ModelError: an observer is on, or the positions of an adaptive maximum are used.
    """
    aten = torch.ops.aten
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    packets = {getattr(node.target, "overloadpacket", None) for node in nodes}
    pools = {getattr(aten, name) for name in POOLS}
    fused = getattr(aten, FUSED)
    masks = [node for node in nodes if _masked_input(torch, node) is not None]
    if not masks and not packets & {*pools, fused}:
        return program
    for node in nodes:
        packet = getattr(node.target, "overloadpacket", None)
        if packet is fused:
            _check_observer(program, node)
        if packet in pools and any(user.args[1] == 1 and user.users for user in node.users):
            raise ModelError(
                f"{node.target.overloadpacket.__name__} with return_indices=True has no ONNX form: leave "
                "return_indices out"
            )
    functional = program.run_decompositions({})
    _apply_on_all(torch, functional)
    helper = aten._fused_moving_avg_obs_fq_helper_functional.default
    return functional.run_decompositions(
        {
            aten.index_put.default: _put_by_mask,
            helper: _fake_quantized,
            **{getattr(aten, name).default: _adaptive_max for name in POOLS},
        }
    )


def _masked_input(torch: Any, node: Any) -> Any:
    """Return the mask of an index or index_put by one mask of booleans; None for other nodes."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet not in (torch.ops.aten.index_put, torch.ops.aten.index_put_, torch.ops.aten.index):
        return None
    indices = [index for index in node.args[1] if index is not None]
    is_mask = len(indices) == 1 and indices[0].meta["val"].dtype == torch.bool
    return indices[0] if is_mask else None


def _check_observer(program: Any, node: Any) -> None:
    values = {}
    signature = program.graph_signature
    for name, argument in zip(("observer", "fake quantization"), node.args[1:3], strict=True):
        buffer = signature.inputs_to_buffers.get(argument.name)
        values[name] = None if buffer is None else int(program.state_dict[buffer].flatten()[0])
    if values != {"observer": 0, "fake quantization": 1}:
        raise ModelError(OBSERVERS)


def _apply_on_all(torch: Any, program: Any) -> None:
    """Compute on all elements what is computed on those of a mask and put back by the same mask."""
    graph, aten = program.graph_module.graph, torch.ops.aten
    for put in [node for node in graph.nodes if node.target is aten.index_put.default]:
        mask = _masked_input(torch, put)
        chain = mask and _chain(torch, put.args[2], mask)
        if not chain:
            continue
        for node in chain:
            if node.target is aten.index.Tensor:
                node.replace_all_uses_with(node.args[0])
        for node in [*chain, *graph.nodes]:
            for user in list(node.users):
                if _is_check(user):
                    _erase(graph, user)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _chain(torch: Any, value: Any, mask: Any) -> list[Any]:
    """Return the nodes from a value back to indexing by the mask; [] unless all are elementwise."""
    chain: list[Any] = []
    pending = [value]
    while pending:
        node = pending.pop()
        if node in chain or not hasattr(node, "target"):
            continue
        if node.target is torch.ops.aten.index.Tensor and _is_same(_masked_input(torch, node), mask):
            chain.append(node)
        elif node.op == "call_function" and torch.Tag.pointwise in getattr(node.target, "tags", ()):
            chain.append(node)
            pending += list(node.all_input_nodes)
        elif node.meta["val"].numel() != 1:
            return []
    return chain if any(node.target is torch.ops.aten.index.Tensor for node in chain) else []


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two masks are the same value, or the same comparison of it."""
    return one is other or (
        one is not None and (one.target, one.args, one.kwargs) == (other.target, other.args, other.kwargs)
    )


def _is_check(node: Any) -> bool:
    return "sym_size" in str(node.target) and all(_only_checked(user) for user in node.users)


def _only_checked(node: Any) -> bool:
    users = list(node.users)
    return "_assert" in str(node.target) or bool(users and all(map(_only_checked, users)))


def _erase(graph: Any, node: Any) -> None:
    for user in list(node.users):
        _erase(graph, user)
    graph.erase_node(node)


def _put_by_mask(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """Decompose ``x[mask] = values`` if the values do not depend on the number of true elements."""
    import torch

    used = [index for index in indices if index is not None]
    if len(used) != 1 or used[0].dtype != torch.bool or accumulate:
        return NotImplemented
    mask, place = used[0], next(k for k, index in enumerate(indices) if index is not None)
    trailing = x.dim() - place - mask.dim()
    if values.numel() == 1:
        values = values.reshape(())
    elif values.shape != x.shape and values.dim() > trailing:
        if values.dim() != trailing + 1 or values.shape[0] != 1:
            return NotImplemented
        values = values[0]
    return torch.where(mask.reshape(*mask.shape, *[1] * trailing), values, x)


def _adaptive_max(x: Any, output_size: Sequence[int]) -> Any:
    """Decompose adaptive max pooling: one axis after the other, since a maximum is separable.

    Output ``i`` of ``n`` is the maximum from ``floor(i * size / n)`` to ``ceil((i + 1) * size / n)``
    (PyTorch's AdaptiveMaxPooling2d.cpp).
    """
    import torch

    count = len(output_size)
    sizes = list(x.shape[-count:])
    lengths = [size if length is None else length for size, length in zip(sizes, output_size, strict=True)]
    if count < 3 and all(size % length == 0 for size, length in zip(sizes, lengths, strict=True)):
        kernel = [size // length for size, length in zip(sizes, lengths, strict=True)]
        pool = torch.nn.functional.max_pool1d if count == 1 else torch.nn.functional.max_pool2d
        y = pool(x, kernel, kernel)
        return y, torch.zeros_like(y, dtype=torch.int64)
    y = x
    for axis, (size, length) in zip(range(-count, 0), zip(sizes, lengths, strict=True), strict=True):
        if size == length:
            continue
        windows = [(k * size // length, -(-(k + 1) * size // length)) for k in range(length)]
        parts = [y.narrow(axis, start, end - start).amax(axis, keepdim=True) for start, end in windows]
        y = torch.cat(parts, axis)
    return y, torch.zeros_like(y, dtype=torch.int64)


def _fake_quantized(
    x: Any, observer_on: Any, fake_quant_on: Any, running_min: Any, running_max: Any, scale: Any,
    zero_point: Any, averaging_const: float, quant_min: int, quant_max: int, ch_axis: int,
    per_row_fake_quant: bool = False, symmetric_quant: bool = False,
) -> Any:  # fmt: skip
    """Decompose fake quantization whose observer is off."""
    import torch

    if per_row_fake_quant:
        y = torch.fake_quantize_per_channel_affine(x, scale, zero_point, ch_axis, quant_min, quant_max)
    else:
        y = torch.fake_quantize_per_tensor_affine(x, scale, zero_point, quant_min, quant_max)
    mask = torch.ones_like(x, dtype=torch.bool)
    return y, mask, running_min.clone(), running_max.clone(), scale.clone(), zero_point.clone()


@contextlib.contextmanager
def plain_fake_quantize(torch: Any, model: Any) -> Iterator[None]:
    """Trace FakeQuantize modules as plain fake quantization: torch.export cannot trace the branch on the
    observer's state.

    Raises:
        ModelError: an observer is on.
    """
    changed = []
    try:
        for part in model.modules():
            if type(part).__name__ != "FakeQuantize" or not hasattr(part, "observer_enabled"):
                continue
            if int(part.observer_enabled[0]) or not int(part.fake_quant_enabled[0]):
                raise ModelError(OBSERVERS)
            part.forward = functools.partial(_plain_forward, torch, part)
            changed.append(part)
        yield
    finally:
        for part in changed:
            del part.forward


def _plain_forward(torch: Any, module: Any, x: Any) -> Any:
    ends = module.activation_post_process.quant_min, module.activation_post_process.quant_max
    if module.is_per_channel:
        return torch.fake_quantize_per_channel_affine(
            x, module.scale, module.zero_point, module.ch_axis, *ends
        )
    return torch.fake_quantize_per_tensor_affine(x, module.scale, module.zero_point, *ends)


@contextlib.contextmanager
def masks_as_passed(torch: Any) -> Iterator[None]:
    """Make nn.Transformer use its mask as it is passed: comparing its values with those of a causal mask, for
    a faster kernel with the same results, can't be traced."""
    layers = torch.nn.modules.transformer
    detect = layers._detect_is_causal_mask
    layers._detect_is_causal_mask = lambda mask, is_causal=None, size=None: bool(is_causal)
    try:
        yield
    finally:
        layers._detect_is_causal_mask = detect
