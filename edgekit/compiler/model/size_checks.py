"""Check the size of outputs that constants decide: they may declare terabytes.

Sizes are Python integers, since ONNX's own inference overflows at 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import Dims, static_dims, times
from edgekit.compiler.model.untrusted import MAX_RANK
from edgekit.compiler.model.work_budget import VALUE_BYTES
from edgekit.tensor_spec import Array

Arrays: TypeAlias = "Sequence[Array | None]"


def input_dims(node: ir.Node, index: int) -> Dims | None:
    return static_dims(node.inputs[index]) if index < len(node.inputs) else None


def array_at(arrays: Arrays, index: int) -> Array | None:
    return arrays[index] if index < len(arrays) else None


def input_name(node: ir.Node, index: int) -> str:
    value = node.inputs[index]
    return f"({value.name})" if value is not None else ""


def integers(array: Array | None) -> list[int] | None:
    return None if array is None or array.dtype.kind not in "iu" else [int(i) for i in array.reshape(-1)]


def shortened(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def whole_number_complaint(
    node: ir.Node, arrays: Arrays, index: int, description: str, minimum: int
) -> str | None:
    """Return the error of an input that must be one number of at least ``minimum``, or None."""
    array = array_at(arrays, index)
    if array is None or array.dtype.kind not in "iuf":
        return None
    if array.size != 1:
        return f"{description} {input_name(node, index)} is {times(array.shape)}; it must be one number"
    number = array.reshape(()).item()
    if not math.isfinite(number) or number < minimum:
        return f"{description} {input_name(node, index)} is {number}; it must be {minimum} or more"
    return None


def correct_shape(node: ir.Node, arrays: Arrays) -> None:
    """Set the output shape, in place, of the nodes for which ONNX's inference lacks it or has another one
    than its specification."""
    if node.op_type == "Compress" and not node.domain and (condition := array_at(arrays, 1)) is not None:
        node.outputs[0].shape = _kept_shape(node, condition)
    elif node.op_type == "ConvTranspose" and not node.domain:
        _limit_transposed(node)


def _kept_shape(node: ir.Node, condition: Array) -> ir.Shape | None:
    """Return the output shape of a Compress by a constant, which ONNX does not infer; None if unknown."""
    dims, count = static_dims(node.inputs[0]), int(np.count_nonzero(condition))
    if dims is None or "axis" not in node.attributes:
        return None if dims is None else ir.Shape([count])
    axis = node.attributes["axis"].as_int() % len(dims)
    return ir.Shape([*dims[:axis], count, *dims[axis + 1 :]])


def _limit_transposed(node: ir.Node) -> None:
    """Limit the output of a ConvTranspose with SAME_UPPER or SAME_LOWER to input times stride, in place.

    ONNX's inference adds ``output_padding`` after that limit; by its specification, and in ONNX Runtime, the
    padding is chosen for that size.
    """
    source, inferred = static_dims(node.inputs[0]), static_dims(node.outputs[0])
    rule = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else ""
    if not rule.startswith("SAME") or "output_shape" in node.attributes or not source or not inferred:
        return
    strides = node.attributes["strides"].as_ints() if "strides" in node.attributes else [1] * len(source[2:])
    limits = [size * stride for size, stride in zip(source[2:], strides, strict=True)]
    node.outputs[0].shape = ir.Shape([*inferred[:2], *map(min, inferred[2:], limits)])


def size_complaint(node: ir.Node) -> str | None:
    for output in node.outputs:
        if output.shape is None:
            continue
        dims = output.shape.dims
        if len(dims) > MAX_RANK:
            return f"its output would have {len(dims)} dimensions; at most {MAX_RANK} are supported"
        sizes = [d for d in dims if isinstance(d, int)]
        if any(d < 0 for d in sizes):
            return f"its output would have the shape {times(dims)}"
        # numpy rejects a large shape even if one dimension is 0.
        size = math.prod(d or 1 for d in sizes) * _bits(output) // 8
        if size > VALUE_BYTES:
            return f"its output would be {shortened(times(dims))}, {_size(size)}; the limit is 2 GiB"
    return None


def _bits(value: ir.Value) -> int:
    return 8 if value.dtype is None or value.dtype == ir.DataType.STRING else value.dtype.bitwidth


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _check_output(node: ir.Node, dims: Sequence[int]) -> str | None:
    """Check an output's size in Python integers: ONNX's own overflow at 64 bits."""
    if len(dims) > MAX_RANK:
        return f"would make {len(dims)} dimensions; at most {MAX_RANK} are supported"
    if any(d < 0 for d in dims):
        return f"would make {shortened(times(dims))}; dimensions must be 0 or more"
    size = math.prod(dims) * _bits(node.outputs[0]) // 8
    if size > VALUE_BYTES or max(dims, default=0) > VALUE_BYTES:
        return f"would make {shortened(times(dims))}, {_size(size)}; the limit is 2 GiB"
    return None


def _window(node: ir.Node, arrays: Arrays) -> str | None:
    size, problem = array_at(arrays, 0), whole_number_complaint(node, arrays, 0, "size", 0)
    if problem or size is None or int(size.reshape(()).item()) * 4 <= VALUE_BYTES:
        return problem
    return f"makes {size.reshape(()).item()} values; the limit is 2 GiB"


def _mel(node: ir.Node, arrays: Arrays) -> str | None:
    names = ("num_mel_bins", "dft_length", "sample_rate")
    problem = next(
        (p for k, name in enumerate(names) if (p := whole_number_complaint(node, arrays, k, name, 1))), None
    )
    bins, length = array_at(arrays, 0), array_at(arrays, 1)
    if problem or bins is None or length is None:
        return problem
    return _check_output(node, [int(bins.reshape(()).item()), int(length.reshape(()).item()) // 2 + 1])


def _range(node: ir.Node, arrays: Arrays) -> str | None:
    if any(array is None or array.size != 1 for array in arrays[:3]) or len(arrays) < 3:
        return None
    start, limit, delta = (np.asarray(array).reshape(()).item() for array in arrays[:3])
    steps = (limit - start) / delta if delta else math.inf
    if not math.isfinite(steps):
        return f"runs from {start} to {limit} in steps of {delta}, which never ends"
    return _check_output(node, [max(math.ceil(steps), 0)])


def _constant_of_shape(node: ir.Node, arrays: Arrays) -> str | None:
    dims = integers(array_at(arrays, 0))
    return None if dims is None else _check_output(node, dims)


def _expand(node: ir.Node, arrays: Arrays) -> str | None:
    dims, source = integers(array_at(arrays, 1)), input_dims(node, 0)
    if dims is None:
        return None
    if source is not None:
        rank = max(len(dims), len(source))
        padded = [[1] * (rank - len(s)) + list(s) for s in (dims, source)]
        dims = [a if b == 1 else b for a, b in zip(*padded, strict=True)]
    return _check_output(node, dims)


def _tile(node: ir.Node, arrays: Arrays) -> str | None:
    repeats, source = integers(array_at(arrays, 1)), input_dims(node, 0)
    if repeats is None:
        return None
    if any(r < 0 for r in repeats):
        return f"repeats {input_name(node, 1)} contains {min(repeats)}; it must be 0 or more"
    if source is None or len(source) != len(repeats):
        return None
    return _check_output(node, [d * r for d, r in zip(source, repeats, strict=True)])


def _one_hot(node: ir.Node, arrays: Arrays) -> str | None:
    problem = whole_number_complaint(node, arrays, 1, "depth", 1)
    depth, indices = array_at(arrays, 1), input_dims(node, 0)
    if problem or depth is None or indices is None:
        return problem
    return _check_output(node, [*indices, int(depth.reshape(()).item())])


def _resize(node: ir.Node, arrays: Arrays) -> str | None:
    source = input_dims(node, 0)
    by_roi = node.op_type == "Resize" and len(node.inputs) > 2
    scales, sizes = array_at(arrays, 2 if by_roi else 1), integers(array_at(arrays, 3))
    axes = _axes(node, source)
    if source is None or axes is None:
        return None
    dims = list(source)
    if sizes and len(sizes) == len(axes):
        for axis, size in zip(axes, sizes, strict=True):
            dims[axis] = size
    elif scales is not None and scales.size == len(axes):
        numbers = [float(s) for s in scales.reshape(-1)]
        if not all(math.isfinite(s) and s > 0 for s in numbers):
            return f"scales are {shortened(', '.join(f'{s:g}' for s in numbers))}; each must be above 0"
        for axis, scale in zip(axes, numbers, strict=True):
            dims[axis] = math.floor(dims[axis] * scale)
    return _check_output(node, dims)


def _axes(node: ir.Node, dims: Dims | None) -> list[int] | None:
    if dims is None:
        return None
    if "axes" not in node.attributes:
        return list(range(len(dims)))
    axes = [int(axis) for axis in node.attributes["axes"].as_ints()]
    return [a % len(dims) for a in axes] if all(-len(dims) <= a < len(dims) for a in axes) else None


def _pad(node: ir.Node, arrays: Arrays) -> str | None:
    source, pads = input_dims(node, 0), integers(array_at(arrays, 1))
    if pads is None and "pads" in node.attributes:
        pads = [int(p) for p in node.attributes["pads"].as_ints()]
    axes = list(range(len(source))) if source is not None else []
    raw_axes = integers(array_at(arrays, 3))
    if source is None or pads is None or (raw_axes is None and len(node.inputs) > 3 and node.inputs[3]):
        return None
    if raw_axes is not None:
        if not all(-len(source) <= a < len(source) for a in raw_axes):
            axes_text = f"axes {input_name(node, 3)} are {shortened(str(raw_axes))}"
            return f"{axes_text}, but its input has {len(source)} dimensions"
        axes = [a % len(source) for a in raw_axes]
    if len(pads) != 2 * len(axes):
        return f"has {len(pads)} pads for {len(axes)} axes; each axis needs two"
    dims = list(source)
    for k, axis in enumerate(axes):
        dims[axis] += pads[k] + pads[len(axes) + k]
    return _check_output(node, dims)


SIZE_CHECKS: dict[str, Callable[[ir.Node, Arrays], str | None]] = {
    **dict.fromkeys(["HannWindow", "HammingWindow", "BlackmanWindow"], _window),
    **dict.fromkeys(["Resize", "Upsample"], _resize),
    "MelWeightMatrix": _mel,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "OneHot": _one_hot,
    "Pad": _pad,
}
"""Op -> the check of its output's size."""
