"""What is checked of an ONNX file before anything is made of it: a few hostile bytes must not cost memory or
time.

Works on the protobuf as parsed, which holds no more than the file's own bytes. Everything later may rely on:
every tensor's dimensions are its data's; names are defined once and before use is possible; functions end.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir

from edgekit.errors import ModelError

MAX_BYTES = 2**31 - 1
"""protobuf's own limit on one message; a model and its external data become one message."""
MAX_RANK = 16
MAX_ELEMENTS = 2**40
MAX_NODES = 200_000
MAX_DEPTH = 16

_DATA_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
# onnx.proto says which field carries which type; sub-byte types count packed pairs in int32_data.
_FIELD_OF_TYPE = {
    "FLOAT": "float_data", "COMPLEX64": "float_data", "DOUBLE": "double_data", "COMPLEX128": "double_data",
    "INT64": "int64_data", "UINT32": "uint64_data", "UINT64": "uint64_data", "STRING": "string_data",
}  # fmt: skip


def check_model(proto: onnx.ModelProto, folder: Path) -> None:
    """Check the protobuf and bring external data into it.

    Args:
        proto: As parsed; tensors with external data get it inline.
        folder: The folder of the file: the only one that external data may come from.

    Raises:
        ModelError: the first thing that is not right.
    """
    if not proto.HasField("graph") or not proto.opset_import or proto.ir_version < 3:
        raise ModelError("it is not an ONNX model: it has no graph, no opset or no IR version 3 or later")
    count = 0
    external_bytes = 0
    graphs = [(proto.graph, 0)]
    functions = {(f.domain, f.name): f for f in proto.functions}
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
        owners += [(graph, depth + 1) for node in owner.node for graph in _subgraphs(node)]
        for tensor in _tensors(owner):
            external_bytes += _check_tensor(tensor, folder, external_bytes)
    _check_functions(proto, functions)
    _check_names(proto.graph, frozenset())


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensors(owner: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.TensorProto]:
    if isinstance(owner, onnx.GraphProto):
        yield from owner.initializer
        if owner.sparse_initializer:
            raise ModelError("it has sparse weights, which EdgeKit does not read; export them dense")
    for node in owner.node:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise ModelError(
                    f"node {node.name or node.op_type}: has a sparse tensor, which EdgeKit does not read"
                )
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def _check_tensor(tensor: onnx.TensorProto, folder: Path, external_bytes: int) -> int:
    """Check one tensor, and return how many bytes of external data came into it."""
    label = f"weight {tensor.name}" if tensor.name else "a constant"
    dims = list(tensor.dims)
    if len(dims) > MAX_RANK or any(d < 0 for d in dims) or math.prod(dims) > MAX_ELEMENTS:
        raise ModelError(f"{label}: its dimensions {dims[:MAX_RANK]} cannot be")
    try:
        dtype = ir.DataType(tensor.data_type)
    except ValueError:
        raise ModelError(f"{label}: its element type {tensor.data_type} does not exist") from None
    if dtype == ir.DataType.UNDEFINED:
        raise ModelError(f"{label}: its element type is not given")
    elements = math.prod(dims)
    if dtype == ir.DataType.STRING:
        if len(tensor.string_data) != elements or tensor.data_location == onnx.TensorProto.EXTERNAL:
            raise ModelError(f"{label}: {elements} strings are declared, {len(tensor.string_data)} are there")
        return 0
    size = (elements * dtype.bitwidth + 7) // 8
    read = 0
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        if external_bytes + size > MAX_BYTES:
            raise ModelError("its external data is over 2 GB, which is more than EdgeKit takes")
        tensor.raw_data = _external_data(tensor, label, folder, size)
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        read = size
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != size:
            raise ModelError(
                f"{label}: {dims} {dtype.name.lower()} needs {size} bytes, {len(tensor.raw_data)} are there"
            )
        return read
    want = _FIELD_OF_TYPE.get(dtype.name, "int32_data")
    for name in _DATA_FIELDS:
        if name != want and len(getattr(tensor, name)):
            raise ModelError(f"{label}: is {dtype.name.lower()}, its data is in {name}")
    per_value = {"COMPLEX64": 2, "COMPLEX128": 2}.get(dtype.name, 1)
    there = len(getattr(tensor, want))
    needed = size if dtype.bitwidth < 8 else elements * per_value
    if there != needed:
        raise ModelError(f"{label}: {dims} {dtype.name.lower()} needs {needed} values, {there} are there")
    return read


