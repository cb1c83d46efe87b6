"""Runs a stretch of a canonical graph on many samples, as the quantized network computes it: in floats, with
a Q/DQ pair where the plan has one, and with the weights that were found so far.

    stored values -> [DequantizeLinear ->] nodes [-> QuantizeLinear] -> stored values

Between stretches a value is kept as small as it can be: as the integers of its pair where every later reader
reads those, else in float16 where that holds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.errors import EngineError
from edgekit.model.node_evaluation import session_options
from edgekit.model.rewriting import array_of
from edgekit.quantize.placement.kernels import OPSET, node_name
from edgekit.quantize.recipe import Affine, QuantizationPlan
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensors import Array

_INTEGERS, _REAL = "//stored", "//real"
_HALF_SAFE = (2.0**-8, 65504.0)
"""The largest magnitude of an array that float16 holds well: below, most of it would be denormal."""


@dataclass(frozen=True, eq=False)
class Kept:
    """One value over all samples.

    Attributes:
        arrays: One for each sample.
        stored_as: How integers stand for the value; None: the arrays are what the network computes with.
    """

    arrays: list[Array]
    stored_as: Affine | None = None


def captured(node: ir.Node) -> list[ir.Value]:
    """Values of the graph around that the node's subgraphs read."""
    found: list[ir.Value] = []
    for attribute in node.attributes.values():
        graphs = (
            [attribute.as_graph()]
            if attribute.type == ir.AttributeType.GRAPH
            else attribute.as_graphs()
            if attribute.type == ir.AttributeType.GRAPHS
            else []
        )
        for graph in graphs:
            inner = list(ir.traversal.RecursiveGraphIterator(graph))
            own = {id(value) for one in inner for value in one.outputs}
            for scope in [graph, *graph.subgraphs()]:
                own |= {id(value) for value in [*scope.inputs, *scope.initializers.values()]}
                read = [*(value for one in inner for value in one.inputs), *scope.outputs]
                found += [value for value in read if value is not None and id(value) not in own]
    return list({id(value): value for value in found}.values())


def reads(node: ir.Node) -> list[ir.Value]:
    """Everything that the node reads, its subgraphs too."""
    return [value for value in node.inputs if value is not None and value.name] + captured(node)


def reads_integers(value: ir.Value, node: ir.Node, plan: QuantizationPlan) -> bool:
    """Whether the node reads the value behind its Q/DQ pair."""
    if str(value.name) not in plan.activations:
        return False
    producer = value.producer()
    return node_name(node) in plan.nodes or (producer is not None and node_name(producer) in plan.nodes)


def run_stretch(
    nodes: Sequence[ir.Node],
    plan: QuantizationPlan,
    replaced: Mapping[tuple[str, int], Array],
    kept: Mapping[str, Kept],
    wanted: Mapping[str, bool],
    count: int,
    threads: int = 1,
) -> dict[str, Kept]:
    """Run nodes on every sample.

    Args:
        nodes: In the graph's order.
        plan: Where the pairs stand.
        replaced: Node and place of the input -> the constant that it reads there, in place of its own.
        kept: What the nodes read and do not make, over all samples.
        wanted: Value -> whether its integers are wanted (it has a pair), or what stands before the pair.
        count: Samples.
        threads: Threads of one run.

    Returns:
        The wanted values.

    Raises:
        EngineError: ONNX Runtime has no kernel for a node, or fails.
    """
    ort = onnxruntime()
    stretch = _Stretch(plan, replaced, kept)
    for node in nodes:
        stretch.add(node)
    fetched = [name + _INTEGERS if integers else name for name, integers in wanted.items()]
    for name, integers in wanted.items():
        if integers:
            stretch.quantize(name)
    try:
        options = session_options(threads, optimize=True)
        session = ort.InferenceSession(stretch.model(fetched), options, providers=["CPUExecutionProvider"])
        fed = [one.name for one in session.get_inputs()]
        runs = [
            session.run(fetched, {name: stretch.feed(name, sample) for name in fed})
            for sample in range(count)
        ]
    except Exception as problem:  # ONNX Runtime's exceptions share no root
        where = ", ".join(node_name(node) for node in nodes[:3])
        raise EngineError(f"ONNX Runtime failed to run {where}: {problem}") from problem
    result: dict[str, Kept] = {}
    for place, (name, integers) in enumerate(wanted.items()):
        arrays = [run[place] for run in runs]
        result[name] = Kept(arrays, plan.activations[name]) if integers else Kept([*map(_small, arrays)])
        for run in runs:
            run[place] = None
    return result


