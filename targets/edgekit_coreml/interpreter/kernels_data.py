"""Operators that move, pick or join data, reductions, and constants that are stored compressed. In numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit_coreml.interpreter.kernels_elementwise import Operand, wide


def ints(x: Operand) -> list[int]:
    """Return a constant operand as Python's integers."""
    return [int(n) for n in np.ravel(x)]


def squeeze(x: Operand, axes: Operand = None) -> Operand:
    return np.squeeze(x, None if axes is None else tuple(ints(axes)))


def concat(values: Sequence[Operand], axis: Operand, interleave: Operand = False) -> Operand:
    if interleave:
        return np.stack(values, int(axis) + 1).reshape(
            [n * len(values) if a == int(axis) else n for a, n in enumerate(values[0].shape)]
        )
    return np.concatenate(values, int(axis))


def slice_by_index(
    x: Operand,
    begin: Operand,
    end: Operand,
    stride: Operand = None,
    begin_mask: Operand = None,
    end_mask: Operand = None,
    squeeze_mask: Operand = None,
) -> Operand:
    rank = x.ndim
    steps = ints(stride) if stride is not None else [1] * rank
    no_begin = ints(begin_mask) if begin_mask is not None else [0] * rank
    no_end = ints(end_mask) if end_mask is not None else [0] * rank
    gone = ints(squeeze_mask) if squeeze_mask is not None else [0] * rank
    cut = tuple(
        start if gone[a] else slice(None if no_begin[a] else start, None if no_end[a] else to, steps[a])
        for a, (start, to) in enumerate(zip(ints(begin), ints(end), strict=True))
    )
    return x[cut]


def slice_by_size(x: Operand, begin: Operand, size: Operand) -> Operand:
    cut = tuple(slice(i, None if n < 0 else i + n) for i, n in zip(ints(begin), ints(size), strict=True))
    return x[cut]


def split(
    x: Operand, axis: Operand, split_sizes: Operand = None, num_splits: Operand = None
) -> list[Operand]:
    if split_sizes is None:
        if num_splits is None:
            raise EngineError("split has neither sizes nor a number")
        return np.split(x, int(num_splits), int(axis))
    return np.split(x, np.cumsum(ints(split_sizes))[:-1], int(axis))