def _external_data(tensor: onnx.TensorProto, label: str, folder: Path, size: int) -> bytes:
    """Read external data from a plain file beside the model."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    # Checked as text for both path styles: the same model must be refused everywhere.
    if not location or location in {".", ".."} or any(c in location for c in "/\\:\0"):
        raise ModelError(
            f"{label}: its data is in {location!r};"
            " EdgeKit reads external data only from a plain file name beside the model"
        )
    try:
        offset = int(entries.get("offset", "0") or "0")
        length = int(entries.get("length", str(size)) or str(size))
    except ValueError:
        raise ModelError(f"{label}: its offset or length in {location} is not a number") from None
    if length != size or offset < 0:
        raise ModelError(f"{label}: needs {size} bytes, {length} at {offset} of {location} are declared")
    path = folder / location
    try:
        # O_NOFOLLOW: a link could point at any file of this machine, and the bundle would carry it off.
        handle = os.open(
            path,
            os.O_RDONLY
            | getattr(os, "O_NOFOLLOW", 0)
            | getattr(os, "O_BINARY", 0)
            | getattr(os, "O_NONBLOCK", 0),
        )
    except OSError as problem:
        raise ModelError(
            f"{label}: its data is in {location}, which cannot be read beside the model ({problem.strerror})"
        ) from None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or path.is_symlink():
            raise ModelError(f"{label}: its data is in {location}, which is not a plain file")
        if offset + size > status.st_size:
            raise ModelError(
                f"{label}: needs bytes {offset} to {offset + size} of {location}, which has {status.st_size}"
            )
        file.seek(offset)
        return file.read(size)


def _check_functions(proto: onnx.ModelProto, functions: dict[tuple[str, str], onnx.FunctionProto]) -> None:
    """Functions are expanded where they are called: they may not call themselves, nor multiply into
    millions."""
    sizes: dict[tuple[str, str], int] = {}
    open_calls: set[tuple[str, str]] = set()

    def expanded(nodes: Iterator[onnx.NodeProto]) -> int:
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            total += size_of(key) if key in functions else 1
            for graph in _subgraphs(node):
                total += expanded(iter(graph.node))
            if total > MAX_NODES:
                raise ModelError(f"its functions expand to more than {MAX_NODES} nodes")
        return total

    def size_of(key: tuple[str, str]) -> int:
        if key in open_calls:
            raise ModelError(f"function {key[0]}::{key[1]} calls itself")
        if len(open_calls) > MAX_DEPTH:
            raise ModelError(f"functions are nested more than {MAX_DEPTH} deep")
        if key not in sizes:
            open_calls.add(key)
            sizes[key] = expanded(iter(functions[key].node))
            open_calls.discard(key)
        return sizes[key]

    expanded(iter(proto.graph.node))


def _check_names(graph: onnx.GraphProto, outer: frozenset[str]) -> None:
    weights = [tensor.name for tensor in graph.initializer]
    defined = set(weights)
    if len(defined) != len(weights) or "" in defined:
        raise ModelError("two of its weights have the same name, or one has none")
    inputs = [value.name for value in graph.input]
    if len(set(inputs)) != len(inputs) or "" in inputs:
        raise ModelError("two of its inputs have the same name, or one has none")
    defined |= set(inputs)
    for node in graph.node:
        if not node.op_type:
            raise ModelError(f"node {node.name or 'without name'} has no op")
        for name in node.output:
            if name and name in defined:
                raise ModelError(f"value {name} is made twice, by node {node.name or node.op_type} again")
            defined.add(name)
    visible = outer | defined
    for node in graph.node:
        for name in node.input:
            if name and name not in visible:
                raise ModelError(
                    f"node {node.name or node.op_type}: its input {name}"
                    " is neither an input, a weight nor made by a node"
                )
        attributes = [attribute.name for attribute in node.attribute]
        if len(set(attributes)) != len(attributes):
            raise ModelError(f"node {node.name or node.op_type}: an attribute is given twice")
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                raise ModelError(
                    f"node {node.name or node.op_type}: attribute {attribute.name}"
                    " refers to a function's, outside of one"
                )
        for subgraph in _subgraphs(node):
            _check_names(subgraph, visible)
    outputs = [value.name for value in graph.output]
    if not outputs and not outer:
        raise ModelError("it has no outputs")
    for name in outputs:
        if name not in visible:
            raise ModelError(f"output {name} is not made by any node")
    if len(set(outputs)) != len(outputs):
        raise ModelError("two of its outputs have the same name")
