"""Decomposes GridSample into Gather, and DeformConv into GridSample."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import dims_of, input_of, int_of, ints_of, text_of
from edgekit.compiler.passes.decompositions.tape import Tape, decomposes
from edgekit.tensor_spec import Array

CUBIC_A = -0.75
"""ONNX GridSample's cubic coefficient."""
KINDS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@dataclass(frozen=True)
class Tap:
    """One element that is read along one axis for a point: its index (integer, in range) and its weight."""

    index: str
    weight: str | None


@decomposes("GridSample")
def grid_sample(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose GridSample with two or three spatial axes (cubic: two), in all modes and paddings. Each
    element read is one Gather.

    The image is flattened to N * C rows of H * W; points are the same in every channel.
    """
    x, grid = node.inputs[0], node.inputs[1]
    dims, grid_dims = dims_of(x), dims_of(grid)
    mode, padding = text_of(node, "mode", "linear"), text_of(node, "padding_mode", "zeros")
    if (
        x is None
        or grid is None
        or dims is None
        or grid_dims is None
        or x.dtype not in KINDS
        or 0 in (*dims, *grid_dims)
    ):
        return None
    spatial, axes = dims[2:], len(dims) - 2
    if axes not in (2, 3) or mode not in ("linear", "nearest", "cubic") or (mode == "cubic" and axes == 3):
        return None
    tape = Tape(node)
    reader = _Axis(tape, mode, padding, bool(int_of(node, "align_corners", 0)))
    points = tape("Cast", "i1", to=int(ir.DataType.FLOAT)) if grid.dtype != ir.DataType.FLOAT else "i1"
    taps = [
        # the grid names the last axis first
        reader.taps(tape("Gather", points, np.array(axes - 1 - axis, np.int64), axis=-1), size)
        for axis, size in enumerate(spatial)
    ]
    batch, channels, out = dims[0], dims[1], grid_dims[1:-1]
    flat = tape.reshape("i0", (batch, channels, prod(spatial)))
    rows = tape.reshape(tape("Transpose", flat, perm=[0, 2, 1]), (batch * prod(spatial), channels))
    first = (np.arange(batch, dtype=np.float32) * prod(spatial)).reshape(batch, *(1,) * axes)
    total = ""
    for chosen in product(*taps):
        row = chosen[0].index
        for tap, size in zip(chosen[1:], spatial[1:], strict=True):
            row = tape("Add", tape("Mul", row, np.array(size, np.float32)), tap.index)
        flat_index = tape("Cast", tape("Add", row, first), to=int(ir.DataType.INT64))
        read = tape("Gather", rows, flat_index, axis=0)
        for tap in chosen:
            if tap.weight is not None:
                weight = tape.reshape(tap.weight, (batch, *out, 1))
                read = tape("Mul", read, tape("CastLike", weight, read))
        total = read if not total else tape("Add", total, read)
    return tape.body(tape("Transpose", total, perm=[0, axes + 1, *range(1, axes + 1)]))


@dataclass(frozen=True)
class _Axis:
    tape: Tape
    mode: str
    padding: str
    aligned: bool

    def taps(self, positions: str, size: int) -> list[Tap]:
        # ONNX: (x + 1) / 2 * (size - 1), or ((x + 1) * size - 1) / 2 without align_corners.
        middle = (size - 1) / 2
        x = self._op("Add", self._op("Mul", positions, middle if self.aligned else size / 2), middle)
        ends = (0.0, size - 1.0) if self.aligned else (-0.5, size - 0.5)
        if self.mode == "nearest":
            return [self._tap(self.tape("Round", x), None, size, ends)]
        if self.mode == "linear":
            if self.padding == "border":
                x = self._between(x, size)
            elif self.padding == "reflection":
                x = self._reflected(x, ends)
            low = self.tape("Floor", x)
            part = self.tape("Sub", x, low)
            weights = [self._op("Add", self.tape("Neg", part), 1.0), part]
            return [self._tap(self._op("Add", low, k), w, size, ends) for k, w in enumerate(weights)]
        low = self.tape("Floor", x)
        part = self.tape("Sub", x, low)
        return [self._tap(self._op("Add", low, k), self._cubic(part, k), size, ends) for k in (-1, 0, 1, 2)]

    def _op(self, op: str, x: str, number: float) -> str:
        return self.tape(op, x, np.array(number, np.float32))

    def _between(self, x: str, size: int) -> str:
        return self.tape("Clip", x, np.array(0, np.float32), np.array(size - 1, np.float32))

    def _cubic(self, part: str, k: int) -> str:
        """Return the weight of the element ``k`` after the point's floor (R. Keys, 1981)."""
        a = CUBIC_A
        distance = self.tape("Abs", self._op("Sub", part, k))
        powers = (a + 2, -(a + 3), 0.0, 1.0) if k in (0, 1) else (a, -5 * a, 8 * a, -4 * a)
        polynomial = self._op("Mul", distance, powers[0])
        for power in powers[1:3]:
            polynomial = self.tape("Mul", self._op("Add", polynomial, power), distance)
        return self._op("Add", polynomial, powers[3])

    def _tap(self, index: str, weight: str | None, size: int, ends: tuple[float, float]) -> Tap:
        if self.padding == "reflection":
            index = self._reflected(index, ends)
        clamped = self._between(index, size)
        if self.padding == "zeros":
            same = self.tape("Cast", self.tape("Equal", index, clamped), to=int(ir.DataType.FLOAT))
            weight = same if weight is None else self.tape("Mul", weight, same)
        # Reflected indices may differ from integers by rounding errors.
        return Tap(self.tape("Round", clamped) if self.padding == "reflection" else clamped, weight)

    def _reflected(self, x: str, ends: tuple[float, float]) -> str:
        low, length = ends[0], ends[1] - ends[0]
        if length == 0:
            return self._op("Add", self._op("Mul", x, 0.0), low)
        distance = self.tape("Abs", self._op("Sub", x, low))
        turns = self.tape("Floor", self._op("Div", distance, length))
        rest = self.tape("Sub", distance, self._op("Mul", turns, length))
        halved = self.tape("Floor", self._op("Mul", turns, 0.5))
        odd = self.tape("Sub", turns, self._op("Mul", halved, 2.0))
        # rest, or length - rest on the way back
        back = self._op("Add", self._op("Mul", rest, -2.0), length)
        return self._op("Add", self.tape("Add", rest, self.tape("Mul", odd, back)), low)


@decomposes("DeformConv")
def deform_conv(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose DeformConv: GridSample reads the image at each kernel element's position plus offset, times
    its mask. A 1x1 Conv applies the weights (J. Dai, 2017; the mask: X. Zhu, 2018)."""
    x, w = dims_of(node.inputs[0]), dims_of(node.inputs[1])
    polynomial = dims_of(node.outputs[0])
    if x is None or w is None or polynomial is None or len(x) != 4 or 0 in (*x, *w, *polynomial):
        return None
    dtype = node.inputs[0].dtype if node.inputs[0] is not None else None
    if dtype != ir.DataType.FLOAT:
        return None
    groups = int_of(node, "offset_group", 1)
    strides, dilations = ints_of(node, "strides", [1, 1]), ints_of(node, "dilations", [1, 1])
    pads, kernel, taps = ints_of(node, "pads", [0] * 4), w[2:], prod(w[2:])
    (batch, channels, *size), out = x, polynomial[2:]
    tape = Tape(node)
    offsets = tape.reshape("i2", (batch, groups, taps, 2, *out))
    mask = tape.reshape("i4", (batch, groups, taps, *out)) if input_of(node, 4) is not None else None
    sampled = []
    for group in range(groups):
        group_offsets = tape("Gather", offsets, np.array(group, np.int64), axis=1)
        grid = []
        for axis in (1, 0):  # a grid names the last axis first
            offset = tape("Gather", group_offsets, np.array(axis, np.int64), axis=2)
            position = tape("Add", offset, _places(axis, kernel, out, strides, dilations, pads))
            # As a point between -1 and 1 without align_corners: (2 p + 1) / size - 1
            scaled = tape("Mul", position, np.array(2 / size[axis], np.float32))
            grid.append(tape("Add", scaled, np.array(1 / size[axis] - 1, np.float32)))
        joined = tape("Concat", *(tape("Unsqueeze", g, np.array([-1], np.int64)) for g in grid), axis=-1)
        flat = tape.reshape(joined, (batch, taps * out[0], out[1], 2))
        per = channels // groups
        image = tape.part("i0", 1, group * per, (group + 1) * per) if groups > 1 else "i0"
        read = tape.reshape(tape("GridSample", image, flat), (batch, per, taps, *out))
        if mask is not None:
            read = tape("Mul", read, tape.part(mask, 1, group, group + 1))
        sampled.append(read)
    columns = tape("Concat", *sampled, axis=1) if groups > 1 else sampled[0]
    stacked = tape.reshape(columns, (batch, channels * taps, *out))
    weights = tape.reshape("i1", (w[0], w[1] * taps, 1, 1))
    bias = "i3" if input_of(node, 3) is not None else None
    result = tape("Conv", stacked, weights, *([bias] if bias else []), group=int_of(node, "group", 1))
    return tape.body(result)


def _places(
    axis: int,
    kernel: tuple[int, ...],
    out: tuple[int, ...],
    strides: list[int],
    dilations: list[int],
    pads: list[int],
) -> Array:
    """Return the position of each kernel element along an axis, without offset: [1, taps, rows, columns]."""
    tap = np.indices(kernel)[axis].reshape(1, -1, 1, 1) * dilations[axis]
    start = np.indices(out)[axis].reshape(1, 1, *out) * strides[axis] - pads[axis]
    return np.asarray(tap + start, np.float32)
