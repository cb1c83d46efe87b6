"""Expand ops into other ops: by the function body of the ONNX schema, or by a decomposition of EdgeKit.

    Attention(Q, K, V, past)  =>  Concat, MatMul, Softmax ... as onnx.defs has them, in opset 23
    Det(x)                    =>  Gather, Mul, Sub ... as in edgekit/compiler/passes/decompositions

Not one of ``PASSES``: most targets have a kernel for such an op, which is faster. A target without a kernel
for a node expands that node on its own copy of the model. The new nodes have the name of the original node,
so that reports name nodes that the user knows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import onnx
import onnx.defs
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from edgekit.compiler.model.contributed_shapes import CONTRIBUTED
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.node_evaluation import attribute_protos
from edgekit.compiler.model.rewriting import PART_OF, node_name
from edgekit.compiler.model.work_budget import check_time, one_budget
from edgekit.compiler.passes.canonical_opset import (
    CANONICAL_IR,
    CANONICAL_OPSET,
    KEPT,
    canonical_opset,
    settle_opset,
)
from edgekit.compiler.passes.decompositions import BODIES
from edgekit.compiler.passes.decompositions.axes import fewer_axes
from edgekit.compiler.passes.fold_constants import fold_constants
from edgekit.compiler.passes.inline_if import inline_if
from edgekit.compiler.passes.remove_identities import remove_identities
from edgekit.compiler.passes.static_shapes import static_shapes
from edgekit.diagnostics import Finding, Inexpressible, errors
from edgekit.errors import ModelError

DOMAIN = "edgekit.expanded"
DOMAINS = ("", "ai.onnx.ml", CONTRIBUTED)
"""ONNX's domains, whose ops have schemas, and ONNX Runtime's, whose ops have decompositions only."""

T = TypeVar("T")


def with_expansions(
    model: ir.Model,
    attempt: Callable[[ir.Model], tuple[T, list[Finding]]],
    unsupported: Callable[[ir.Node], bool] = lambda node: False,
) -> tuple[T, list[Finding]]:
    """Compile a model; expand its unsupported nodes and repeat, until all are supported or cannot be
    expanded.

    Args:
        unsupported: Ops that are known to be unsupported; they are expanded before the first attempt.

    Returns:
        The result of the last attempt, and its findings. For a node without a decomposition, the finding says
        why.
    """
    reasons: dict[str, Inexpressible] = {}
    if any(unsupported(node) for node in model.graph):
        copy = model.clone()
        if expand_functions(copy, unsupported, reasons=reasons):
            settle_opset(copy)
            model = copy
    while True:
        expanded, findings = attempt(model)
        refused = {finding.node for finding in errors(findings)}
        copy = model.clone() if refused else model
        if not refused or not expand_functions(
            copy,
            lambda node: node_name(node) in refused,  # noqa: B023
            reasons=reasons,
        ):
            return expanded, [_explained(finding, reasons) for finding in findings]
        settle_opset(copy)
        model = copy


def _explained(finding: Finding, reasons: dict[str, Inexpressible]) -> Finding:
    reason = reasons.get(finding.node)
    if reason is None or finding.code != "EK1001":
        return finding
    return replace(finding, code=reason.code, message=reason.reason, fix=reason.fix)


def expand_functions(
    model: ir.Model,
    predicate: Callable[[ir.Node], bool],
    opset: int = CANONICAL_OPSET,
    reasons: dict[str, Inexpressible] | None = None,
) -> bool:
    """Expand, in place, every wanted node of the main graph that has a decomposition.

    Args:
        model: With a static shape on every value.
        opset: The opset of the nodes; the new nodes use the canonical one.
        reasons: Output: node name -> why it has no decomposition.
    """
    changed = False
    with one_budget():
        for node in list(model.graph):
            check_time("writing its ops out")
            if node.domain in DOMAINS and predicate(node):
                try:
                    changed |= _expand(model, node, opset)
                except Inexpressible as reason:
                    if reasons is not None:
                        reasons[node_name(node)] = reason
    return changed


def _expand(model: ir.Model, node: ir.Node, opset: int) -> bool:
    inputs = [value for value in node.inputs if value is not None]
    used = [value for value in node.outputs if value.uses() or value.is_graph_output()]
    if any(value.dtype is None or static_dims(value) is None for value in [*inputs, *used]):
        return False
    version = max(opset, KEPT.get(node.op_type, 0))
    version = model.graph.opset_imports.get(node.domain, 1) if node.domain else version
    schema = _schema(node, version)
    write = BODIES.get((node.domain, node.op_type))
    body = write(node) if write is not None else None
    if body is None and not node.domain and schema is not None:
        body = fewer_axes(node)
    function = _function(node, schema) if body is None and schema is not None else None
    try:
        if body is not None:
            small = _model_of_own(body, node)
            fold_constants(small)
        elif function is not None and schema is not None:
            small = _model_of(function, schema, node)
            static_shapes(small)
            canonical_opset(small)
            fold_constants(small)
            inline_if(small)
            static_shapes(small)
        else:
            return False
        remove_identities(small)
    except ModelError:
        return False
    if any(static_dims(value) is None for inner in small.graph for value in inner.outputs):
        return False
    _put_in_place(model, node, small)
    return True


def _schema(node: ir.Node, version: int) -> onnx.defs.OpSchema | None:
    try:
        return onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return None


def _function(node: ir.Node, schema: Any) -> onnx.FunctionProto | None:
    """Return the newest function of the schema (missing in OpSchema's stubs), or None."""
    data = b""
    if schema.has_function:
        version = max(schema.function_opset_versions)
        data = schema.get_function_with_opset_version(version)
    elif schema.has_context_dependent_function:
        version = max(schema.context_dependent_function_opset_versions)
        types = [
            (_type(value) if value is not None else onnx.TypeProto()).SerializeToString()
            for value in node.inputs
        ]
        data = schema.get_context_dependent_function_with_opset_version(
            version, _call(node, schema, "").SerializeToString(), types
        )
    return onnx.FunctionProto.FromString(data) if data else None


def _call(node: ir.Node, schema: onnx.defs.OpSchema | None, domain: str) -> onnx.NodeProto:
    proto = onnx.NodeProto(op_type=node.op_type, domain=domain, name="call")
    proto.input.extend("" if value is None else f"i{k}" for k, value in enumerate(node.inputs))
    read = [bool(value.uses()) or value.is_graph_output() for value in node.outputs]
    proto.output.extend(f"o{k}" if is_read else "" for k, is_read in enumerate(read))
    while proto.output and not proto.output[-1]:
        proto.output.pop()
    proto.attribute.extend(attribute_protos(node))
    for name, attribute in schema.attributes.items() if schema is not None else ():
        if name not in node.attributes and attribute.default_value.name:
            proto.attribute.append(attribute.default_value)
    return proto


def _type(value: ir.Value) -> onnx.TypeProto:
    assert value.type is not None
    proto = ir.serde.serialize_type(value.type)
    assert value.shape is not None
    ir.serde.serialize_shape_into(proto, value.shape)
    return proto


def _model_of(body: onnx.FunctionProto, schema: onnx.defs.OpSchema, node: ir.Node) -> ir.Model:
    """Return the function as a model: inputs i0, i1 ..., outputs o0, o1 ...; constants as weights."""
    body.domain = DOMAIN
    call = _call(node, schema, DOMAIN)
    # A body built for this call has no nodes for the outputs that the call leaves out.
    defined = {name for inner in body.node for name in inner.output} | set(body.input)
    pairs = [(a, b) for a, b in zip(call.output, body.output, strict=False) if a and b in defined]
    call.output[:], body.output[:] = [a for a, _ in pairs], [b for _, b in pairs]
    version = next((entry.version for entry in body.opset_import if not entry.domain), CANONICAL_OPSET)
    proto = _empty_model(version)
    proto.functions.append(body)
    proto.opset_import.add(domain=DOMAIN, version=1)
    proto.graph.node.append(call)
    small = _connected(proto, call, node)
    InlinePass()(small)
    return _with_constants(small, node)


def _model_of_own(body: onnx.GraphProto, node: ir.Node) -> ir.Model:
    proto = _empty_model(CANONICAL_OPSET)
    proto.graph.CopyFrom(body)
    return _with_constants(_connected(proto, _call(node, None, ""), node), node)


def _empty_model(opset: int) -> onnx.ModelProto:
    proto = onnx.ModelProto(ir_version=CANONICAL_IR)
    proto.opset_import.add(domain="", version=opset)
    proto.graph.name = "expanded"
    return proto


def _connected(proto: onnx.ModelProto, call: onnx.NodeProto, node: ir.Node) -> ir.Model:
    for name, value in zip(call.input, node.inputs, strict=True):
        if value is not None:
            proto.graph.input.append(onnx.ValueInfoProto(name=name, type=_type(value)))
    for name in call.output:
        if name:
            value = node.outputs[int(name[1:])]
            proto.graph.output.append(onnx.ValueInfoProto(name=name, type=_type(value)))
    return ir.from_proto(proto)


def _with_constants(small: ir.Model, node: ir.Node) -> ir.Model:
    graph = small.graph
    for value in list(graph.inputs):
        source = node.inputs[int(str(value.name)[1:])]
        assert source is not None
        if source.const_value is not None and source.is_initializer() and not source.is_graph_input():
            graph.inputs.remove(value)
            value.const_value = source.const_value
            graph.initializers.add(value)
    return small


def _put_in_place(model: ir.Model, node: ir.Node, small: ir.Model) -> None:
    """Replace ``node`` by the nodes of ``small``. Weights that are the node's inputs are reused."""
    graph, inner = model.graph, small.graph
    named = {f"o{k}": value for k, value in enumerate(node.outputs)}
    produced = {value for child in inner for value in child.outputs}
    results = {str(value.name): value for value in inner.outputs}
    inner.outputs.clear()
    used_names = {value.name for graph_node in model.graph.all_nodes() for value in graph_node.outputs}
    used_names |= {*graph.initializers, *(value.name for value in graph.inputs)}

    def renamed(value: ir.Value) -> None:
        free = base = f"{node.outputs[0].name}/{value.name}"
        number = 2
        while free in used_names:
            free, number = f"{base}_{number}", number + 1
        used_names.add(free)
        value.name = free

    inputs = {f"i{k}": value for k, value in enumerate(node.inputs) if value is not None}
    for value in [*inner.inputs, *inner.initializers.values()]:
        outer = inputs.get(str(value.name))
        if outer is not None:
            value.replace_all_uses_with(outer)
            results = {name: outer if result is value else result for name, result in results.items()}
    for name, weight in list(inner.initializers.items()):
        del inner.initializers[name]
        if weight.uses() or weight in results.values():
            renamed(weight)
            graph.initializers.add(weight)
    for number, child in enumerate(list(inner)):
        inner.remove(child)
        child.name = f"{node.name}/{child.op_type}_{number}" if number else node.name
        if child.name != node_name(node):
            child.metadata_props[PART_OF] = node_name(node)
        for value in child.outputs:
            renamed(value)
        graph.insert_before(node, child)
    for name, result in results.items():
        _hand_over(graph, node, named[name], result, produced)
    graph.remove(node, safe=True)


def _hand_over(graph: ir.Graph, node: ir.Node, old: ir.Value, new: ir.Value, produced: set[ir.Value]) -> None:
    """Replace ``old`` by ``new`` in all consumers; a graph output keeps its name."""
    if not old.is_graph_output():
        old.replace_all_uses_with(new)
        return
    if new.producer() is None or new.is_graph_output() or new not in produced:
        copy = ir.node("Identity", [new], name=f"{node.name}/{old.name}")
        copy.metadata_props[PART_OF] = node_name(node)
        copy.outputs[0].type, copy.outputs[0].shape = old.type, old.shape
        graph.insert_before(node, copy)
        new = copy.outputs[0]
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name, new.name = None, name
    new.metadata_props.update(old.metadata_props)


CONTRIBUTED_BODIES = {
    key for key in BODIES if key[0] == CONTRIBUTED or key[1] == "SimplifiedLayerNormalization"
}


def write_out_einsum(model: ir.Model) -> bool:
    """Rewrite every Einsum of the main graph with static shapes."""
    return expand_functions(model, lambda node: node.op_type == "Einsum" and not node.domain)


def write_out_contributed(model: ir.Model) -> bool:
    """Rewrite ONNX Runtime's own ops, which its optimizer and its quantizer write, in ONNX's."""
    return expand_functions(model, lambda node: (node.domain, node.op_type) in CONTRIBUTED_BODIES)
