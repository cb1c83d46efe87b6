"""Shape inference with constant propagation.

ONNX's inference is called for one node at a time; nodes with constant inputs are evaluated by ONNX Runtime,
so that the chains by which exporters compute shapes (Shape, Gather, Concat, Reshape) become constants. Shapes
declared for intermediate values are ignored, because exporters leave them stale.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx.defs
import onnx.shape_inference
import onnx_ir as ir

from edgekit.compiler.model import node_checks
from edgekit.compiler.model.contributed_shapes import infer_contributed
from edgekit.compiler.model.ml_shapes import ML_DOMAIN, infer_ml_shapes
from edgekit.compiler.model.node_checks import complaint, node_label, reshape_complaint, static_dims
from edgekit.compiler.model.node_evaluation import NON_DETERMINISTIC, attribute_protos, evaluate_node
from edgekit.compiler.model.size_checks import correct_shape, size_complaint
from edgekit.compiler.model.value_checks import LETHAL, value_complaint
from edgekit.compiler.model.work_budget import check_time, computed_limit
from edgekit.errors import ModelError
from edgekit.tensor_spec import Array

SMALL_BYTES = 64 * 1024
"""Values up to this size are computed if all inputs are constant. Shapes need a few dozen bytes."""

# ONNX has no inference for these; the output has the input's type and shape.
_LIKE_INPUT = frozenset({"GroupNormalization", "MeanVarianceNormalization"})

# Folding these would dequantize weights, or is not deterministic.
_NEVER_EVALUATED = NON_DETERMINISTIC | {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"}


@dataclass
class Inferred:
    """Results of inference other than types and shapes.

    Attributes:
        constants: Values that are constant; without initializers.
        impossible: Branches of an If that are invalid for the shapes of this model, and why.
    """

    constants: dict[ir.Value, Array] = field(default_factory=dict)
    impossible: dict[ir.Graph, str] = field(default_factory=dict)


@dataclass
class _Walk:
    opsets: dict[str, int]
    limit_bytes: int
    growth: float
    computed_limit: int
    computed_bytes: int = 0
    inferred: Inferred = field(default_factory=Inferred)
    types: dict[ir.Value, onnx.TypeProto] = field(default_factory=dict)
    evaluated: dict[Hashable, list[Array]] = field(default_factory=dict)
    sources: dict[ir.Value, ir.Value | None] = field(default_factory=dict)


def infer_shapes(model: ir.Model, limit_bytes: int = SMALL_BYTES, growth: float = 0.0) -> Inferred:
    """Set type and shape of every value of the model, in place.

    The inputs' shapes are static. Values with data-dependent shapes (NonZero, NonMaxSuppression), or from ops
    that ONNX does not define, keep the declared shape, or have none.

    Args:
        model: Sorted model without functions.
        limit_bytes: Largest constant to compute, in bytes.
        growth: Larger constants are computed if at most this multiple of the size of the node's inputs.

    Raises:
        InvalidNodeError: a node of the main graph is invalid for its input shapes or types, or all branches
            of an If are (a single invalid branch is not an error: it is never taken).
        ModelError: the work exceeds the budget (edgekit/compiler/model/work_budget.py).
    """
    weights = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value)
    walk = _Walk(dict(model.graph.opset_imports), limit_bytes, growth, computed_limit(weights))
    _infer_graph(model.graph, walk, strict=True)
    return walk.inferred


def known_array(value: ir.Value | None, constants: dict[ir.Value, Array]) -> Array | None:
    if value is None:
        return None
    if value in constants:
        return constants[value]
    if value.is_initializer() and value.const_value is not None and not value.is_graph_input():
        return value.const_value.numpy()
    return _without_elements(value)


def _without_elements(value: ir.Value) -> Array | None:
    dims = static_dims(value)
    if dims is None or 0 not in dims or value.dtype in (None, ir.DataType.STRING):
        return None
    assert value.dtype is not None
    return np.empty(dims, value.dtype.numpy())


def _infer_graph(graph: ir.Graph, walk: _Walk, strict: bool) -> None:
    for value in graph.initializers.values():
        if value.const_value is not None:
            value.type = ir.TensorType(value.const_value.dtype)
            value.shape = ir.Shape(value.const_value.shape.numpy())
    for node in graph:
        opset = walk.opsets.get(node.domain)
        schema = _schema(node, opset)
        check_time("inferring its shapes")
        if schema is None:
            arrays = [known_array(value, walk.inferred.constants) for value in node.inputs]
            infer_contributed(node, walk.opsets, arrays)
            continue  # of other custom ops only the declared shapes are available
        problem = complaint(node, schema)
        if problem is None and node.op_type == "If":
            problem = _infer_if(node, walk)
        elif problem is None and any(a.type == ir.AttributeType.GRAPH for a in node.attributes.values()):
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    _infer_graph(attribute.as_graph(), walk, strict=False)
            if node.op_type == "Scan" and (opset or 0) >= 9:
                _infer_scan(node, walk)
        elif problem is None and node.op_type == "Constant":
            _infer_constant(node, walk)
        elif problem is None:
            problem = _infer_node(node, schema, opset or 0, walk)
        if problem is not None:
            text = f"{node_label(node, opset)}: {problem}"
            if strict or (node.op_type in LETHAL and not node.domain):
                raise node_checks.InvalidNodeError(text, node)
            walk.inferred.impossible.setdefault(graph, text)
            for output in node.outputs:
                output.shape = None


def _schema(node: ir.Node, opset: int | None) -> onnx.defs.OpSchema | None:
    if opset is None:
        return None
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, node.domain)
    except onnx.defs.SchemaError:
        return None
    return None if schema.deprecated else schema


def _infer_constant(node: ir.Node, walk: _Walk) -> None:
    tensor = constant_tensor(node)
    if tensor is None:
        return
    output = node.outputs[0]
    output.type = ir.TensorType(tensor.dtype)
    output.shape = ir.Shape(tensor.shape.numpy())
    if tensor.dtype != ir.DataType.STRING:
        walk.inferred.constants[output] = tensor.numpy()


def constant_tensor(node: ir.Node) -> ir.TensorProtocol | None:
    """Return the tensor of a Constant node, from any of its attributes; None if it has none."""
    for name, attribute in node.attributes.items():
        match name:
            case "value":
                return attribute.as_tensor()
            case "value_int":
                return ir.tensor(attribute.as_int(), dtype=ir.DataType.INT64)
            case "value_ints":
                return ir.tensor(list(attribute.as_ints()), dtype=ir.DataType.INT64)
            case "value_float":
                return ir.tensor(attribute.as_float(), dtype=ir.DataType.FLOAT)
            case "value_floats":
                return ir.tensor(list(attribute.as_floats()), dtype=ir.DataType.FLOAT)
    return None


def _infer_if(node: ir.Node, walk: _Walk) -> str | None:
    branches = [node.attributes[name].as_graph() for name in ("then_branch", "else_branch")]
    condition = known_array(node.inputs[0], walk.inferred.constants)
    if condition is not None and condition.size == 1:
        branches = branches[:1] if condition.item() else branches[1:]
    for branch in branches:
        _infer_graph(branch, walk, strict=False)
    impossible = walk.inferred.impossible
    possible = [branch for branch in branches if branch not in impossible]
    if not possible:
        return "neither of its branches is valid: " + "; ".join(impossible[branch] for branch in branches)
    for index, output in enumerate(node.outputs):
        ends = [branch.outputs[index] for branch in possible if index < len(branch.outputs)]
        shapes = {static_dims(end) for end in ends}
        if ends and ends[0].type is not None:
            output.type = ends[0].type
        only = shapes.pop() if len(shapes) == 1 else None
        output.shape = None if only is None else ir.Shape(only)
        array = known_array(ends[0], walk.inferred.constants) if len(possible) == 1 and ends else None
        if array is not None:
            walk.inferred.constants[output] = array
    return None


def _infer_scan(node: ir.Node, walk: _Walk) -> None:
    """Infer the outputs of a Scan along first axes, by its body for this node's input shapes: declared shapes
    are often dynamic (skl2onnx's nearest neighbours). Known output shapes are kept."""
    if all(static_dims(output) is not None for output in node.outputs):
        return
    axes = ("scan_input_axes", "scan_output_axes")
    if any(any(node.attributes[name].as_ints()) for name in axes if name in node.attributes):
        return
    dims = [static_dims(value) for value in node.inputs]
    states = len(node.inputs) - node.attributes["num_scan_inputs"].as_int()
    body = node.attributes["body"].as_graph().clone(allow_outer_scope_values=True)
    if not 0 <= states < len(dims) or None in dims or any(not shape for shape in dims[states:]):
        return
    if len(body.inputs) != len(dims) or len(body.outputs) != len(node.outputs):
        return
    for k, (value, source) in enumerate(zip(body.inputs, node.inputs, strict=True)):
        value.type = source.type if source is not None else value.type
        value.shape = ir.Shape((dims[k] or ())[0 if k < states else 1 :])
    _infer_graph(body, walk, strict=False)
    for k, (output, result) in enumerate(zip(node.outputs, body.outputs, strict=True)):
        output_dims = static_dims(result)
        if output_dims is not None and static_dims(output) is None:
            output.type = output.type or result.type
            output.shape = ir.Shape(output_dims if k < states else ((dims[-1] or ())[0], *output_dims))


def _infer_node(node: ir.Node, schema: onnx.defs.OpSchema, opset: int, walk: _Walk) -> str | None:
    names = ["" if value is None else f"i{k}" for k, value in enumerate(node.inputs)]
    arrays = [known_array(value, walk.inferred.constants) for value in node.inputs]
    if wrong := value_complaint(node, arrays, opset):
        return wrong
    if node.op_type == "STFT" and "onesided" not in node.attributes:  # ONNX's inference has another default
        node.attributes["onesided"] = ir.AttrInt64("onesided", 1)
    if node.domain == ML_DOMAIN:
        done, wrong = infer_ml_shapes(node)
        if done:
            return wrong or size_complaint(node)
    if node.op_type == "Range" and not node.domain and _infer_range(node, arrays):
        _evaluate(node, opset, arrays, walk)
        return None
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for name, value, array in zip(names, node.inputs, arrays, strict=True):
        if value is None:
            continue
        if value.type is None:
            return None  # produced by a custom op
        types[name] = _type_proto(value, walk)
        if array is not None and array.size <= 1024 and array.dtype.kind in "iuf":
            data[name] = onnx.numpy_helper.from_array(array, name)
    proto = onnx.NodeProto(op_type=node.op_type, input=names, domain=node.domain)
    proto.output.extend(f"o{k}" for k in range(len(node.outputs)))
    proto.attribute.extend(attribute_protos(node))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in walk.opsets.items()]
    try:
        known_types = onnx.shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=imports
        )
    except onnx.shape_inference.InferenceError as problem:
        return _plain(str(problem))
    except Exception as problem:  # C++ errors have several types
        return _plain(str(problem))
    if node.op_type in _LIKE_INPUT and not node.domain and "i0" in types:
        known_types["o0"] = types["i0"]
    for k, output in enumerate(node.outputs):
        inferred_type = known_types.get(f"o{k}")
        if inferred_type is None:
            continue
        output.type = ir.serde.deserialize_type_proto_for_type(inferred_type)
        output.shape = ir.serde.deserialize_type_proto_for_shape(inferred_type)
    correct_shape(node, arrays)
    if wrong := size_complaint(node):
        for output in node.outputs:
            output.shape = None
        return wrong
    if node.op_type == "Reshape":
        source, target = static_dims(node.inputs[0]), static_dims(node.outputs[0])
        if source is not None and (problem_text := reshape_complaint(source, target)):
            return problem_text
    _evaluate(node, opset, arrays, walk)
    return None