def pad(x: Operand, pad: Operand, mode: str = "constant", constant_val: Operand = 0.0) -> Operand:
    flat = ints(pad)
    pairs = [(flat[2 * i], flat[2 * i + 1]) for i in range(len(flat) // 2)]
    width = [(0, 0)] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        return np.pad(x, width, constant_values=np.asarray(constant_val).astype(x.dtype))
    return np.pad(x, width, mode="reflect" if mode == "reflect" else "edge")


def checked(indices: Operand, size: int) -> Operand:
    """Return checked, non-negative indices: Core ML reads arbitrary data outside of ``size``."""
    idx = np.asarray(indices).astype(np.int64)
    if idx.size and (idx.min() < -size or idx.max() >= size):
        raise EngineError(f"an index of {int(idx.min())} to {int(idx.max())} into {size} elements")
    return np.where(idx < 0, idx + size, idx)


def gather(
    x: Operand,
    indices: Operand,
    axis: Operand = 0,
    batch_dims: Operand = 0,
    validate_indices: Operand = False,
) -> Operand:
    if int(batch_dims):
        raise EngineError("gather over batches")
    return np.take(x, checked(indices, x.shape[int(axis)]), int(axis))


def gather_nd(
    x: Operand, indices: Operand, batch_dims: Operand = 0, validate_indices: Operand = False
) -> Operand:
    batch = int(batch_dims)
    depth = indices.shape[-1]
    columns = [checked(indices[..., d], x.shape[batch + d]) for d in range(depth)]
    lead = [
        np.arange(x.shape[a]).reshape([-1 if i == a else 1 for i in range(indices.ndim - 1)])
        for a in range(batch)
    ]
    return x[(*lead, *columns)]


def gather_along_axis(
    x: Operand, indices: Operand, axis: Operand = 0, validate_indices: Operand = False
) -> Operand:
    return np.take_along_axis(x, checked(indices, x.shape[int(axis)]), int(axis))


_SCATTER: Mapping[str, Any] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
                               "max": np.maximum, "min": np.minimum}  # fmt: skip


def _scattered(data: Operand, index: tuple[Operand, ...], updates: Operand, mode: str) -> Operand:
    out = np.array(wide(data))
    if mode == "update":
        out[index] = updates
    else:
        _SCATTER[mode].at(out, index, wide(updates))
    return out


def scatter_nd(
    data: Operand, indices: Operand, updates: Operand, mode: str = "add", validate_indices: Operand = False
) -> Operand:
    index = tuple(checked(indices[..., d], data.shape[d]) for d in range(indices.shape[-1]))
    return _scattered(data, index, updates, mode)


def scatter_along_axis(
    data: Operand,
    indices: Operand,
    updates: Operand,
    axis: Operand = 0,
    mode: str = "add",
    validate_indices: Operand = False,
) -> Operand:
    grid = list(np.indices(indices.shape))
    grid[int(axis)] = checked(indices, data.shape[int(axis)])
    return _scattered(data, tuple(grid), updates, mode)


def depth_to_space(x: Operand, block_size: Operand) -> Operand:
    n, c, h, w = x.shape
    s = int(block_size)
    apart = x.reshape(n, s, s, c // s**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return apart.reshape(n, c // s**2, h * s, w * s)


def pixel_shuffle(x: Operand, upscale_factor: Operand) -> Operand:
    n, c, h, w = x.shape
    s = int(upscale_factor)
    apart = x.reshape(n, c // s**2, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
    return apart.reshape(n, c // s**2, h * s, w * s)


def space_to_depth(x: Operand, block_size: Operand) -> Operand:
    n, c, h, w = x.shape
    s = int(block_size)
    apart = x.reshape(n, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4)
    return apart.reshape(n, c * s**2, h // s, w // s)


def _axes(axes: Operand, rank: int) -> tuple[int, ...]:
    return tuple(range(rank)) if axes is None else tuple(ints(axes))


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(x: Operand, axes: Operand = None, keep_dims: Operand = False) -> Operand:
        result = function(wide(x), axis=_axes(axes, x.ndim), keepdims=bool(keep_dims))
        return np.asarray(result)

    return kernel


def _log_sum_exp(x: Operand, axis: tuple[int, ...], keepdims: bool) -> Operand:
    top = x.max(axis=axis, keepdims=True)
    total = np.log(np.exp(x - top).sum(axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


def _extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def kernel(
        x: Operand, axis: Operand = -1, keep_dims: Operand = True, output_dtype: str = "int32"
    ) -> Operand:
        return np.asarray(function(x, int(axis), keepdims=bool(keep_dims)))

    return kernel


def cumsum(x: Operand, axis: Operand = 0, exclusive: Operand = False, reverse: Operand = False) -> Operand:
    along = int(axis)
    x = np.flip(wide(x), along) if reverse else wide(x)
    total = np.cumsum(x, along, dtype=x.dtype)
    if exclusive:
        total = total - x
    return np.flip(total, along) if reverse else total


def topk(
    x: Operand,
    k: Operand = 1,
    axis: Operand = -1,
    ascending: Operand = False,
    sort: Operand = True,
    return_indices: Operand = True,
    output_indices_dtype: str = "int32",
) -> list[Operand]:
    along = int(axis)
    keys = wide(x) if ascending else -wide(x)
    order = np.argsort(keys, along, kind="stable")  # equal values keep their order, as in ONNX
    picked = np.take(order, np.arange(int(k)), along)
    values = np.take_along_axis(x, picked, along)
    return [values, picked.astype(np.int32)] if return_indices else [values]


def argsort(x: Operand, axis: Operand = -1, ascending: Operand = False) -> Operand:
    return np.argsort(wide(x) if ascending else -wide(x), int(axis), kind="stable")


def band_part(x: Operand, lower: Operand = -1, upper: Operand = -1) -> Operand:
    rows, columns = np.indices(x.shape[-2:])
    below = np.ones(rows.shape, bool) if int(lower) < 0 else rows - columns <= int(lower)
    above = np.ones(rows.shape, bool) if int(upper) < 0 else columns - rows <= int(upper)
    return np.where(below & above, x, x.dtype.type(0))


def _spread(parameter: Operand, axis: Operand, rank: int) -> Operand:
    array = np.asarray(parameter, np.float32)
    if array.ndim == 0 or axis is None:
        return array
    return array.reshape([-1 if a == int(axis) % rank else 1 for a in range(rank)])


_LIMITS: Mapping[str, tuple[int, int]] = {"int8": (-128, 127), "uint8": (0, 255)}


def quantize(
    input: Operand, scale: Operand, output_dtype: str, zero_point: Operand = None, axis: Operand = None
) -> Operand:
    zero = np.float32(0) if zero_point is None else _spread(zero_point, axis, input.ndim)
    low, high = _LIMITS[output_dtype]
    steps = np.rint(wide(input) / _spread(scale, axis, input.ndim)) + zero
    return np.clip(steps, low, high).astype(output_dtype)


def dequantize(input: Operand, scale: Operand, zero_point: Operand = None, axis: Operand = None) -> Operand:
    zero = np.float32(0) if zero_point is None else _spread(zero_point, axis, input.ndim)
    return (input.astype(np.float32) - zero) * _spread(scale, axis, input.ndim)


def constexpr_affine_dequantize(
    quantized_data: Operand, scale: Operand, zero_point: Operand, axis: Operand
) -> Operand:
    return dequantize(quantized_data, scale, zero_point, axis)


def _blocks(parameter: Operand, shape: Sequence[int]) -> Operand:
    """Return the parameter, which has one value for each block, repeated over the blocks."""
    spread = np.asarray(parameter, np.float32)
    for axis, (count, size) in enumerate(zip(spread.shape, shape, strict=True)):
        if count != size:
            spread = np.repeat(spread, size // count, axis)
    return spread


def constexpr_blockwise_shift_scale(data: Operand, scale: Operand, offset: Operand = None) -> Operand:
    zero = np.float32(0) if offset is None else _blocks(offset, data.shape)
    return (data.astype(np.float32) - zero) * _blocks(scale, data.shape)


def constexpr_lut_to_dense(
    indices: Operand, lut: Operand, shape: Operand = None, vector_axis: Operand = None
) -> Operand:
    if shape is not None:  # iOS 16: one table, indices packed
        target = ints(shape)
        count, bits = int(np.prod(target)), int(np.log2(lut.size))
        flat = np.unpackbits(indices.view(np.uint8), bitorder="little")[: count * bits]
        picked = (flat.reshape(count, bits) * (1 << np.arange(bits))).sum(1)
        return lut[picked].reshape(target)
    if vector_axis is not None or lut.shape[-1] != 1:
        raise EngineError("constexpr_lut_to_dense of vectors")
    groups = lut.shape[: indices.ndim]
    group_index = [
        (np.arange(n) // (n // g)).reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
        for axis, (n, g) in enumerate(zip(indices.shape, groups, strict=True))
    ]
    return lut[..., 0][(*group_index, indices.astype(np.int64))]


def read_state(input: Operand) -> Operand:
    """Return the content of the state, which the executor passes."""
    return input


def write_state(input: Operand, data: Operand) -> list[Operand]:
    """Return an empty list. The executor stores the written data."""
    return []


def classify(probabilities: Operand, classes: Sequence[str]) -> list[Operand]:
    """Return the label of the highest probability, and a dictionary of all labels and probabilities."""
    flat = wide(probabilities).ravel()
    if len(classes) != flat.size:
        raise EngineError(f"{len(classes)} classes for {flat.size} probabilities")
    by_label = np.empty((), object)
    by_label[()] = dict(zip(classes, flat.tolist(), strict=True))
    return [np.array(classes[int(flat.argmax())]), by_label]


_OWN_NAMES = (
    argsort, band_part, classify, concat, constexpr_affine_dequantize, constexpr_blockwise_shift_scale,
    constexpr_lut_to_dense, cumsum, depth_to_space, dequantize, gather, gather_along_axis, gather_nd,
    pad, pixel_shuffle, quantize, read_state, scatter_along_axis, scatter_nd, slice_by_index,
    slice_by_size, space_to_depth, split, squeeze, topk, write_state,
)  # fmt: skip
"""Kernels that are called what their operator is."""
KERNELS: Mapping[str, Callable[..., Any]] = {
    **{kernel.__name__: kernel for kernel in _OWN_NAMES},
    "expand_dims": lambda x, axes: np.expand_dims(x, tuple(ints(axes))),
    "fill": lambda shape, value: np.full(ints(shape), value),
    "reduce_argmax": _extreme(np.argmax),
    "reduce_argmin": _extreme(np.argmin),
    "reduce_l1_norm": _reduction(lambda x, **k: np.abs(x).sum(**k)),
    "reduce_l2_norm": _reduction(lambda x, **k: np.sqrt(np.square(x).sum(**k))),
    "reduce_log_sum": _reduction(lambda x, **k: np.log(x.sum(**k))),
    "reduce_log_sum_exp": _reduction(_log_sum_exp),
    "reduce_max": _reduction(np.max),
    "reduce_mean": _reduction(np.mean),
    "reduce_min": _reduction(np.min),
    "reduce_prod": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reduce_sum_square": _reduction(lambda x, **k: np.square(x).sum(**k)),
    "reshape": lambda x, shape: np.reshape(x, ints(shape)),
    "reverse": lambda x, axes=None: np.flip(x, _axes(axes, x.ndim)),
    "stack": lambda values, axis: np.stack(values, int(axis)),
    "tile": lambda x, reps: np.tile(x, ints(reps)),
    "transpose": lambda x, perm: np.transpose(x, ints(perm)),
}
