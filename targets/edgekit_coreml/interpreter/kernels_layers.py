"""Convolutions, pools, products, normalizations, resizing and recurrent layers.

Convolutions and pools are ONNX Runtime's kernels, the rest is numpy; all of it in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from edgekit.errors import EngineError
from edgekit_coreml.interpreter.kernels_data import ints
from edgekit_coreml.interpreter.kernels_elementwise import Operand, sigmoid, wide
from edgekit_coreml.interpreter.one_node import run_node


def _padding(pad_type: str, pad: Operand, axes: int) -> dict[str, Any]:
    if pad_type == "custom" and pad is not None:
        flat = ints(pad)
        return {"pads": flat[0::2] + flat[1::2]}
    names = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}
    return {"auto_pad": names[pad_type]} if pad_type in names else {"pads": [0] * (2 * axes)}


def _convolution(
    op: str,
    x: Operand,
    weight: Operand,
    bias: Operand = None,
    strides: Operand = None,
    pad_type: str = "valid",
    pad: Operand = None,
    dilations: Operand = None,
    groups: Operand = 1,
) -> Operand:
    axes = x.ndim - 2
    attributes = {
        "strides": ints(strides) if strides is not None else [1] * axes,
        "dilations": ints(dilations) if dilations is not None else [1] * axes,
        "group": int(groups),
        **_padding(pad_type, pad, axes),
    }
    operands = [wide(x), wide(weight), *([wide(bias)] if bias is not None else [])]
    return run_node(op, operands, attributes)


conv = partial(_convolution, "Conv")


def conv_transpose(*, output_shape: Operand = None, **operands: Any) -> Operand:
    return _convolution("ConvTranspose", **operands)


def _pool(
    op: str,
    x: Operand,
    kernel_sizes: Operand,
    strides: Operand,
    pad_type: str,
    pad: Operand,
    ceil_mode: Operand,
    **attributes: Any,
) -> Operand:
    kernel = ints(kernel_sizes)
    attributes |= {
        "kernel_shape": kernel,
        "strides": ints(strides) if strides is not None else [1] * len(kernel),
        "ceil_mode": int(bool(ceil_mode)),
        **_padding(pad_type, pad, len(kernel)),
    }
    return run_node(op, [wide(x)], attributes)


def max_pool(
    x: Operand,
    kernel_sizes: Operand,
    strides: Operand = None,
    pad_type: str = "valid",
    pad: Operand = None,
    ceil_mode: Operand = False,
) -> Operand:
    return _pool("MaxPool", x, kernel_sizes, strides, pad_type, pad, ceil_mode)


def avg_pool(
    x: Operand,
    kernel_sizes: Operand,
    strides: Operand = None,
    pad_type: str = "valid",
    pad: Operand = None,
    exclude_padding_from_average: Operand = False,
    ceil_mode: Operand = False,
) -> Operand:
    if pad_type == "custom" and pad is not None and any(ints(pad)) and not exclude_padding_from_average:
        # ONNX Runtime 1.23 is wrong if the pads differ at the two ends; zeros are what is averaged.
        flat = ints(pad)
        width = [(0, 0), (0, 0), *((flat[2 * a], flat[2 * a + 1]) for a in range(x.ndim - 2))]
        return _pool("AveragePool", np.pad(wide(x), width), kernel_sizes, strides, "valid", None, ceil_mode)
    counted = int(not exclude_padding_from_average)
    return _pool("AveragePool", x, kernel_sizes, strides, pad_type, pad, ceil_mode, count_include_pad=counted)


def linear(x: Operand, weight: Operand, bias: Operand = None) -> Operand:
    product = np.matmul(wide(x), wide(weight).T)
    return product if bias is None else product + wide(bias)


def matmul(x: Operand, y: Operand, transpose_x: Operand = False, transpose_y: Operand = False) -> Operand:
    x, y = wide(x), wide(y)
    x = np.swapaxes(x, -1, -2) if transpose_x else x
    y = np.swapaxes(y, -1, -2) if transpose_y else y
    return np.matmul(x, y)


def softmax(x: Operand, axis: Operand = -1) -> Operand:
    x = wide(x)
    powers = np.exp(x - x.max(int(axis), keepdims=True))
    return powers / powers.sum(int(axis), keepdims=True)


def batch_norm(
    x: Operand,
    mean: Operand,
    variance: Operand,
    gamma: Operand = None,
    beta: Operand = None,
    epsilon: Operand = 1e-5,
) -> Operand:
    shape = [1, -1] + [1] * (x.ndim - 2)
    factor = 1 / np.sqrt(wide(variance) + wide(epsilon))
    factor = factor if gamma is None else factor * wide(gamma)
    shift = -wide(mean) * factor + (0 if beta is None else wide(beta))
    return wide(x) * factor.reshape(shape) + shift.reshape(shape)


def _normalized(x: Operand, axes: tuple[int, ...], epsilon: Operand) -> Operand:
    centred = x - x.mean(axes, keepdims=True)
    variance = np.square(centred).mean(axes, keepdims=True)
    return centred / np.sqrt(variance + wide(epsilon))


def layer_norm(
    x: Operand,
    axes: Operand = None,
    gamma: Operand = None,
    beta: Operand = None,
    epsilon: Operand = 1e-5,
) -> Operand:
    norm_axes = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in ints(axes))
    result = _normalized(wide(x), norm_axes, epsilon)
    result = result if gamma is None else result * wide(gamma)
    return result if beta is None else result + wide(beta)


def instance_norm(
    x: Operand, gamma: Operand = None, beta: Operand = None, epsilon: Operand = 1e-5
) -> Operand:
    shape = [1, -1] + [1] * (x.ndim - 2)
    result = _normalized(wide(x), tuple(range(2, x.ndim)), epsilon)
    result = result if gamma is None else result * wide(gamma).reshape(shape)
    return result if beta is None else result + wide(beta).reshape(shape)


def l2_norm(x: Operand, epsilon: Operand = 1e-6) -> Operand:
    x = wide(x)
    axes = tuple(range(max(x.ndim - 3, 0), x.ndim))
    return x / np.sqrt(np.square(x).sum(axes, keepdims=True) + wide(epsilon))


def local_response_norm(
    x: Operand, size: Operand, alpha: Operand = 1e-4, beta: Operand = 0.75, k: Operand = 1.0
) -> Operand:
    attributes = {"size": int(size), "alpha": float(alpha), "beta": float(beta), "bias": float(k)}
    return run_node("LRN", [wide(x)], attributes)


def _stretched(x: Operand, axis: int, positions: Operand) -> Operand:
    """Interpolate linearly along one axis at real positions, clamped to the ends."""
    size = x.shape[axis]
    positions = np.clip(positions, 0, size - 1)
    low = np.floor(positions).astype(np.int64)
    high = np.minimum(low + 1, size - 1)
    share = (positions - low).astype(np.float32).reshape([-1 if a == axis else 1 for a in range(x.ndim)])
    return np.take(x, low, axis) * (1 - share) + np.take(x, high, axis) * share


def _positions(size: int, out: int, mode: str) -> Operand:
    """Compute the position of each output in the input (formulas of resize_bilinear's reference)."""
    i = np.arange(out, dtype=np.float64)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        if out == 1:
            return np.zeros(1) if mode == "STRICT_ALIGN_CORNERS" else np.full(1, (size - 1) / 2)
        return i * (size - 1) / (out - 1)
    if mode in ("DEFAULT",):
        return i * (size - size / out) / max(out - 1, 1)
    if mode == "OFFSET_CORNERS":
        delta = max(1.0, float(size - 1)) / out
        return (0.5 + i) * delta
    if mode == "UNALIGN_CORNERS":
        return (i + 0.5) * size / out - 0.5
    raise EngineError(f"sampling_mode {mode}")


def resize_bilinear(
    x: Operand,
    target_size_height: Operand = 1,
    target_size_width: Operand = 1,
    sampling_mode: str = "DEFAULT",
) -> Operand:
    x = wide(x)
    for axis, out in ((x.ndim - 2, int(target_size_height)), (x.ndim - 1, int(target_size_width))):
        x = _stretched(x, axis, _positions(x.shape[axis], out, sampling_mode))
    return x


def upsample_bilinear(
    x: Operand,
    scale_factor_height: Operand = 1,
    scale_factor_width: Operand = 1,
    align_corners: Operand = True,
    half_pixel_centers: Operand = None,
) -> Operand:
    x = wide(x)
    half_pixel = not align_corners if half_pixel_centers is None else bool(half_pixel_centers)
    for axis, factor in ((x.ndim - 2, float(scale_factor_height)), (x.ndim - 1, float(scale_factor_width))):
        size = x.shape[axis]
        out = int(np.floor(size * factor))
        i = np.arange(out, dtype=np.float64)
        if align_corners:
            positions = i * (size - 1) / max(out - 1, 1)
        else:
            positions = (i + 0.5) / factor - 0.5 if half_pixel else i / factor
        x = _stretched(x, axis, positions)
    return x


def upsample_nearest_neighbor(
    x: Operand, scale_factor_height: Operand = 1, scale_factor_width: Operand = 1
) -> Operand:
    for axis, factor in ((x.ndim - 2, float(scale_factor_height)), (x.ndim - 1, float(scale_factor_width))):
        out = int(np.floor(x.shape[axis] * factor))
        x = np.take(x, np.minimum((np.arange(out) / factor).astype(np.int64), x.shape[axis] - 1), axis)
    return x


_GATES: Mapping[str, Callable[[Operand], Operand]] = {"sigmoid": sigmoid, "tanh": np.tanh,
                                                  "relu": lambda x: np.maximum(x, 0)}  # fmt: skip


def lstm(
    x: Operand,
    initial_h: Operand,
    initial_c: Operand,
    weight_ih: Operand,
    weight_hh: Operand,
    bias: Operand = None,
    peephole: Operand = None,
    weight_ih_back: Operand = None,
    weight_hh_back: Operand = None,
    bias_back: Operand = None,
    peephole_back: Operand = None,
    direction: str = "forward",
    output_sequence: Operand = False,
    recurrent_activation: str = "sigmoid",
    cell_activation: str = "tanh",
    activation: str = "tanh",
    clip: Operand = None,
) -> list[Operand]:
    if peephole is not None or clip is not None:
        raise EngineError("lstm with peepholes or a clip")
    gates = (_GATES[recurrent_activation], _GATES[cell_activation], _GATES[activation])
    hidden = weight_hh.shape[1]
    h, c = wide(initial_h), wide(initial_c)
    if direction != "bidirectional":
        steps = wide(x) if direction == "forward" else wide(x)[::-1]
        sequence, h, c = _lstm(steps, h, c, weight_ih, weight_hh, bias, gates)
        sequence = sequence if direction == "forward" else sequence[::-1]
        last = h[None]
        return [sequence if output_sequence else last, h, c]
    if weight_ih_back is None or weight_hh_back is None:
        raise EngineError("a bidirectional lstm without weights for its way back")
    forward, h1, c1 = _lstm(wide(x), h[:, :hidden], c[:, :hidden], weight_ih, weight_hh, bias, gates)
    back, h2, c2 = _lstm(
        wide(x)[::-1], h[:, hidden:], c[:, hidden:], weight_ih_back, weight_hh_back, bias_back, gates
    )
    both = np.concatenate([forward, back[::-1]], -1)
    h, c = np.concatenate([h1, h2], -1), np.concatenate([c1, c2], -1)
    return [both if output_sequence else h[None], h, c]


def _lstm(
    x: Operand,
    h: Operand,
    c: Operand,
    weight_ih: Operand,
    weight_hh: Operand,
    bias: Operand,
    gates: tuple[Callable[[Operand], Operand], ...],
) -> tuple[Operand, Operand, Operand]:
    """Run one direction of an LSTM; gates in MIL's order: input, forget, output, cell."""
    recurrent, cell, out = gates
    inward = np.matmul(x, wide(weight_ih).T) + (0 if bias is None else wide(bias))
    steps = []
    for step in inward:
        i, f, o, z = np.split(step + h @ wide(weight_hh).T, 4, -1)
        c = recurrent(f) * c + recurrent(i) * cell(z)
        h = recurrent(o) * out(c)
        steps.append(h)
    return np.stack(steps), h, c


_OWN_NAMES = (
    avg_pool, batch_norm, conv_transpose, instance_norm, l2_norm, layer_norm, linear,
    local_response_norm, lstm, matmul, max_pool, resize_bilinear, softmax, upsample_bilinear,
    upsample_nearest_neighbor,
)  # fmt: skip
"""Kernels that are called what their operator is."""
KERNELS: Mapping[str, Callable[..., Any]] = {
    **{kernel.__name__: kernel for kernel in _OWN_NAMES},
    "conv": conv,
}
