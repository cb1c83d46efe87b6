"""Checks of an untrusted ONNX file before it is processed, so that hostile files cannot exhaust memory or
time.

They work on the parsed protobuf, which is no larger than the file. Later code may rely on: tensor data
matches its dimensions; names are unique and defined; functions do not recurse.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from edgekit.compiler.model.work_budget import MADE_NODES, take_nodes
from edgekit.errors import ModelError
from edgekit.system.formats.plain_text import shortened
from edgekit.system.regular_file import followed, open_regular

MAX_BYTES = 2**31 - 1
"""protobuf's limit on one message; a model and its external data become one message."""
MAX_RANK = 16
"""Most dimensions of a value; engines support about 8, numpy 64."""
MAX_ELEMENTS = 2**40
MAX_NODES = 200_000
MAX_DEPTH = 16
MAX_FUNCTIONS = 10_000
MAX_ENDS = 4096
"""Most inputs or outputs of one node or of the model: replacing all of them one by one is quadratic."""

_DATA_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
# onnx.proto says which field carries which type; sub-byte types count packed pairs in int32_data.
_FIELD_OF_TYPE = {
    "FLOAT": "float_data", "COMPLEX64": "float_data", "DOUBLE": "double_data", "COMPLEX128": "double_data",
    "INT64": "int64_data", "UINT32": "uint64_data", "UINT64": "uint64_data", "STRING": "string_data",
}  # fmt: skip


def check_model(proto: onnx.ModelProto, folder: Path) -> None:
    """Check the protobuf and load its external data.

    Args:
        proto: Parsed model; external data becomes inline data.
        folder: Folder of the file. External data is read from this folder only.

    Raises:
        ModelError: the first problem found.
    """
    if not proto.HasField("graph") or not proto.opset_import or proto.ir_version < 3:
        raise ModelError("it is not an ONNX model: it has no graph, no opset or no IR version 3 or later")
    if len(proto.functions) > MAX_FUNCTIONS:
        raise ModelError(f"it has {len(proto.functions)} functions; at most {MAX_FUNCTIONS} are supported")
    _drop_unused_fields(proto)
    if any(not isinstance(entry.domain, str) for entry in proto.opset_import):
        raise ModelError("it imports an opset whose domain is not valid text")
    count = 0
    external_bytes = 0
    graphs = [(proto.graph, 0)]
    functions = _called_functions(proto)
    owners: list[tuple[onnx.GraphProto | onnx.FunctionProto, int]] = [
        *graphs,
        *((f, 0) for f in proto.functions),
    ]
    while owners:
        owner, depth = owners.pop()
        if depth > MAX_DEPTH:
            raise ModelError(f"subgraphs are nested more than {MAX_DEPTH} deep")
        count += len(owner.node)
        if count > MAX_NODES:
            raise ModelError(f"it has more than {MAX_NODES} nodes")
        _check_text(owner)
        owners += [(graph, depth + 1) for node in owner.node for graph in subgraphs_of(node)]
        for tensor in _tensors(owner):
            external_bytes += _check_tensor(tensor, folder, external_bytes)
    _check_functions(proto, functions)
    for function in proto.functions:
        _check_nodes(function.node, set(function.input), frozenset(), inside_function=True)
    _check_names(proto.graph, frozenset())


def _drop_unused_fields(proto: onnx.ModelProto) -> None:
    """Remove fields that no engine needs: the exporter's name, doc strings, training graphs."""
    for name in ("producer_name", "producer_version", "doc_string", "metadata_props", "training_info"):
        proto.ClearField(name)
    owners: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    for owner in owners:
        owner.ClearField("doc_string")
        owner.ClearField("metadata_props")
        if isinstance(owner, onnx.GraphProto):
            owner.ClearField("quantization_annotation")
        for node in owner.node:
            node.ClearField("doc_string")
            node.ClearField("metadata_props")


def _check_text(owner: onnx.GraphProto | onnx.FunctionProto) -> None:
    """Reject text that is not UTF-8, which protobuf returns as bytes."""
    texts: list[object] = [owner.name]
    for node in owner.node:
        texts += [node.name, node.op_type, node.domain, *node.input, *node.output]
        texts += [text for a in node.attribute for text in (a.name, a.ref_attr_name)]
    if isinstance(owner, onnx.GraphProto):
        texts += [tensor.name for tensor in owner.initializer]
        for value in [*owner.input, *owner.output, *owner.value_info]:
            texts += [value.name, *(dim.dim_param for dim in value.type.tensor_type.shape.dim)]
    else:
        texts += [owner.domain, *owner.input, *owner.output, *owner.attribute]
    broken = next((text for text in texts if not isinstance(text, str)), None)
    if broken is not None:
        raise ModelError(f"it contains a name that is not valid UTF-8: {str(broken)[:60]}")


def subgraphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensors(owner: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    if isinstance(owner, onnx.GraphProto):
        yield from owner.initializer
        if owner.sparse_initializer:
            raise ModelError("it has sparse weights, which are not supported; export them as dense weights")
    for node in owner.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise ModelError(
                    f"node {node.name or node.op_type}: has a sparse tensor, which is not supported"
                )
            for kind, field in ((onnx.AttributeProto.TENSOR, "t"), (onnx.AttributeProto.GRAPH, "g")):
                if attribute.type == kind and not attribute.HasField(field):
                    raise ModelError(f"node {node.name or node.op_type}: attribute {attribute.name} is empty")
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _check_tensor(tensor: onnx.TensorProto, folder: Path, external_bytes: int) -> int:
    label = f"weight {tensor.name}" if tensor.name else "a constant"
    dims = list(tensor.dims)
    if len(dims) > MAX_RANK or any(d < 0 for d in dims) or math.prod(dims) > MAX_ELEMENTS:
        raise ModelError(f"{label}: its dimensions {dims[:MAX_RANK]} are not valid")
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        raise ModelError(f"{label}: its element type {tensor.data_type} is not defined by ONNX") from None
    if dtype == ir.DataType.UNDEFINED:
        raise ModelError(f"{label}: its element type is missing")
    elements = math.prod(dims)
    if dtype == ir.DataType.STRING:
        if len(tensor.string_data) != elements or tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(
                f"{label}: {elements} strings are declared but {len(tensor.string_data)} are present"
            )
        return 0
    size = (elements * dtype.bitwidth + 7) // 8
    read = 0
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if external_bytes + size > MAX_BYTES:
            raise ModelError("its external data is larger than 2 GB, the supported maximum")
        tensor.raw_data = _external_data(tensor, label, folder, size)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        read = size
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != size:
            raise ModelError(
                f"{label}: {dims} {dtype.name.lower()} needs {size} bytes but has {len(tensor.raw_data)}"
            )
        return read
    want = _FIELD_OF_TYPE.get(dtype.name, "int32_data")
    for name in _DATA_FIELDS:
        if name != want and len(getattr(tensor, name)):
            raise ModelError(f"{label}: is {dtype.name.lower()}, which cannot be stored in {name}")
    per_value = {"COMPLEX64": 2, "COMPLEX128": 2}.get(dtype.name, 1)
    value_count = len(getattr(tensor, want))
    needed = size if dtype.bitwidth < 8 else elements * per_value
    if value_count != needed:
        raise ModelError(f"{label}: {dims} {dtype.name.lower()} needs {needed} values but has {value_count}")
    return read


def owners_of(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto | onnx.FunctionProto]:
    """Yield all that has nodes: the graph, the functions and their subgraphs."""
    owners: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph, *proto.functions]
    while owners:
        yield (owner := owners.pop())
        owners += [graph for node in owner.node for graph in subgraphs_of(node)]


def external_files(proto: onnx.ModelProto) -> list[str]:
    entries = (e for owner in owners_of(proto) for tensor in _tensors(owner) for e in tensor.external_data)
    return sorted({entry.value for entry in entries if entry.key == "location"}, key=str)


def _external_data(tensor: onnx.TensorProto, label: str, folder: Path, size: int) -> bytes:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    try:
        offset = int(entries.get("offset", "0") or "0")
        length = int(entries.get("length", str(size)) or str(size))
    except ValueError:
        raise ModelError(f"{label}: its offset or length in {location} is not a number") from None
    if length != size or offset < 0:
        raise ModelError(
            f"{label}: needs {size} bytes, but {length} at offset {offset} of {location} are declared"
        )
    try:
        return read_external_file(folder, location, offset, size)
    except ModelError as problem:
        raise ModelError(f"{label}: {problem}") from None


def read_external_file(folder: Path, name: object, offset: int, size: int | None) -> bytes:
    """Read ``size`` bytes (None: all) of a regular file of this folder.

    Raises:
        ModelError: the name contains a path, is not a regular file's, or the file is too short.
    """
    # Checked as text for both path styles, so that all systems reject the same models.
    if not isinstance(name, str) or name in {"", ".", ".."} or any(c in name for c in "/\\:\0"):
        raise ModelError(
            f"its data is in {name!r};"
            " EdgeKit reads external data only from a plain file name beside the model"
        )
    try:
        file = open_regular(followed(folder / name), follow_links=False)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ModelError(f"its data is in {name}, which cannot be read beside the model: {reason}") from None
    with file:
        file_bytes = os.fstat(file.fileno()).st_size
        if size is not None and offset + size > file_bytes:
            raise ModelError(
                f"its data is at bytes {offset} to {offset + size} of {name}, which has {file_bytes}"
            )
        if file_bytes > MAX_BYTES:
            raise ModelError(f"its data is in {name}, which is larger than 2 GB, the supported maximum")
        file.seek(offset)
        return file.read() if size is None else file.read(size)


Key = tuple[str, str, str]
"""Identifies a function: domain, name, overload (IR version 10)."""


