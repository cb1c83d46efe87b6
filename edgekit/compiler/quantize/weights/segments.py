"""Runs a segment of the quantized network on many samples: in float, with the plan's Q/DQ pairs and the
weights quantized so far.

    stored values -> [DequantizeLinear ->] nodes [-> QuantizeLinear] -> stored values

Between segments values are kept in little memory: as the integers of their pair if all later consumers read
those, else in float16 if that is precise enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.model.node_evaluation import session_options
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.model.untrusted import subgraphs_of
from edgekit.compiler.quantize.placement.kernels import OPSET, node_name
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan
from edgekit.errors import EngineError
from edgekit.system.onnx_runtime import onnxruntime
from edgekit.tensor_spec import Array

_INTEGERS, _REAL = "//stored", "//real"
_FP16_SAFE = (2.0**-8, 65504.0)
"""Range of an array's largest magnitude in which float16 is precise enough; below, most values are
denormal."""


@dataclass(frozen=True, eq=False)
class SampleValues:
    """Values of one tensor over all samples.

    ``arrays``: one for each sample. ``stored_as``: their quantization; None if they are not quantized.
    """

    arrays: list[Array]
    stored_as: Affine | None = None


def captured(node: ir.Node) -> list[ir.Value]:
    """Return the values of the outer graph that the node's subgraphs read."""
    values: list[ir.Value] = []
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
            inner_ids = {id(value) for one in inner for value in one.outputs}
            for scope in [graph, *graph.subgraphs()]:
                inner_ids |= {id(value) for value in [*scope.inputs, *scope.initializers.values()]}
                read = [*(value for one in inner for value in one.inputs), *scope.outputs]
                values += [value for value in read if value is not None and id(value) not in inner_ids]
    return list({id(value): value for value in values}.values())


def reads(node: ir.Node) -> list[ir.Value]:
    return [value for value in node.inputs if value is not None and value.name] + captured(node)


def reads_integers(value: ir.Value, node: ir.Node, plan: QuantizationPlan) -> bool:
    """Return whether the node reads the value through its Q/DQ pair."""
    if str(value.name) not in plan.activations:
        return False
    producer = value.producer()
    return node_name(node) in plan.nodes or (producer is not None and node_name(producer) in plan.nodes)


def run_segment(
    nodes: Sequence[ir.Node],
    plan: QuantizationPlan,
    replaced: Mapping[tuple[str, int], Array],
    inputs: Mapping[str, SampleValues],
    requested: Mapping[str, bool],
    count: int,
) -> dict[str, SampleValues]:
    """Run nodes on every sample, on one thread: the last bits depend on the number.

    Args:
        replaced: (node, input index) -> the constant that replaces this input.
        requested: Value to return -> whether as the integers of its pair, or as floats.

    Raises:
        EngineError: ONNX Runtime has no kernel for a node, or fails.
    """
    ort = onnxruntime()
    segment = _Segment(plan, replaced, inputs)
    for node in nodes:
        segment.add(node)
    fetched = [name + _INTEGERS if integers else name for name, integers in requested.items()]
    for name, integers in requested.items():
        if integers:
            segment.quantize(name)
    try:
        options = session_options(1, optimize=True)
        session = ort.InferenceSession(segment.model(fetched), options, providers=["CPUExecutionProvider"])
        fed = [one.name for one in session.get_inputs()]
        arrays: list[list[Array]] = [[] for _ in requested]
        for sample in range(count):
            run = session.run(fetched, {name: segment.feed(name, sample) for name in fed})
            for index, integers in enumerate(requested.values()):
                arrays[index].append(run[index] if integers else _small(run[index]))
            del run  # before the next one is made
    except Exception as problem:  # ONNX Runtime's exceptions share no root
        node_names = ", ".join(node_name(node) for node in nodes[:3])
        raise EngineError(f"ONNX Runtime failed to run {node_names}: {problem}") from problem
    return {
        name: SampleValues(values, plan.activations[name] if integers else None)
        for (name, integers), values in zip(requested.items(), arrays, strict=True)
    }


def _small(array: Array) -> Array:
    if array.dtype != np.float32 or not array.size:
        return array
    highest = max(float(array.max()), -float(array.min()))
    low, high = _FP16_SAFE
    return array.astype(np.float16) if low <= highest <= high else array


