"""Check the constants of nodes: values that ONNX allows, but that crash an engine or allocate terabytes.

Engines do not check them: ONNX Runtime divides the least integer by -1 and dies of SIGFPE, TFLite reads a
scale of 0 and dies of SIGSEGV. So they are rejected before any engine loads the model.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import Dims, times
from edgekit.compiler.model.rewriting import int_of
from edgekit.compiler.model.size_checks import (
    SIZE_CHECKS,
    Arrays,
    array_at,
    input_dims,
    input_name,
    whole_number_complaint,
)
from edgekit.tensor_spec import Array

LETHAL = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "Div", "Mod", "GatherND", "DFT"}
)
"""Ops that crash the engine's process instead of failing. They are checked in every branch of an If."""


def value_complaint(node: ir.Node, arrays: Arrays, opset: int) -> str | None:
    """Return the error in the constants of a node of the default domain, or None.

    Args:
        node: Node with the shapes of its inputs, as far as known.
        arrays: Arrays of its inputs; None for omitted inputs and for those that are not constant.
    """
    if node.op_type == "DFT" and not node.domain:
        return _dft(node, arrays, opset)
    check = _CHECKS.get(node.op_type)
    return check(node, arrays) if check is not None and not node.domain else None


def _scales(*indices: int) -> Callable[[ir.Node, Arrays], str | None]:
    def check(node: ir.Node, arrays: Arrays) -> str | None:
        for index in indices:
            scale = array_at(arrays, index)
            if scale is None:
                continue
            numbers = scale.astype(np.float64).reshape(-1)
            wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
            if wrong.size:
                return f"scale {input_name(node, index)} contains {wrong[0]:g}; a scale must be above 0"
        return _blocks(node)

    return check


def _blocks(node: ir.Node) -> str | None:
    if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
        return None
    block, x, scale = int_of(node, "block_size", 0), input_dims(node, 0), input_dims(node, 1)
    if block < 0:
        return f"block_size is {block}; it must be 1 or more, or 0 for no blocks"
    if x is None or scale is None or len(scale) == 0 or scale == (1,):
        return None
    axis = int_of(node, "axis", 1)
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
        return f"divides integers by 0 {input_name(node, 1)}"
    if divisor.dtype.kind == "u" or not (divisor == -1).any():
        return None
    minimum = np.iinfo(divisor.dtype).min
    if dividend is None:
        divisor_text = f"by -1 {input_name(node, 1)}"
        return f"divides integers {divisor_text}, which crashes the process if one is {minimum}; use Neg"
    if bool(((dividend == minimum) & (divisor == -1)).any()):
        return f"divides {minimum} by -1, and {-minimum} is not a valid {divisor.dtype}"
    return None


def _within(node: ir.Node, index: int, indices: Array, sizes: Array, dims: Dims) -> str | None:
    """Return the error of an index out of bounds of its axis, or None. Negative ones count from the end."""
    wrong = (indices < -sizes) | (indices >= sizes)
    if not wrong.any():
        return None
    return f"index {indices[wrong].reshape(-1)[0]} {input_name(node, index)} is outside {times(dims)}"


def _on_axis(node: ir.Node, arrays: Arrays) -> str | None:
    data, indices = input_dims(node, 0), array_at(arrays, 1)
    if data is None or indices is None or indices.dtype.kind != "i":
        return None
    axis = int_of(node, "axis", 0)
    if not -len(data) <= axis < len(data):
        return f"axis {axis} is outside {times(data)}"
    return _within(node, 1, indices, np.array(data[axis]), data)


def _on_leading_axes(node: ir.Node, arrays: Arrays) -> str | None:
    data, shape, indices = input_dims(node, 0), input_dims(node, 1), array_at(arrays, 1)
    batch = int_of(node, "batch_dims", 0)
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


def _dft(node: ir.Node, arrays: Arrays, opset: int) -> str | None:
    signal = input_dims(node, 0)
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype not in (None, ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return "is not float or double, for which ONNX Runtime reads out of bounds"
    if signal is not None:
        if len(signal) < 2 or signal[-1] not in (1, 2):
            return (
                f"its signal is {times(signal)}; it needs two axes or more, the last one with 1 (real) "
                "or 2 (complex)"
            )
        axis_input = array_at(arrays, 2)
        axis = int_of(node, "axis", 1 if opset < 20 else -2)
        if axis_input is not None and axis_input.size == 1:
            axis = int(axis_input.reshape(()).item())
        if not -len(signal) <= axis < len(signal) or axis % len(signal) == len(signal) - 1:
            return f"axis {axis} is outside of the signal {times(signal)}"
    return whole_number_complaint(node, arrays, 1, "dft_length", 1)


def _stft(node: ir.Node, arrays: Arrays) -> str | None:
    problem = whole_number_complaint(node, arrays, 1, "frame_step", 1) or whole_number_complaint(
        node, arrays, 3, "frame_length", 1
    )
    signal, window, length = input_dims(node, 0), input_dims(node, 2), array_at(arrays, 3)
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


def _softmax(node: ir.Node, arrays: Arrays) -> str | None:
    """Check the axis: ONNX's inference accepts any before opset 13, where it may also equal the rank."""
    source, axis = input_dims(node, 0), int_of(node, "axis", -1)
    if source and not -len(source) <= axis <= len(source):
        return f"axis {axis} is outside {times(source)}"
    return None


def _depth_to_space(node: ir.Node, arrays: Arrays) -> str | None:
    source, block = input_dims(node, 0), int_of(node, "blocksize", 1)
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
    **SIZE_CHECKS,
    **dict.fromkeys(["QuantizeLinear", "DequantizeLinear"], _scales(1)),
    **dict.fromkeys(["QLinearConv", "QLinearMatMul"], _scales(1, 4, 6)),
    **dict.fromkeys(["Div", "Mod"], _division),
    **dict.fromkeys(["Gather", "GatherElements", "Scatter", "ScatterElements"], _on_axis),
    **dict.fromkeys(["DepthToSpace", "SpaceToDepth"], _depth_to_space),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], _softmax),
    "GatherND": _on_leading_axes,
    "ScatterND": _on_leading_axes,
    "STFT": _stft,
}
