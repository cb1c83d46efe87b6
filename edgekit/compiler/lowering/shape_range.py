"""One graph for every size of a range, from the graphs of some of its sizes.

The graphs are compared node by node. What differs must follow from the size:

    dimension of an input             the size
    integers on a line                in Reshape 0 or -1, if that is enough; else computed from the size
    a float on a line                 computed from the size, e.g. the number of tokens of a mean
    the first elements of a constant  a Slice of the largest one, e.g. of positions

    at 2    ids [1,2] -> Gather -> Add(positions [1,2,8]) -> Reshape(to [1,2,2,4])
    at 512  ids [1,512] -> Gather -> Add(positions [1,512,8]) -> Reshape(to [1,512,2,4])
    all     ids [1,size] -> Gather -> Add(Slice(positions [1,512,8], size)) -> Reshape(to [1,-1,2,4])

Everything else is refused by the node's name.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.rewriting import add_constant, array_of, free_name, int_of
from edgekit.errors import EngineError
from edgekit.target.shape_range import Line, line
from edgekit.tensor_spec import Array

SIZE = "size"
"""Name of the dimension in the graph."""


def with_range(models: Sequence[ir.Model], sizes: Sequence[int]) -> ir.Model:
    """Return one graph for all ``sizes``, ascending; shapes of values within it are left out.

    Raises:
        EngineError: they differ in what does not follow from the size; it names the node.
    """
    unified = models[-1].clone()
    _Unification(unified, [*models[:-1], unified], sizes).run()
    return unified


class _Unification:
    def __init__(self, model: ir.Model, models: Sequence[ir.Model], sizes: Sequence[int]) -> None:
        self._model, self._models, self._sizes = model, models, sizes
        self._names: list[dict[str, str]] = [{} for _ in models]
        """For each graph: the name of a value in the unified one -> its own."""
        self._computed: dict[tuple[str, ...], ir.Value] = {}
        self._new: list[ir.Node] = []
        self._sized: tuple[ir.Value, int] | None = None
        """An input, and its axis of the size."""
        self._size: ir.Value | None = None

    def run(self) -> None:
        graphs = [model.graph for model in self._models]
        for values in zip(*(graph.inputs for graph in graphs), strict=True):
            self._same(values)
        inputs = [self._dimensions(values) for values in zip(*(g.inputs for g in graphs), strict=True)]
        changes: list[tuple[ir.Node, int, ir.Value]] = []
        if len({len(graph) for graph in graphs}) > 1:
            first = next(
                (n[-1] for n in zip(*graphs, strict=False) if len({node.op_type for node in n}) > 1), None
            )
            raise _refusal(first, "the graph has other nodes at other sizes")
        for nodes in zip(*graphs, strict=True):
            changes += self._compared(nodes)
        outputs = [self._dimensions(values) for values in zip(*(g.outputs for g in graphs), strict=True)]
        for values in zip(*(graph.outputs for graph in graphs), strict=True):
            if self._of(values) != [str(value.name) for value in values]:
                raise _refusal(None, f"output {values[-1].name} is another value at other sizes")
        for node, index, value in changes:
            node.replace_input_with(index, value)
        if self._new:
            self._model.graph.insert_before(next(iter(self._model.graph)), self._new)
        for node in self._model.graph:
            for value in node.outputs:
                value.shape = None
        ends = ((self._model.graph.inputs, inputs), (self._model.graph.outputs, outputs))
        for side, dimensions in ends:
            for value, dims in zip(side, dimensions, strict=True):
                value.shape = None if dims is None else ir.Shape(dims)
        used = {value for node in self._model.graph for value in node.inputs}
        used.update(self._model.graph.outputs)
        for name, value in list(self._model.graph.initializers.items()):
            if value not in used and not value.uses():
                del self._model.graph.initializers[name]

    def _dimensions(self, values: Sequence[ir.Value]) -> list[int | str | None] | None:
        shapes = [static_dims(value) for value in values]
        if any(shape is None for shape in shapes) or len({len(shape or ()) for shape in shapes}) > 1:
            return None
        dims: list[int | str | None] = []
        for axis, lengths in enumerate(zip(*(shape or () for shape in shapes), strict=True)):
            on_line = line(self._sizes, lengths)
            constant = on_line is not None and not on_line[0]
            dims.append(lengths[-1] if constant else SIZE if on_line == (1, 0) else None)
            if on_line == (1, 0) and values[-1].is_graph_input():
                self._sized = self._sized or (values[-1], axis)
        return dims

    def _same(self, values: Sequence[ir.Value]) -> None:
        for names, value in zip(self._names, values, strict=True):
            names[str(values[-1].name)] = str(value.name)

    def _of(self, values: Sequence[ir.Value]) -> list[str]:
        return [names.get(str(values[-1].name), "") for names in self._names]

    def _compared(self, nodes: Sequence[ir.Node]) -> list[tuple[ir.Node, int, ir.Value]]:
        last = nodes[-1]
        kinds = {(n.domain, n.op_type, n.overload, len(n.inputs), len(n.outputs)) for n in nodes}
        if len(kinds) > 1:
            raise _refusal(last, "other sizes have another node there")
        if len({_attributes(node) for node in nodes}) > 1:
            raise _refusal(last, "its attributes differ between sizes")
        for name in _read_in_bodies(last):
            tables = [model.graph.initializers for model in self._models]
            stored = [array for table in tables if (array := array_of(table.get(name))) is not None]
            if any(not _equal(array, stored[-1]) for array in stored):
                raise _refusal(last, f"constant {name}, which its body reads, differs between sizes")
        changes = []
        for index, values in enumerate(zip(*(node.inputs for node in nodes), strict=True)):
            present = [value for value in values if value is not None]
            if not present:
                continue
            arrays = [array_of(value) for value in present]
            if len(present) < len(values) or len({array is None for array in arrays}) > 1:
                raise _refusal(last, f"input {index} is a constant at some sizes only")
            constants = [array for array in arrays if array is not None]
            if not constants:
                if self._of(present) != [str(value.name) for value in present]:
                    raise _refusal(last, f"input {index} is another value at other sizes")
            elif any(not _equal(constants[-1], array) for array in constants[:-1]):
                changes.append((last, index, self._constant(nodes, index, present, constants)))
        for values in zip(*(node.outputs for node in nodes), strict=True):
            self._same(values)
        return changes

    def _constant(
        self, nodes: Sequence[ir.Node], index: int, values: Sequence[ir.Value], arrays: Sequence[Array]
    ) -> ir.Value:
        last, name = nodes[-1], f"{values[-1].name}/{SIZE}"
        if last.op_type == "Reshape" and index == 1:
            target = self._reshape_target(nodes, arrays)
            if target is not None:
                return add_constant(self._model, target, name)
        key = tuple(str(value.name) for value in values)
        if key not in self._computed:
            lines = _lines(arrays, self._sizes)
            if lines is not None:
                self._computed[key] = self._on_lines(lines, arrays[-1], name)
            elif (extents := self._prefix(arrays)) is not None:
                self._computed[key] = self._sliced(values[-1], extents, name)
            else:
                raise _refusal(last, f"constant {values[-1].name} does not follow from the size")
        return self._computed[key]

    def _reshape_target(self, nodes: Sequence[ir.Node], arrays: Sequence[Array]) -> Array | None:
        """Return Reshape's target with 0 (as the input's) and -1 for dimensions that differ, or None."""
        targets = [array.tolist() for array in arrays]
        if len(set(map(len, targets))) > 1 or int_of(nodes[-1], "allowzero", 0) or -1 in targets[-1]:
            return None
        shapes = [static_dims(node.inputs[0]) for node in nodes]
        differing = [axis for axis, dims in enumerate(zip(*targets, strict=True)) if len(set(dims)) > 1]
        target = list(targets[-1])
        for axis in differing[: len(differing) - 1]:
            pairs = zip(shapes, targets, strict=True)
            if not all(shape and axis < len(shape) and shape[axis] == dims[axis] for shape, dims in pairs):
                return None
            target[axis] = 0
        target[differing[-1]] = -1
        return np.array(target, arrays[-1].dtype)

    def _on_lines(self, lines: tuple[Array, Array], like: Array, name: str) -> ir.Value:
        """Return factors * size + offsets, of the type and shape of a constant."""
        factors, offsets = lines
        if self._size is None:
            assert self._sized is not None  # an input has the range
            value, axis = self._sized
            self._size = self._node("Shape", [value], SIZE, start=axis, end=axis + 1)
        value = self._size
        if not like.shape:
            axes = self._added(np.array([0], np.int64), f"{name}/axes")
            value = self._node("Squeeze", [value, axes], f"{name}/scalar")
        if (factors != 1).any() or factors.shape not in ((), (1,)):
            value = self._node("Mul", [value, self._added(factors, f"{name}/factors")], f"{name}/product")
        if offsets.any():
            value = self._node("Add", [value, self._added(offsets, f"{name}/offsets")], f"{name}/sum")
        dtype = ir.DataType.from_numpy(like.dtype)
        if dtype == ir.DataType.INT64:
            return value
        return self._node("Cast", [value], f"{name}/cast", to=int(dtype))

    def _prefix(self, arrays: Sequence[Array]) -> list[tuple[int, Line]] | None:
        """Return the axes that differ, with their extents, if all have the first elements of the largest."""
        if len({array.ndim for array in arrays}) > 1:
            return None
        for array in arrays[:-1]:
            part = tuple(slice(0, size) for size in array.shape)
            if not _equal(arrays[-1][part], array):
                return None
        extents = []
        for axis, lengths in enumerate(zip(*(array.shape for array in arrays), strict=True)):
            extent = line(self._sizes, lengths)
            if extent is None:
                return None
            if extent[0]:
                extents.append((axis, extent))
        return extents

    def _sliced(self, largest: ir.Value, extents: Sequence[tuple[int, Line]], name: str) -> ir.Value:
        factors = np.array([factor for _, (factor, _) in extents], np.int64)
        offsets = np.array([offset for _, (_, offset) in extents], np.int64)
        ends = self._on_lines((factors, offsets), offsets, f"{name}/ends")
        starts = self._added(np.zeros_like(factors), f"{name}/starts")
        axes = self._added(np.array([axis for axis, _ in extents], np.int64), f"{name}/axes")
        return self._node("Slice", [largest, starts, ends, axes], name)

    def _added(self, array: Array, name: str) -> ir.Value:
        return add_constant(self._model, array, name)

    def _node(self, op: str, inputs: list[ir.Value], name: str, **attributes: int) -> ir.Value:
        name = free_name(self._model, name)
        node = ir.node(op, inputs, attributes=attributes, name=name)
        node.outputs[0].name = name
        self._new.append(node)
        return node.outputs[0]


def _lines(arrays: Sequence[Array], sizes: Sequence[int]) -> tuple[Array, Array] | None:
    if len({array.shape for array in arrays}) > 1 or arrays[-1].dtype.kind not in "if" or not arrays[-1].size:
        return None
    if not all(np.array_equal(array, np.rint(array)) and np.abs(array).max() < 1 << 52 for array in arrays):
        return None
    whole = [array.astype(np.int64) for array in arrays]
    factors, rests = np.divmod(whole[-1] - whole[0], sizes[-1] - sizes[0])
    offsets = whole[0] - factors * sizes[0]
    pairs = zip(sizes, whole, strict=True)
    on_lines = not rests.any() and all(np.array_equal(factors * n + offsets, array) for n, array in pairs)
    return (factors, offsets) if on_lines else None


def _equal(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _attributes(node: ir.Node) -> tuple[tuple[str, bytes], ...]:
    entries = (
        (name, ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True))
        for name, attribute in node.attributes.items()
    )
    return tuple(sorted(entries))


def _read_in_bodies(node: ir.Node) -> set[str]:
    """Return the names of the values that the bodies of an If, Loop or Scan read, outer ones among them."""
    bodies = [entry.as_graph() for entry in node.attributes.values() if entry.type == ir.AttributeType.GRAPH]
    inner = (value for body in bodies for member in body.all_nodes() for value in member.inputs)
    results = (value for body in bodies for value in body.outputs)
    return {str(value.name) for value in (*inner, *results) if value is not None}


def _refusal(node: ir.Node | None, reason: str) -> EngineError:
    place = "" if node is None else f"node {node.name or node.outputs[0].name} ({node.op_type}): "
    return EngineError(f"{place}{reason}")
