"""Check the constants of nodes: values that ONNX allows, but that crash an engine or allocate terabytes.

Engines do not check them: ONNX Runtime divides the least integer by -1 and dies of SIGFPE, TFLite reads a
scale of 0 and dies of SIGSEGV. So they are rejected before any engine loads the model.
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


LETHAL = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "Div", "Mod", "GatherND", "DFT"}
)
"""Ops that crash the engine's process instead of failing. They are checked in every branch of an If."""


def value_complaint(node: ir.Node, arrays: Arrays, opset: int) -> str | None:
    """Return the error in the constants of a node of the default domain, or None.

    Args:
        node: Node with the shapes of its inputs, as far as known.
        arrays: Arrays of its inputs; None for omitted inputs and for those that are not constant.
        opset: The opset of the node.
    """
    if node.op_type == "DFT" and not node.domain:
        return _dft(node, arrays, opset)
    check = _CHECKS.get(node.op_type)
    return check(node, arrays) if check is not None and not node.domain else None


def size_complaint(node: ir.Node) -> str | None:
    """Return the reason why an output of the node is too large (dimensions or bytes), or None."""
    for output in node.outputs:
        if output.shape is None:
            continue
        dims = output.shape.dims
        if len(dims) > MAX_RANK:
            return f"its output would have {len(dims)} dimensions; at most {MAX_RANK} are supported"
        known = [d for d in dims if isinstance(d, int)]
        if any(d < 0 for d in known):
            return f"its output would have the shape {times(dims)}"
        # numpy rejects a large shape even if one dimension is 0.
        size = math.prod(d or 1 for d in known) * _bits(output) // 8
        if size > VALUE_BYTES:
            return f"its output would be {_cut(times(dims))}, {_size(size)}; the limit is 2 GiB"
    return None


def _bits(value: ir.Value) -> int:
    """Return the bits of one element; 8 if the type is unknown or has no fixed size."""
    return 8 if value.dtype is None or value.dtype == ir.DataType.STRING else value.dtype.bitwidth


def _size(size: int) -> str:
    return f"{size / 2**30:.3g} GiB"


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _dims(node: ir.Node, index: int) -> Dims | None:
    return static_dims(node.inputs[index]) if index < len(node.inputs) else None


def _at(arrays: Arrays, index: int) -> Array | None:
    return arrays[index] if index < len(arrays) else None


