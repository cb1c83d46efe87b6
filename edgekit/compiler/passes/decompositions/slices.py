"""Slice with plainer ones: one for each axis, of neighbours."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, dims_of, input_of
from edgekit.compiler.passes.decompositions.tape import Tape


def slice_by_axis(node: ir.Node) -> onnx.GraphProto | None:
    """Decompose Slice into one Slice per axis, of neighbours, with a start and an end in range.

    Every second row (a Focus stem that no Conv follows) is the first row of each pair:

        x[:, :, 0::2]  =>  Reshape N, C, H/2, 2, W  ->  [:, :, :, 0:1]  ->  Reshape N, C, H/2, W
    """
    dims, out = dims_of(node.inputs[0]), dims_of(node.outputs[0])
    starts, ends, axes, steps = (array_of(input_of(node, k)) for k in (1, 2, 3, 4))
    if dims is None or out is None or 0 in out or starts is None or ends is None:
        return None
    if any(input_of(node, k) is not None and array_of(input_of(node, k)) is None for k in (3, 4)):
        return None
    over = list(range(len(starts))) if axes is None else [int(axis) % len(dims) for axis in axes]
    by = [1] * len(starts) if steps is None else [int(step) for step in steps]
    if any(step < 1 for step in by) or len(set(over)) != len(by):
        return None
    tape, x, sizes = Tape(node), "i0", list(dims)
    for axis, low, high, step in zip(over, starts, ends, by, strict=True):
        taken = range(*slice(int(low), int(high), step).indices(dims[axis]))
        if len(taken) == dims[axis]:
            continue
        x = _part(tape, x, sizes, axis, taken)
        sizes[axis] = len(taken)
    if len(by) == 1 and by[0] == 1 and 0 <= starts[0] < ends[0] <= dims[over[0]]:
        return None  # it is as plain as it can be
    return tape.body(x)


def _part(tape: Tape, x: str, sizes: list[int], axis: int, taken: range) -> str:
    """Take ``taken`` of one axis of ``x``, which has ``sizes``."""
    first, count, step = taken[0], len(taken), taken.step
    if step == 1 or count == 1:
        return tape.part(x, axis, first, taken[-1] + 1)
    whole = count if first + count * step <= sizes[axis] else count - 1  # the last block may be cut off
    head, tail = sizes[:axis], sizes[axis + 1 :]
    if (first, first + whole * step) != (0, sizes[axis]):
        blocks = tape.part(x, axis, first, first + whole * step)
    else:
        blocks = x
    blocks = tape.part(tape.reshape(blocks, (*head, whole, step, *tail)), axis + 1, 0, 1)
    blocks = tape.reshape(blocks, (*head, whole, *tail))
    if whole == count:
        return blocks
    return tape("Concat", blocks, tape.part(x, axis, taken[-1], taken[-1] + 1), axis=axis)
