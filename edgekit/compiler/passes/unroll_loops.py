"""Unrolls a Loop or Scan with a known number of steps.

    Loop(3, True, v) body (i, cond, v) -> (cond, f(v, i), g(v))   =>   f(f(f(v, 0), 1), 2)
                                                                       Concat(g(v), g(f(v, 0)), ...)
    Scan(state, x) body (state, x[t]) -> (state, y[t])            =>   the same, x[t] by Gather
    Scan of opset 8, with a batch axis                            =>   the same for each sample, and Concat

It is known for a Scan, and for a Loop whose trip count is a weight and whose body does not end it earlier.
Most engines on devices have no loops; the others run the body as a separate graph and do not fuse across
steps. Kept for ONNX Runtime are loops that would have more than ``MOST_NODES`` nodes or exceed the work
budget (compiler/model/work_budget.py), loops whose condition the body computes, and loops over sequences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.rewriting import (
    PART_OF,
    add_constant,
    dims_of,
    input_of,
    insert_before,
    int_of,
    ints_of,
    names_counted,
    nodes_of,
)
from edgekit.compiler.model.shape_inference import infer_shapes, known_array
from edgekit.compiler.model.work_budget import check_time, one_budget, take_nodes
from edgekit.compiler.passes.fold_constants import fold_constants
from edgekit.compiler.passes.inline_if import hand_over, inline_body
from edgekit.tensor_spec import Array

MOST_NODES = 1000
"""Most nodes of one unrolled loop, which takes 1.5 s; YOLOX-nano has 300 nodes."""

Known = dict[ir.Value, Array]


def unroll_loops(model: ir.Model) -> bool:
    """Unroll all loops with known steps, in any opset, inner loops first."""
    changed = False
    with one_budget():
        while any(True for _ in nodes_of(model, "Loop", "Scan")):
            if not _unroll_outermost(model):
                break
            changed = True
            fold_constants(model)
    return changed


def _unroll_outermost(model: ir.Model) -> bool:
    constants, unrolled = infer_shapes(model).constants, False
    with names_counted(model):
        for graph, node in nodes_of(model, "Loop", "Scan"):
            check_time("unrolling its loops")
            if graph is model.graph:
                unrolled |= _loop(model, node, constants) if node.op_type == "Loop" else _scan(model, node)
    return unrolled


def _loop(model: ir.Model, node: ir.Node, constants: Known) -> bool:
    body, state = node.attributes["body"].as_graph(), list(node.inputs[2:])
    steps, condition = (known_array(input_of(node, k), constants) for k in (0, 1))
    if steps is None or steps.size != 1 or any(not _is_tensor(value) for value in [*state, *node.outputs]):
        return False
    if node.inputs[1] is not None and condition is None:
        return False
    goes_on = condition is None or bool(condition.item())
    count = max(int(steps.item()), 0) if goes_on else 0
    if not _may_unroll(body, count) or not _goes_on(body):
        return False
    if count == 0 and len(node.outputs) > len(state):
        return False  # what it collects has no element, and only a run would say of what shape
    carried: list[ir.Value] = [value for value in state if value is not None]
    collected: list[list[ir.Value]] = [[] for _ in node.outputs[len(state) :]]
    always = add_constant(model, np.array(True), f"{node.name}/condition")
    for step in range(count):
        number = add_constant(model, np.array(step, np.int64), f"{node.name}/step_{step}")
        results = _step(model, node, body, str(step), [number, always, *carried])
        carried = results[1 : 1 + len(state)]
        for values, value in zip(collected, results[1 + len(state) :], strict=True):
            values.append(value)
    stacked = [_stack(model, node, values, 0) for values in collected]
    hand_over(model.graph, node, [*carried, *stacked])
    return True


def _goes_on(body: ir.Graph) -> bool:
    value = body.outputs[0]
    while (producer := value.producer()) is not None and producer.op_type == "Identity":
        assert producer.inputs[0] is not None
        value = producer.inputs[0]
    array = known_array(value, {})
    if producer is not None and producer.op_type == "Constant" and "value" in producer.attributes:
        array = producer.attributes["value"].as_tensor().numpy()
    return value is body.inputs[1] or (array is not None and bool(array.all()))


def _scan(model: ir.Model, node: ir.Node) -> bool:
    batched = model.graph.opset_imports.get("", 9) < 9
    inputs = list(node.inputs)[1:] if batched else list(node.inputs)
    many = int_of(node, "num_scan_inputs", 1)
    states, series = inputs[: len(inputs) - many], inputs[len(inputs) - many :]
    shapes = [dims_of(value) for value in series]
    if any(not _is_tensor(value) for value in [*inputs, *node.outputs]) or None in shapes:
        return False
    if batched and node.inputs[0] is not None:
        return False  # sequence_lens: samples of different lengths
    body, first = node.attributes["body"].as_graph(), int(batched)
    axes = [
        axis % len(dims or ()) for axis, dims in zip(_per(node, "scan_input_axes", many), shapes, strict=True)
    ]
    axes = [first] * many if batched else axes
    lengths = {(dims or ())[axis] for dims, axis in zip(shapes, axes, strict=True)}
    samples = (shapes[0] or ())[0] if batched else 1
    if len(lengths) != 1 or not (count := lengths.pop()) or not _may_unroll(body, count * samples):
        return False
    collected = len(node.outputs) - len(states)
    backward = _per(node, "directions" if batched else "scan_input_directions", many)
    out_axes = [0] * collected if batched else _per(node, "scan_output_axes", collected)
    prepends = _per(node, "scan_output_directions", collected)
    if any(axis < 0 for axis in out_axes):
        return False  # counted from the end of a shape that only the body knows
    built: list[list[ir.Value]] = [[] for _ in node.outputs]
    for sample in range(samples):
        pick = [_pick(model, node, value, sample, 0) if batched else value for value in inputs]
        carried: list[ir.Value] = [value for value in pick[: len(states)] if value is not None]
        rows: list[list[ir.Value]] = [[] for _ in range(collected)]
        for step in range(count):
            indices = [count - 1 - step if back else step for back in backward]
            slices = [
                _pick(model, node, value, index, axis - first)
                for value, index, axis in zip(pick[len(states) :], indices, axes, strict=True)
            ]
            results = _step(model, node, body, f"{sample}/{step}" if batched else str(step), carried + slices)
            carried = results[: len(states)]
            for values, value, prepend in zip(rows, results[len(states) :], prepends, strict=True):
                values.insert(0 if prepend else len(values), value)
        stacked = [_stack(model, node, values, axis) for values, axis in zip(rows, out_axes, strict=True)]
        for outputs, value in zip(built, [*carried, *stacked], strict=True):
            outputs.append(value)
    hand_over(model.graph, node, [_stack(model, node, parts, 0) if batched else parts[0] for parts in built])
    return True


def _per(node: ir.Node, name: str, count: int) -> list[int]:
    return ints_of(node, name) or [0] * count


def _is_tensor(value: ir.Value | None) -> bool:
    return value is not None and (value.type is None or isinstance(value.type, ir.TensorType))


def _may_unroll(body: ir.Graph, steps: int) -> bool:
    count = steps * (sum(1 for _ in body.all_nodes()) + 1)
    return count <= MOST_NODES and take_nodes(count)


def _step(
    model: ir.Model, node: ir.Node, body: ir.Graph, name: str, inputs: Sequence[ir.Value]
) -> list[ir.Value]:
    copy = body.clone(allow_outer_scope_values=True)
    for child in copy.all_nodes():
        child.name = f"{node.name}/{name}/{child.name}"
        child.metadata_props[PART_OF] = str(node.name)
        for value in child.outputs:
            value.name = f"{node.name}/{name}/{value.name}" if value.name else value.name
    return inline_body(model, model.graph, node, copy, inputs, ending=False)


def _put(model: ir.Model, node: ir.Node, new: ir.Node, name: str) -> ir.Value:
    value = insert_before(model, node, new, name)
    new.name = value.name
    new.metadata_props[PART_OF] = str(node.name)
    return value


def _pick(model: ir.Model, node: ir.Node, value: ir.Value | None, index: int, axis: int) -> ir.Value:
    assert value is not None
    name = f"{node.name}/{value.name}/{index}"
    index_value = add_constant(model, np.array(index, np.int64), f"{name}/at")
    new = _put(model, node, ir.node("Gather", [value, index_value], {"axis": axis}), name)
    new.type = value.type
    return new


def _stack(model: ir.Model, node: ir.Node, values: Sequence[ir.Value], axis: int) -> ir.Value:
    apart = []
    by_attribute = model.graph.opset_imports.get("", 13) < 13
    axes = None if by_attribute else add_constant(model, np.array([axis], np.int64), f"{node.name}/axis")
    for value in values:
        if axes is None:
            wide = ir.node("Unsqueeze", [value], {"axes": [axis]})
        else:
            wide = ir.node("Unsqueeze", [value, axes])
        apart.append(_put(model, node, wide, f"{value.name}/row"))
    return _put(model, node, ir.node("Concat", apart, {"axis": axis}), f"{apart[0].name}s")