def _infer_range(node: ir.Node, arrays: list[Array | None]) -> bool:
    """Infer the length of a Range of constants, which ONNX infers only for scalars.

    ONNX's own functions (AffineGrid, HannWindow) contain ranges of one-element vectors, which engines accept.
    """
    if any(array is None or array.size != 1 for array in arrays):
        return False
    start, limit, delta = (np.asarray(array).reshape(()).item() for array in arrays)
    if delta == 0 or not all(math.isfinite(number) for number in (start, limit, delta)):
        return False
    assert node.inputs[0] is not None
    node.outputs[0].type = node.inputs[0].type
    node.outputs[0].shape = ir.Shape([max(math.ceil((limit - start) / delta), 0)])
    return True


def _evaluate(node: ir.Node, opset: int, arrays: list[Array | None], walk: _Walk) -> None:
    empty = [_without_elements(output) for output in node.outputs]
    if all(array is not None for array in empty):
        walk.inferred.constants.update(
            {output: array for output, array in zip(node.outputs, empty, strict=True) if array is not None}
        )
        return
    if node.domain or node.op_type in _NEVER_EVALUATED:
        return
    if node.op_type == "Shape" and (dims := static_dims(node.inputs[0])) is not None:
        start = node.attributes["start"].as_int() if "start" in node.attributes else 0
        end = node.attributes["end"].as_int() if "end" in node.attributes else len(dims)
        walk.inferred.constants[node.outputs[0]] = np.array(dims[start:end], np.int64)
        return
    if any(array is None and value is not None for array, value in zip(arrays, node.inputs, strict=True)):
        return
    if node.op_type == "Identity" and arrays[0] is not None:
        walk.inferred.constants[node.outputs[0]] = arrays[0]
        walk.sources[node.outputs[0]] = _source(node.inputs[0], walk)
        return
    # Layers that share a weight transpose or reshape it once each: the result is computed and held once.
    computation = _computation(node, opset, walk)
    if (equal := walk.evaluated.get(computation)) is not None:
        for output, array in zip(node.outputs, equal, strict=True):
            walk.inferred.constants[output] = array
            output.shape = ir.Shape(array.shape)
        return
    input_bytes = sum(array.nbytes for array in arrays if array is not None)
    bound = max(walk.limit_bytes, int(input_bytes * walk.growth))
    total = 0
    for output in node.outputs:
        if not isinstance(output.type, ir.TensorType) or output.type.dtype == ir.DataType.STRING:
            return
        elements = _most_elements(node, output)
        if elements is None:
            return
        total += math.ceil(elements * output.type.dtype.itemsize)
    if total > bound:
        return
    walk.computed_bytes += total
    if walk.computed_bytes > walk.computed_limit:
        raise ModelError(
            f"{node_label(node, opset)}: the constants computed so far take more than "
            f"{walk.computed_limit / 2**20:.0f} MiB; store them as weights, or compute them from the inputs"
        )
    results = evaluate_node(node, arrays, opset)
    if results is not None:
        walk.evaluated[computation] = results
        for output, array in zip(node.outputs, results, strict=True):
            walk.inferred.constants[output] = array
            output.shape = ir.Shape(array.shape)