def _small(array: Array) -> Array:
    """float16 where that holds a float32 array well."""
    if array.dtype != np.float32 or not array.size:
        return array
    highest = max(float(array.max()), -float(array.min()))
    low, high = _HALF_SAFE
    return array.astype(np.float16) if low <= highest <= high else array


class _Stretch:
    """An ONNX model under construction: nodes, with the pairs that they read through."""

    def __init__(
        self, plan: QuantizationPlan, replaced: Mapping[tuple[str, int], Array], kept: Mapping[str, Kept]
    ) -> None:
        self._plan, self._replaced, self._kept = plan, replaced, kept
        self._graph = onnx.GraphProto(name="stretch")
        self._known: set[str] = set()
        self._used: dict[str, str] = {}  # input of the session -> value
        self._domains: set[tuple[str, int]] = {("", OPSET)}

    def add(self, node: ir.Node) -> None:
        proto = ir.serde.serialize_node(node)
        renamed: dict[str, str] = {}
        for place, value in enumerate(node.inputs):
            constant = self._replaced.get((node_name(node), place))
            if constant is not None:
                proto.input[place] = self._constant(f"{node_name(node)}//{place}", constant)
            elif value is not None and value.name:
                proto.input[place] = self._read(value, node)
        for value in captured(node):
            renamed[str(value.name)] = self._read(value, node)
        extra = [
            place for name, place in self._replaced if name == node_name(node) and place >= len(node.inputs)
        ]
        for place in sorted(extra):
            proto.input.extend([""] * (place - len(proto.input)))
            proto.input.append(
                self._constant(f"{node_name(node)}//{place}", self._replaced[node_name(node), place])
            )
        _rename(proto, {old: new for old, new in renamed.items() if old != new})
        self._graph.node.append(proto)
        self._known.update(proto.output)
        if node.domain:
            self._domains.add((node.domain, node.version or 1))

    def quantize(self, name: str) -> None:
        """Make the integers of a value that a node makes."""
        if name + _INTEGERS in self._known:
            return
        by = self._plan.activations[name]
        inputs = [name, *self._scale(name, by)]
        self._append("QuantizeLinear", inputs, name + _INTEGERS, by)

    def model(self, fetched: Iterable[str]) -> bytes:
        for name in fetched:
            self._graph.output.append(onnx.ValueInfoProto(name=name))
        model = onnx.ModelProto(ir_version=10, graph=self._graph)
        for domain, version in sorted(self._domains):
            model.opset_import.add(domain=domain, version=version)
        data: bytes = model.SerializeToString()
        return data

    def feed(self, name: str, sample: int) -> Array:
        array = self._kept[self._used[name]].arrays[sample]
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def _read(self, value: ir.Value, node: ir.Node) -> str:
        """The name under which a node reads a value."""
        name = str(value.name)
        constant = array_of(value)
        if constant is not None:
            self._constant(name, constant)
        elif name not in self._known and name in self._kept:
            self._feed(name, self._kept[name])
        if not reads_integers(value, node, self._plan):
            return name
        if name + _REAL not in self._known:
            self.quantize(name)
            by = self._plan.activations[name]
            self._append("DequantizeLinear", [name + _INTEGERS, *self._scale(name, by)], name + _REAL, by)
        return name + _REAL

    def _feed(self, name: str, kept: Kept) -> None:
        fed = name if kept.stored_as is None else name + _INTEGERS
        if fed not in self._known:
            dtype = kept.arrays[0].dtype
            dtype = np.dtype(np.float32) if dtype == np.float16 else dtype
            kind = int(ir.DataType.from_numpy(dtype))
            shape = kept.arrays[0].shape
            self._graph.input.append(onnx.helper.make_tensor_value_info(fed, kind, shape))
            self._known.add(fed)
            self._used[fed] = name

    def _scale(self, name: str, by: Affine) -> list[str]:
        zero = np.asarray(by.zero_point, by.dtype)
        return [self._constant(f"{name}//scale", by.scale), self._constant(f"{name}//zero", zero)]

    def _append(self, op: str, inputs: list[str], output: str, by: Affine) -> None:
        proto = onnx.NodeProto(op_type=op, input=inputs, output=[output])
        if by.axis is not None:
            proto.attribute.append(onnx.helper.make_attribute("axis", by.axis))
        self._graph.node.append(proto)
        self._known.add(output)

    def _constant(self, name: str, array: Array) -> str:
        if name not in self._known:
            self._graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
            self._known.add(name)
        return name


def _rename(proto: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Let the subgraphs of a node read other names."""
    if not names:
        return
    for attribute in proto.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            for node in graph.node:
                for place, name in enumerate(node.input):
                    node.input[place] = names.get(name, name)
                _rename(node, names)
            for value in graph.output:
                value.name = names.get(value.name, value.name)