def _called_functions(proto: onnx.ModelProto) -> dict[Key, onnx.FunctionProto]:
    """Return the functions that are called from the graph, directly or not; the others are removed from the
    model."""
    functions: dict[Key, onnx.FunctionProto] = {}
    for function in proto.functions:
        key = (function.domain, function.name, function.overload)
        if key in functions:
            raise ModelError(f"function {key[0]}::{key[1]} is defined twice")
        functions[key] = function
    called: set[Key] = set()
    owners: list[onnx.GraphProto | onnx.FunctionProto] = [proto.graph] if functions else []
    while owners:
        for node in owners.pop().node:
            owners += subgraphs_of(node)
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in called:
                called.add(key)
                owners.append(functions[key])
    if len(called) < len(functions):
        reachable = [function for key, function in functions.items() if key in called]
        del proto.functions[:]
        proto.functions.extend(reachable)
    return {(f.domain, f.name, f.overload): f for f in proto.functions}


def _check_functions(proto: onnx.ModelProto, functions: dict[Key, onnx.FunctionProto]) -> None:
    """Check that functions, which are inlined, do not recurse or expand to millions of nodes."""
    sizes: dict[Key, int] = {}
    open_calls: set[Key] = set()

    def expanded(nodes: Iterator[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type, node.overload)
            total += size_of(key) if key in functions else 1
            for graph in subgraphs_of(node):
                total += expanded(iter(graph.node))
            if total > MAX_NODES:
                break
        return total

    def size_of(key: Key) -> int:
        if key in open_calls:
            raise ModelError(f"function {key[0]}::{key[1]} calls itself")
        if len(open_calls) > MAX_DEPTH:
            raise ModelError(f"functions are nested more than {MAX_DEPTH} deep")
        if key not in sizes:
            open_calls.add(key)
            sizes[key] = expanded(iter(functions[key].node))
            open_calls.discard(key)
        return sizes[key]

    if functions and not take_nodes(expanded(iter(proto.graph.node))):
        raise ModelError(
            f"its functions expand to more than {MADE_NODES} nodes; export it with inlined functions"
        )


def _check_names(graph: onnx.GraphProto, outer: frozenset[str], inside_function: bool = False) -> None:
    if len(graph.output) > MAX_ENDS:
        raise ModelError(f"it has {len(graph.output)} outputs; at most {MAX_ENDS} are supported")
    for value in [*graph.input, *graph.output]:
        rank = len(value.type.tensor_type.shape.dim)
        if rank > MAX_RANK:
            raise ModelError(f"{value.name} has {rank} dimensions; at most {MAX_RANK} are supported")
    weights = [tensor.name for tensor in graph.initializer]
    inputs = [value.name for value in graph.input]
    for kind, names in (("weights", weights), ("inputs", inputs)):
        if "" in names:
            raise ModelError(f"one of its {kind} has no name")
        if len(set(names)) != len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise ModelError(f"two of its {kind} have the same name, {shortened(twice)}; rename one")
    visible = _check_nodes(graph.node, {*weights, *inputs}, outer, inside_function)
    outputs = [value.name for value in graph.output]
    if not outputs and not outer:
        raise ModelError("it has no outputs")
    if len(set(outputs)) != len(outputs):
        raise ModelError("two of its outputs have the same name")
    for name in outputs:
        if name not in visible - outer:
            raise ModelError(f"output {name} is not produced by any node")


def _check_nodes(
    nodes: Sequence[onnx.NodeProto], defined: set[str], outer: frozenset[str], inside_function: bool
) -> frozenset[str]:
    """Check that every value is defined once and every input is defined. Returns the defined names."""
    for node in nodes:
        if not node.op_type:
            raise ModelError(f"node {node.name or 'without name'} has no op")
        if max(len(node.input), len(node.output)) > MAX_ENDS:
            raise ModelError(
                f"node {node.name or node.op_type}: has {len(node.input)} inputs and {len(node.output)} "
                f"outputs; at most {MAX_ENDS} of each are supported"
            )
        for name in node.output:
            if name and name in defined:
                raise ModelError(
                    f"value {name} is produced twice, the second time by node {node.name or node.op_type}"
                )
            defined.add(name)
    visible = outer | defined
    for node in nodes:
        label = f"node {node.name or node.op_type}"
        for name in node.input:
            if name and name not in visible:
                raise ModelError(
                    f"{label}: its input {name} is not a graph input, a weight or the output of a node"
                )
        attributes = [attribute.name for attribute in node.attribute]
        if len(set(attributes)) != len(attributes):
            raise ModelError(f"{label}: an attribute is given twice")
        for attribute in node.attribute:
            if attribute.ref_attr_name and not inside_function:
                raise ModelError(
                    f"{label}: attribute {attribute.name} refers to a function's attribute, but the "
                    "node is not in a function"
                )
        for subgraph in subgraphs_of(node):
            _check_names(subgraph, visible, inside_function)
    return visible