class _Segment:
    def __init__(
        self,
        plan: QuantizationPlan,
        replaced: Mapping[tuple[str, int], Array],
        inputs: Mapping[str, SampleValues],
    ) -> None:
        self._plan, self._replaced, self._arrays = plan, replaced, inputs
        self._graph = onnx.GraphProto(name="stretch")
        self._written: set[str] = set()
        self._used: dict[str, str] = {}  # input of the session -> value
        self._domains: set[tuple[str, int]] = {("", OPSET)}

    def add(self, node: ir.Node) -> None:
        proto = ir.serde.serialize_node(node)
        renamed: dict[str, str] = {}
        for index, value in enumerate(node.inputs):
            constant = self._replaced.get((node_name(node), index))
            if constant is not None:
                proto.input[index] = self._constant(f"{node_name(node)}//{index}", constant)
            elif value is not None and value.name:
                proto.input[index] = self._read(value, node)
        for value in captured(node):
            renamed[str(value.name)] = self._read(value, node)
        extra = [
            index for name, index in self._replaced if name == node_name(node) and index >= len(node.inputs)
        ]
        for index in sorted(extra):
            proto.input.extend([""] * (index - len(proto.input)))
            proto.input.append(
                self._constant(f"{node_name(node)}//{index}", self._replaced[node_name(node), index])
            )
        _rename(proto, {old: new for old, new in renamed.items() if old != new})
        self._graph.node.append(proto)
        self._written.update(proto.output)
        if node.domain:
            self._domains.add((node.domain, node.version or 1))

    def quantize(self, name: str) -> None:
        if name + _INTEGERS in self._written:
            return
        affine = self._plan.activations[name]
        inputs = [name, *self._scale(name, affine)]
        self._append("QuantizeLinear", inputs, name + _INTEGERS, affine)

    def model(self, fetched: Iterable[str]) -> bytes:
        for name in fetched:
            self._graph.output.append(onnx.ValueInfoProto(name=name))
        model = onnx.ModelProto(ir_version=10, graph=self._graph)
        for domain, version in sorted(self._domains):
            model.opset_import.add(domain=domain, version=version)
        data: bytes = model.SerializeToString()
        return data

    def feed(self, name: str, sample: int) -> Array:
        array = self._arrays[self._used[name]].arrays[sample]
        return array.astype(np.float32) if array.dtype == np.float16 else array

    def _read(self, value: ir.Value, node: ir.Node) -> str:
        name = str(value.name)
        constant = array_of(value)
        if constant is not None:
            self._constant(name, constant)
        elif name not in self._written and name in self._arrays:
            self._feed(name, self._arrays[name])
        if not reads_integers(value, node, self._plan):
            return name
        if name + _REAL not in self._written:
            self.quantize(name)
            spec = self._plan.activations[name]
            self._append("DequantizeLinear", [name + _INTEGERS, *self._scale(name, spec)], name + _REAL, spec)
        return name + _REAL

    def _feed(self, name: str, inputs: SampleValues) -> None:
        fed = name if inputs.stored_as is None else name + _INTEGERS
        if fed not in self._written:
            dtype = inputs.arrays[0].dtype
            dtype = np.dtype(np.float32) if dtype == np.float16 else dtype
            kind = int(ir.DataType.from_numpy(dtype))
            shape = inputs.arrays[0].shape
            self._graph.input.append(onnx.helper.make_tensor_value_info(fed, kind, shape))
            self._written.add(fed)
            self._used[fed] = name

    def _scale(self, name: str, affine: Affine) -> list[str]:
        zero = np.asarray(affine.zero_point, affine.dtype)
        return [self._constant(f"{name}//scale", affine.scale), self._constant(f"{name}//zero", zero)]

    def _append(self, op: str, inputs: list[str], output: str, affine: Affine) -> None:
        proto = onnx.NodeProto(op_type=op, input=inputs, output=[output])
        if affine.axis is not None:
            proto.attribute.append(onnx.helper.make_attribute("axis", affine.axis))
        self._graph.node.append(proto)
        self._written.add(output)

    def _constant(self, name: str, array: Array) -> str:
        if name not in self._written:
            self._graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
            self._written.add(name)
        return name


def _rename(proto: onnx.NodeProto, names: Mapping[str, str]) -> None:
    if not names:
        return
    for graph in subgraphs_of(proto):
        for node in graph.node:
            for index, name in enumerate(node.input):
                node.input[index] = names.get(name, name)
            _rename(node, names)
        for value in graph.output:
            value.name = names.get(value.name, value.name)