def _computation(node: ir.Node, opset: int, walk: _Walk) -> Hashable:
    """Return a key that is equal for nodes that compute the same from the same values."""
    constants = walk.inferred.constants
    read = [_source(value, walk) for value in node.inputs]
    operands = tuple(0 if value is None else id(constants.get(value, value)) for value in read)
    attributes = tuple(proto.SerializeToString(deterministic=True) for proto in attribute_protos(node))
    return node.op_type, opset, len(node.outputs), attributes, operands


def _source(value: ir.Value | None, walk: _Walk) -> ir.Value | None:
    return value if value is None else walk.sources.get(value, value)


def _most_elements(node: ir.Node, output: ir.Value) -> int | None:
    """Return the number of elements of an output, or an upper bound if data-dependent; None if unknown."""
    dims, source = static_dims(output), static_dims(node.inputs[0]) if node.inputs else None
    if dims is not None:
        return math.prod(dims)
    if source is None or node.op_type not in ("NonZero", "Compress", "Unique"):
        return None
    return math.prod(source) * (len(source) if node.op_type == "NonZero" else 1)


def _type_proto(value: ir.Value, walk: _Walk) -> onnx.TypeProto:
    if value not in walk.types:
        assert value.type is not None
        proto = ir.serde.serialize_type(value.type)
        if value.shape is not None:
            ir.serde.serialize_shape_into(proto, value.shape)
        walk.types[value] = proto
    return walk.types[value]


def _plain(text: str) -> str:
    """Return ONNX's error message without its tags.

    >>> _plain("(op_type:Concat): [ShapeInferenceError] axis must be in [-rank, rank-1].")
    'axis must be in [-rank, rank-1].'
    """
    for tag in ("[ShapeInferenceError]", "[TypeInferenceError]"):
        text = text.rpartition(tag)[2]
    return " ".join(text.split())
