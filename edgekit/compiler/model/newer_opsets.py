"""Reads models of opsets that are newer than the engines' kernels, or newer than EdgeKit.

    opset 28, all ops as in opset 25   =>  opset 25: engines lack kernels for new versions of old ops
    SwiGLU(a, b) [28]                  =>  Mul(Swish(a), b): ONNX's function, whose parts engines have
    opset 31, newer than any known     =>  opset 28, if opset 28 has all its ops, attributes and inputs

The schemas of onnx 1.23.2 at 23 to 28 were compared by program (attributes, inputs, types, texts). Besides
new ops, attributes and types, two definitions change:

    28  Mod: floats with fmod=0, which was for integers only
    28  BitShift: a shift by the width of the type or more, which was undefined; signed integers
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

from edgekit.compiler.model.rewriting import PART_OF, int_of, new_node, node_name, put_before, replace_node
from edgekit.compiler.model.untrusted import owners_of
from edgekit.errors import ModelError

NEWEST_OPSET = 28
OLDEST_RESTATED = 27
"""Models of this opset and later ones are restated in an older one if it has their ops."""
_FIRST = 23
_MEANINGS = {"BitShift": 28}
"""Op -> the opset that changed its definition, whatever its attributes."""


def newest_known() -> int:
    """Return the newest opset that both EdgeKit and the installed onnx know."""
    return min(NEWEST_OPSET, onnx.defs.onnx_opset_version())


def read_as_known(proto: onnx.ModelProto, version: int) -> str:
    """Relabel a model of an opset newer than EdgeKit knows, in place. Return the assumption, as text.

    Raises:
        ModelError: an op, an attribute or a number of inputs that the newest known opset does not have.
    """
    newest = newest_known()
    for node in (node for owner in owners_of(proto) for node in owner.node):
        problem = None if node.domain not in ("", "ai.onnx") else _unknown_form(node, newest)
        if problem is not None:
            raise ModelError(
                f"node {node.name or node.output[0]} ({node.op_type}, opset {version}): {problem}; export "
                f"the model with opset {newest} or older"
            )
    for entry in [*proto.opset_import, *(e for f in proto.functions for e in f.opset_import)]:
        if entry.domain in ("", "ai.onnx") and entry.version > newest:
            entry.version = newest
    return f"opset {version} is newer than EdgeKit knows; its operators are read as those of opset {newest}"


def _unknown_form(node: onnx.NodeProto, opset: int) -> str | None:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return f"it is not an operator of opset {opset}, the newest that EdgeKit knows"
    if schema.deprecated:
        return f"it is deprecated since opset {schema.since_version}"
    unknown = next((a.name for a in node.attribute if a.name not in schema.attributes), None)
    if unknown is not None:
        return f"it has no attribute {unknown} in opset {opset}, the newest that EdgeKit knows"
    if len(node.input) > schema.max_input or len(node.output) > schema.max_output:
        return f"it has more inputs or outputs than in opset {opset}, the newest that EdgeKit knows"
    return None


def restate(model: ir.Model) -> bool:
    """Relabel a model of opset 27 or later with the oldest opset from 23 on that has the same form of every
    op, in place. Types must be inferred.
    """
    version = model.graph.opset_imports.get("", 0)
    if version < OLDEST_RESTATED:
        return False
    for node in list(model.graph.all_nodes()):
        if node.op_type == "SwiGLU" and not node.domain:
            _write_out_swiglu(model, node)
    nodes = [node for node in model.graph.all_nodes() if node.domain in ("", "ai.onnx")]
    for opset in range(_FIRST, version):
        if all(is_same_form(node, opset, version) for node in nodes):
            for node in nodes:
                for name in _idle_attributes(node, opset):
                    node.attributes.pop(name)
            model.graph.opset_imports[""] = opset
            ids = [onnx.helper.make_opsetid("", opset)]
            model.ir_version = min(model.ir_version or 4, onnx.helper.find_min_ir_version_for(ids))
            return True
    return False


def is_same_form(node: ir.Node, opset: int, version: int) -> bool:
    """Return whether an older opset defines a node of opset ``version`` alike.

    Compared are the op, its attributes, its number of inputs, its element types and, if the definition
    changed, its meaning.
    """
    try:
        schema = onnx.defs.get_schema(node.op_type, opset)
        if schema.since_version == onnx.defs.get_schema(node.op_type, version).since_version:
            return True
    except onnx.defs.SchemaError:
        return False
    if opset < _MEANINGS.get(node.op_type, 0) or (opset < 28 and is_float_mod(node)):
        return False
    if set(node.attributes) - set(schema.attributes) - set(_idle_attributes(node, opset)):
        return False
    if len(node.inputs) > schema.max_input:
        return False
    return _takes(node.inputs, schema.inputs) and _takes(node.outputs, schema.outputs)


def is_float_mod(node: ir.Node) -> bool:
    kind = node.inputs[0].dtype if node.op_type == "Mod" and node.inputs[0] is not None else None
    return kind is not None and kind.is_floating_point() and not int_of(node, "fmod", 0)


def _idle_attributes(node: ir.Node, opset: int) -> list[str]:
    """Return the attributes that came after this opset and have no effect on this node."""
    if node.op_type == "SpaceToDepth" and opset < 28:
        mode = node.attributes.get("mode")
        return ["mode"] if mode is not None and mode.as_string() == "DCR" else []
    halves = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
    if node.op_type == "Range" and opset < 27 and "stash_type" in node.attributes:
        return ["stash_type"] if node.outputs[0].dtype not in halves else []
    return []


def _takes(values: Sequence[ir.Value | None], formals: Sequence[onnx.defs.OpSchema.FormalParameter]) -> bool:
    """Return whether the schema's parameters take the values' types; the last one may be variadic."""
    for index, value in enumerate(values):
        if value is None or value.type is None:
            continue
        types = formals[min(index, len(formals) - 1)].types if formals else ()
        if (
            not isinstance(value.type, ir.TensorType)
            or f"tensor({value.type.dtype.name.lower()})" not in types
        ):
            return False
    return True


def _write_out_swiglu(model: ir.Model, node: ir.Node) -> None:
    """SwiGLU(a, b) = Swish(a) * b, ONNX SwiGLU-28."""
    gate, linear = node.inputs
    if gate is None or gate.dtype is None or gate.shape is None or not gate.shape.is_static():
        return
    alpha = {"alpha": node.attributes["alpha"].as_float()} if "alpha" in node.attributes else {}
    swish = put_before(model, node, "Swish", [gate], gate.shape.numpy(), "Swish", gate.dtype, **alpha)
    producer = swish.producer()
    assert producer is not None
    producer.metadata_props[PART_OF] = node_name(node)
    replace_node(node, new_node(node, "Mul", [swish, linear]))