def _int(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _named(node: ir.Node, index: int) -> str:
    value = node.inputs[index]
    return f"({value.name})" if value is not None else ""


def _scales(*indices: int) -> Callable[[ir.Node, Arrays], str | None]:
    def check(node: ir.Node, arrays: Arrays) -> str | None:
        for index in indices:
            scale = _at(arrays, index)
            if scale is None:
                continue
            numbers = scale.astype(np.float64).reshape(-1)
            wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
            if wrong.size:
                return f"scale {_named(node, index)} contains {wrong[0]:g}; a scale must be above 0"
        return _blocks(node)

    return check


def _blocks(node: ir.Node) -> str | None:
    """Check that the scale of Q/DQ is per tensor, per axis, or blocked along an axis (since opset 21)."""
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    block, x, scale = _int(node, "block_size", 0), _dims(node, 0), _dims(node, 1)
    if block < 0:
        return f"block_size is {block}; it must be 1 or more, or 0 for no blocks"
    if x is None or scale is None or len(scale) == 0 or scale == (1,):
        return None
    axis = _int(node, "axis", 1)
    if not -len(x) <= axis < len(x):
        return f"axis {axis} is outside {times(x)}"
    axis %= len(x)
    if not block:
        want: Dims = (x[axis],)
        if scale != want:
            return f"scale has shape {times(scale)}; axis {axis} of {times(x)} needs {times(want)}"
        return None
    want = (*x[:axis], -(-x[axis] // block), *x[axis + 1 :])
    if scale != want:
        blocks = f"blocks of {block} on axis {axis} of {times(x)}"
        return f"scale has shape {times(scale)}; {blocks} need {times(want)}"
    return None


def _division(node: ir.Node, arrays: Arrays) -> str | None:
    """Check for integers divided by 0, and the least integer by -1: both raise SIGFPE on x86."""
    dividend, divisor = arrays[:2]
    if divisor is None or divisor.dtype.kind not in "iu" or not divisor.size:
        return None
    if not divisor.all():
        return f"divides integers by 0 {_named(node, 1)}"
    if divisor.dtype.kind == "u" or not (divisor == -1).any():
        return None
    least = np.iinfo(divisor.dtype).min
    if dividend is None:
        return (
            f"divides integers by -1 {_named(node, 1)}, which crashes the process if one is {least}; use Neg"
        )
    if bool(((dividend == least) & (divisor == -1)).any()):
        return f"divides {least} by -1, and {-least} is not a valid {divisor.dtype}"
    return None


def _within(node: ir.Node, index: int, indices: Array, sizes: Array, dims: Dims) -> str | None:
    """Return the error of an index out of bounds of its axis, or None. Negative ones count from the end."""
    wrong = (indices < -sizes) | (indices >= sizes)
    if not wrong.any():
        return None
    return f"index {indices[wrong].reshape(-1)[0]} {_named(node, index)} is outside {times(dims)}"


def _on_axis(node: ir.Node, arrays: Arrays) -> str | None:
    data, indices = _dims(node, 0), _at(arrays, 1)
    if data is None or indices is None or indices.dtype.kind != "i":
        return None
    axis = _int(node, "axis", 0)
    if not -len(data) <= axis < len(data):
        return f"axis {axis} is outside {times(data)}"
    return _within(node, 1, indices, np.array(data[axis]), data)


def _on_leading_axes(node: ir.Node, arrays: Arrays) -> str | None:
    data, shape, indices = _dims(node, 0), _dims(node, 1), _at(arrays, 1)
    batch = _int(node, "batch_dims", 0)
    if batch < 0:
        return f"batch_dims is {batch}; it must be 0 or more"
    if data is None or shape is None:
        return None
    if batch >= min(len(data), len(shape)):
        return f"batch_dims is {batch}; data {times(data)} and indices {times(shape)} have fewer axes"
    if data[:batch] != shape[:batch]:
        return f"data {times(data)} and indices {times(shape)} differ on the first {batch} axes"
    if not 1 <= shape[-1] <= len(data) - batch:
        has = len(data) - batch
        return f"indices {times(shape)} address {shape[-1]} axes of data {times(data)}, which has {has}"
    if indices is None or indices.dtype.kind != "i":
        return None
    return _within(node, 1, indices, np.array(data[batch : batch + shape[-1]]), data)


def _whole(node: ir.Node, arrays: Arrays, index: int, what: str, least: int) -> str | None:
    array = _at(arrays, index)
    if array is None or array.dtype.kind not in "iuf":
        return None
    if array.size != 1:
        return f"{what} {_named(node, index)} is {times(array.shape)}; it must be one number"
    number = array.reshape(()).item()
    if not math.isfinite(number) or number < least:
        return f"{what} {_named(node, index)} is {number}; it must be {least} or more"
    return None


def _dft(node: ir.Node, arrays: Arrays, opset: int) -> str | None:
    """Check a DFT. Before opset 20 the axis is an attribute, 1 by default."""
    signal = _dims(node, 0)
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype not in (None, ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return "is not float or double, for which ONNX Runtime reads out of bounds"
    if signal is not None:
        if len(signal) < 2 or signal[-1] not in (1, 2):
            return (
                f"its signal is {times(signal)}; it needs two axes or more, the last one with 1 (real) "
                "or 2 (complex)"
            )
        axis_input = _at(arrays, 2)
        axis = _int(node, "axis", 1 if opset < 20 else -2)
        if axis_input is not None and axis_input.size == 1:
            axis = int(axis_input.reshape(()).item())
        if not -len(signal) <= axis < len(signal) or axis % len(signal) == len(signal) - 1:
            return f"axis {axis} is outside of the signal {times(signal)}"
    return _whole(node, arrays, 1, "dft_length", 1)


def _stft(node: ir.Node, arrays: Arrays) -> str | None:
    problem = _whole(node, arrays, 1, "frame_step", 1) or _whole(node, arrays, 3, "frame_length", 1)
    signal, window, length = _dims(node, 0), _dims(node, 2), _at(arrays, 3)
    if problem or signal is None:
        return problem
    if len(signal) not in (2, 3) or (len(signal) == 3 and signal[2] not in (1, 2)):
        return f"its signal is {times(signal)}; it must be batch x length x 1 (real) or x 2 (complex)"
    frame = int(length.reshape(()).item()) if length is not None else (window[0] if window else None)
    if frame is not None and frame > signal[1]:
        return f"frame_length is {frame}, but the signal has {signal[1]} samples"
    if frame is not None and window is not None and window != (frame,):
        return f"window has shape {times(window)}, but frame_length is {frame}"
    return None


def _window(node: ir.Node, arrays: Arrays) -> str | None:
    size, problem = _at(arrays, 0), _whole(node, arrays, 0, "size", 0)
    if problem or size is None or int(size.reshape(()).item()) * 4 <= VALUE_BYTES:
        return problem
    return f"makes {size.reshape(()).item()} values; the limit is 2 GiB"


def _mel(node: ir.Node, arrays: Arrays) -> str | None:
    names = ("num_mel_bins", "dft_length", "sample_rate")
    problem = next((p for k, name in enumerate(names) if (p := _whole(node, arrays, k, name, 1))), None)
    bins, length = _at(arrays, 0), _at(arrays, 1)
    if problem or bins is None or length is None:
        return problem
    return _made(node, [int(bins.reshape(()).item()), int(length.reshape(()).item()) // 2 + 1])


def _range(node: ir.Node, arrays: Arrays) -> str | None:
    if any(array is None or array.size != 1 for array in arrays[:3]) or len(arrays) < 3:
        return None
    start, limit, delta = (np.asarray(array).reshape(()).item() for array in arrays[:3])
    steps = (limit - start) / delta if delta else math.inf
    if not math.isfinite(steps):
        return f"runs from {start} to {limit} in steps of {delta}, which never ends"
    return _made(node, [max(math.ceil(steps), 0)])


def _made(node: ir.Node, dims: Sequence[int]) -> str | None:
    """Check an output's size in Python integers: ONNX's own overflow at 64 bits."""
    if len(dims) > MAX_RANK:
        return f"would make {len(dims)} dimensions; at most {MAX_RANK} are supported"
    if any(d < 0 for d in dims):
        return f"would make {_cut(times(dims))}; dimensions must be 0 or more"
    size = math.prod(dims) * _bits(node.outputs[0]) // 8
    if size > VALUE_BYTES or max(dims, default=0) > VALUE_BYTES:
        return f"would make {_cut(times(dims))}, {_size(size)}; the limit is 2 GiB"
    return None


def _ints(array: Array | None) -> list[int] | None:
    return None if array is None or array.dtype.kind not in "iu" else [int(i) for i in array.reshape(-1)]


def _constant_of_shape(node: ir.Node, arrays: Arrays) -> str | None:
    dims = _ints(_at(arrays, 0))
    return None if dims is None else _made(node, dims)


def _expand(node: ir.Node, arrays: Arrays) -> str | None:
    dims, source = _ints(_at(arrays, 1)), _dims(node, 0)
    if dims is None:
        return None
    if source is not None:
        rank = max(len(dims), len(source))
        padded = [[1] * (rank - len(s)) + list(s) for s in (dims, source)]
        dims = [a if b == 1 else b for a, b in zip(*padded, strict=True)]
    return _made(node, dims)


def _tile(node: ir.Node, arrays: Arrays) -> str | None:
    repeats, source = _ints(_at(arrays, 1)), _dims(node, 0)
    if repeats is None:
        return None
    if any(r < 0 for r in repeats):
        return f"repeats {_named(node, 1)} contains {min(repeats)}; it must be 0 or more"
    if source is None or len(source) != len(repeats):
        return None
    return _made(node, [d * r for d, r in zip(source, repeats, strict=True)])


def _one_hot(node: ir.Node, arrays: Arrays) -> str | None:
    problem = _whole(node, arrays, 1, "depth", 1)
    depth, indices = _at(arrays, 1), _dims(node, 0)
    if problem or depth is None or indices is None:
        return problem
    return _made(node, [*indices, int(depth.reshape(()).item())])


def _resize(node: ir.Node, arrays: Arrays) -> str | None:
    source = _dims(node, 0)
    by_roi = node.op_type == "Resize" and len(node.inputs) > 2
    scales, sizes = _at(arrays, 2 if by_roi else 1), _ints(_at(arrays, 3))
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
            return f"scales are {_cut(', '.join(f'{s:g}' for s in numbers))}; each must be above 0"
        for axis, scale in zip(axes, numbers, strict=True):
            dims[axis] = math.floor(dims[axis] * scale)
    return _made(node, dims)


def _axes(node: ir.Node, dims: Dims | None) -> list[int] | None:
    if dims is None:
        return None
    if "axes" not in node.attributes:
        return list(range(len(dims)))
    axes = [int(axis) for axis in node.attributes["axes"].as_ints()]
    return [a % len(dims) for a in axes] if all(-len(dims) <= a < len(dims) for a in axes) else None


def _pad(node: ir.Node, arrays: Arrays) -> str | None:
    source, pads = _dims(node, 0), _ints(_at(arrays, 1))
    if pads is None and "pads" in node.attributes:
        pads = [int(p) for p in node.attributes["pads"].as_ints()]
    axes = list(range(len(source))) if source is not None else []
    given = _ints(_at(arrays, 3))
    if source is None or pads is None or (given is None and len(node.inputs) > 3 and node.inputs[3]):
        return None
    if given is not None:
        if not all(-len(source) <= a < len(source) for a in given):
            return (
                f"axes {_named(node, 3)} are {_cut(str(given))}, but its input has {len(source)} dimensions"
            )
        axes = [a % len(source) for a in given]
    if len(pads) != 2 * len(axes):
        return f"has {len(pads)} pads for {len(axes)} axes; each axis needs two"
    dims = list(source)
    for k, axis in enumerate(axes):
        dims[axis] += pads[k] + pads[len(axes) + k]
    return _made(node, dims)


def _softmax(node: ir.Node, arrays: Arrays) -> str | None:
    """Check the axis: ONNX's inference accepts any before opset 13, where it may also equal the rank."""
    source, axis = _dims(node, 0), _int(node, "axis", -1)
    if source and not -len(source) <= axis <= len(source):
        return f"axis {axis} is outside {times(source)}"
    return None


def _depth_to_space(node: ir.Node, arrays: Arrays) -> str | None:
    source, block = _dims(node, 0), _int(node, "blocksize", 1)
    if block < 1:
        return f"blocksize is {block}; it must be 1 or more"
    if source is None or len(source) != 4:
        return None
    if node.op_type == "DepthToSpace" and source[1] % (block * block):
        return f"its input has {source[1]} channels, not a multiple of {block} x {block}"
    if node.op_type == "SpaceToDepth" and (source[2] % block or source[3] % block):
        return f"its input is {times(source)}, not a multiple of blocks of {block}"
    return None


_CHECKS: dict[str, Callable[[ir.Node, Arrays], str | None]] = {
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], _scales(1)),
    **dict.fromkeys(["QLinearConv", "QLinearMatMul"], _scales(1, 4, 6)),
    **dict.fromkeys(["Div", "Mod"], _division),
    **dict.fromkeys(["Gather", "GatherElements", "Scatter", "ScatterElements"], _on_axis),
    **dict.fromkeys(["HannWindow", "HammingWindow", "BlackmanWindow"], _window),
    **dict.fromkeys(["Resize", "Upsample"], _resize),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], _depth_to_space),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], _softmax),
    "GatherND": _on_leading_axes,
    "ScatterND": _on_leading_axes,
    "STFT": _stft,
    "MelWeightMatrix": _mel,
    "Range": _range,
    "ConstantOfShape": _constant_of_shape,
    "Expand": _expand,
    "Tile": _tile,
    "OneHot": _one_hot,
    "Pad": _pad,
}
