"""Reader of .tflite files into graphs: the inverse of flatbuffer.py, for untrusted files.

Later code may rely on these guarantees: the tensors' data have the size of their shapes; operators name
existing tensors, in the order in which they can run; each tensor is produced once; scales are positive, one
or one for each index of their axis; an operator's options are complete.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.tensor_spec import Array
from edgekit_tflite.graph import Graph, Op, Tensor, TensorQuantization
from edgekit_tflite.importer.element_types import DTYPES, NUMPY, SCALED
from edgekit_tflite.importer.options import options_of
from edgekit_tflite.importer.sparse import dense
from edgekit_tflite.metadata import NAME as METADATA
from edgekit_tflite.schema import NUMBERS
from edgekit_tflite.tables import DamagedFileError, Table, root_table

MAX_TENSORS = 100_000
MAX_OPERATORS = 20_000
MAX_CODES = 4096
MAX_ENDS = 4096
"""Inputs, and outputs, of one operator or of the model."""
MAX_ALL_ENDS = 1_000_000
"""Of all operators together: many may share one long vector."""
MAX_CUSTOM_BYTES = 1 << 16
"""How much of a custom operator's options is read."""
MAX_METADATA_BYTES = 16 << 20
MAX_RANK = 8
MAX_ELEMENTS = 2**40
MAX_CONSTANT_COPIES = 16
"""The constants hold at most this many times the bytes of the file: many tensors may name one buffer, and a
sparse one grows to its shape (the sparse models of MediaPipe to 6 times)."""
SMALL_BYTES = 1 << 20
"""What the constants may hold anyway."""
SCALE_BYTES = 64
"""What a scale counts as among the constants: its Python numbers."""

# The schema's tables: the fields that are read, by their slots.
MODEL_CODES, MODEL_SUBGRAPHS, MODEL_BUFFERS, MODEL_METADATA, MODEL_SIGNATURES = 1, 2, 4, 6, 7
CODE_OLD, CODE_CUSTOM, CODE_BUILTIN = 0, 1, 3
GRAPH_TENSORS, GRAPH_INPUTS, GRAPH_OUTPUTS, GRAPH_OPERATORS = 0, 1, 2, 3
TENSOR_SHAPE, TENSOR_TYPE, TENSOR_BUFFER, TENSOR_NAME, TENSOR_QUANTIZATION = 0, 1, 2, 3, 4
TENSOR_VARIABLE, TENSOR_SPARSITY, TENSOR_EXTERNAL = 5, 6, 10
QUANT_SCALE, QUANT_ZERO_POINT, QUANT_DETAILS, QUANT_AXIS = 2, 3, 4, 6
OPERATOR_CODE, OPERATOR_INPUTS, OPERATOR_OUTPUTS = 0, 1, 2
OPERATOR_CUSTOM = 5
BUFFER_DATA, BUFFER_OFFSET, BUFFER_SIZE = 0, 1, 2
METADATA_NAME, METADATA_BUFFER = 0, 1
SIGNATURE_INPUTS, SIGNATURE_OUTPUTS, SIGNATURE_GRAPH = 0, 1, 3
MAP_NAME, MAP_TENSOR = 0, 1

OPERATORS: Mapping[int, str] = {number: name for name, number in NUMBERS["BuiltinOperator"].items()}
_TOO_MUCH = f"its constants, scales and names are more than {MAX_CONSTANT_COPIES} times its own size"


@dataclass(frozen=True)
class TfliteFile:
    """Contents of a .tflite file.

    Attributes:
        graph: Its first subgraph; ``CUSTOM`` operators have ``custom_code`` and ``custom_options``.
        variables: Tensors that keep their content from one run to the next.
        signature: Tensor -> its name in the first signature of the subgraph.
    """

    graph: Graph
    variables: frozenset[int]
    signature: Mapping[int, str]
    metadata: bytes = b""


def read_file(data: bytes) -> TfliteFile:
    """Read a .tflite file.

    Raises:
        DamagedFileError: it is not a .tflite file, or is inconsistent.
        ModelError: it holds something that EdgeKit does not support.
    """
    view = memoryview(data)
    if data[4:8] != b"TFL3":
        raise DamagedFileError("bytes 4 to 8 are not TFL3: it is not a TFLite model, or is damaged")
    model = root_table(view, "the model")
    subgraphs = model.tables(MODEL_SUBGRAPHS, "subgraph", MAX_ENDS)
    if not subgraphs:
        raise DamagedFileError("it has no subgraph")
    codes = [_operator_code(code) for code in model.tables(MODEL_CODES, "operator code", MAX_CODES)]
    buffers = model.tables(MODEL_BUFFERS, "buffer", MAX_TENSORS)
    graph, variables = _graph(view, subgraphs[0], codes, buffers)
    metadata = b""
    for entry in model.tables(MODEL_METADATA, "metadata entry", MAX_ENDS):
        number = entry.number(METADATA_BUFFER, "I")
        if number < len(buffers) and entry.text(METADATA_NAME) == METADATA:
            metadata = bytes(_content(view, buffers[number])[:MAX_METADATA_BYTES])
            break
    return TfliteFile(graph, variables, _signature(model, graph), metadata)


def _operator_code(code: Table) -> tuple[str, str]:
    number = max(code.number(CODE_OLD, "b"), code.number(CODE_BUILTIN, "i"))
    name = OPERATORS.get(number, f"operator {number}")
    return name, code.text(CODE_CUSTOM) if name == "CUSTOM" else ""


def _graph(
    view: memoryview, table: Table, codes: Sequence[tuple[str, str]], buffers: Sequence[Table]
) -> tuple[Graph, frozenset[int]]:
    graph, variables, budget = Graph(), set(), MAX_CONSTANT_COPIES * len(view) + SMALL_BYTES
    for index, entry in enumerate(table.tables(GRAPH_TENSORS, "tensor", MAX_TENSORS)):
        tensor = _tensor(view, entry, buffers, budget)
        scales = 0 if tensor.quantization is None else len(tensor.quantization.scale)
        data_bytes = 0 if tensor.data is None else tensor.data.nbytes
        budget -= data_bytes + SCALE_BYTES * scales + len(tensor.name)
        if budget < 0:
            raise DamagedFileError(_TOO_MUCH)
        graph.add_tensor(tensor)
        if entry.number(TENSOR_VARIABLE, "?"):
            variables.add(index)
    count = len(graph.tensors)
    graph.inputs = _indices(table, GRAPH_INPUTS, count)
    graph.outputs = _indices(table, GRAPH_OUTPUTS, count)
    if not graph.outputs or min(graph.inputs + graph.outputs) < 0:
        raise DamagedFileError("it has no output, or an input or output that is not a tensor")
    if len(set(graph.inputs)) < len(graph.inputs):
        raise DamagedFileError("one tensor is two of its inputs")
    available = {i for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
    if available.intersection(graph.inputs):
        raise DamagedFileError("an input of it is a constant")
    available |= {*graph.inputs, *variables}
    produced, ends = set(graph.inputs), 0
    for number, entry in enumerate(table.tables(GRAPH_OPERATORS, "operator", MAX_OPERATORS)):
        op = _operator(view, entry, codes, count, number)
        ends += len(op.inputs) + len(op.outputs)
        if ends > MAX_ALL_ENDS:
            raise DamagedFileError(f"its operators have more than {MAX_ALL_ENDS} inputs and outputs")
        _fill_empty(graph, op, available)
        missing = [i for i in op.inputs if i >= 0 and i not in available]
        if missing:
            name = graph.tensors[missing[0]].name
            raise DamagedFileError(f"{op.node} reads tensor {missing[0]} ({name}) before it is produced")
        if produced.intersection(op.outputs) or len(set(op.outputs)) < len(op.outputs):
            raise DamagedFileError(f"{op.node} produces a tensor that already exists")
        if any(graph.tensors[o].data is not None for o in op.outputs):
            raise DamagedFileError(f"{op.node} produces a tensor that is a constant")
        available.update(op.outputs)
        produced.update(op.outputs)
        graph.add_op(op)
    unmade = [i for i in graph.outputs if i not in available]
    if unmade:
        raise DamagedFileError(f"no operator produces its output {graph.tensors[unmade[0]].name}")
    return graph, frozenset(variables)


def _fill_empty(graph: Graph, op: Op, constants: set[int]) -> None:
    """Fill in constants without elements, which have no buffer to recognize them by."""
    for i in op.inputs:
        if i >= 0 and i not in constants and 0 in graph.tensors[i].shape and graph.tensors[i].dtype in NUMPY:
            tensor = graph.tensors[i]
            tensor.data = np.zeros(tensor.shape, NUMPY[tensor.dtype])
            constants.add(i)


def _tensor(view: memoryview, entry: Table, buffers: Sequence[Table], budget: int) -> Tensor:
    shape = tuple(int(n) for n in entry.array(TENSOR_SHAPE, "int32")[: MAX_RANK + 1])
    if len(shape) > MAX_RANK:
        raise DamagedFileError(f"{entry.description} has more than {MAX_RANK} dimensions")
    if any(n < 0 for n in shape) or math.prod(shape) > MAX_ELEMENTS:
        raise DamagedFileError(f"{entry.description} has the shape {'x'.join(map(str, shape))}")
    number = entry.number(TENSOR_TYPE, "b")
    dtype = DTYPES.get(number, f"type {number}")
    name = entry.text(TENSOR_NAME)
    tensor = Tensor(name, shape, dtype, quantization=_quantization(entry, shape, dtype))
    if entry.number(TENSOR_EXTERNAL, "I"):
        raise DamagedFileError(
            f"{entry.description} ({name}) has its data in another file, which is not supported"
        )
    buffer = entry.number(TENSOR_BUFFER, "I")
    if buffer >= len(buffers):
        raise DamagedFileError(
            f"{entry.description} ({name}) is in buffer {buffer}, but there are only {len(buffers)}"
        )
    content = _content(view, buffers[buffer])
    if not len(content):
        return tensor
    sparsity = entry.table(TENSOR_SPARSITY, f"sparsity of {entry.description}")
    size = _size_bytes(shape, dtype)
    if size is None:
        return tensor  # of a type that nothing reads
    if size > budget:
        raise DamagedFileError(_TOO_MUCH)
    if sparsity is not None:
        tensor.data = dense(sparsity, content, shape, np.dtype(NUMPY[dtype]), f"{entry.description} ({name})")
    elif len(content) != size:
        raise DamagedFileError(
            f"{entry.description} ({name}) has {len(content)} bytes, but its shape and type need {size}"
        )
    elif dtype == "int4":
        tensor.data = _halves(content, shape)
    else:
        tensor.data = np.frombuffer(content, np.dtype(NUMPY[dtype]).newbyteorder("<")).reshape(shape)
        if tensor.data.dtype == bool:  # any byte but 0 is true, to numpy only 1
            tensor.data = np.frombuffer(content, np.uint8).reshape(shape) != 0
    return tensor


def _size_bytes(shape: Sequence[int], dtype: str) -> int | None:
    if dtype == "int4":
        return -(-math.prod(shape) // 2)
    return math.prod(shape) * np.dtype(NUMPY[dtype]).itemsize if dtype in NUMPY else None


def _halves(content: memoryview, shape: Sequence[int]) -> Array:
    """Unpack signed 4-bit numbers, the lower half of a byte first."""
    packed = np.frombuffer(content, np.int8)
    pairs = np.stack([np.left_shift(packed, 4) >> 4, packed >> 4], axis=1)
    numbers: Array = pairs.reshape(-1)[: math.prod(shape)].reshape(shape)
    return numbers


def _quantization(entry: Table, shape: Sequence[int], dtype: str) -> TensorQuantization | None:
    table = entry.table(TENSOR_QUANTIZATION, f"quantization of {entry.description}")
    if table is None:
        return None
    scale, zero_point = table.array(QUANT_SCALE, "float32"), table.array(QUANT_ZERO_POINT, "int64")
    if not len(scale):
        return None
    axis = table.number(QUANT_AXIS, "i")
    if len(scale) > 1 and not (0 <= axis < len(shape) and len(scale) == shape[axis]):
        raise DamagedFileError(f"{entry.description} has {len(scale)} scales along its axis {axis}")
    if len(zero_point) not in (0, 1, len(scale)):
        raise DamagedFileError(
            f"{entry.description} has {len(zero_point)} zero points and {len(scale)} scales"
        )
    if not (np.isfinite(scale).all() and (scale > 0).all()):
        if dtype in SCALED:
            raise DamagedFileError(f"{entry.description} has a scale that is not a positive number")
        return None  # of a type that has no use for it
    points = np.broadcast_to(zero_point if len(zero_point) else np.zeros(1, np.int64), scale.shape)
    return TensorQuantization(tuple(scale.tolist()), tuple(points.tolist()), axis if len(scale) > 1 else 0)


def _content(view: memoryview, buffer: Table) -> memoryview:
    offset, size = buffer.number(BUFFER_OFFSET, "Q"), buffer.number(BUFFER_SIZE, "Q")
    if offset > 1:
        if offset + size > len(view):
            raise DamagedFileError(
                f"{buffer.description} is outside the file, which has {len(view)} bytes: it is damaged"
            )
        return view[offset : offset + size]
    return buffer.content(BUFFER_DATA)


def _operator(
    view: memoryview, entry: Table, codes: Sequence[tuple[str, str]], tensors: int, number: int
) -> Op:
    index = entry.number(OPERATOR_CODE, "I")
    if index >= len(codes):
        raise DamagedFileError(f"{entry.description} is of code {index}, and there are {len(codes)}")
    code, custom = codes[index]
    name = f"operator {number} ({custom or code})"
    ends = (tuple(_indices(entry, slot, tensors)) for slot in (OPERATOR_INPUTS, OPERATOR_OUTPUTS))
    inputs, outputs = ends
    if any(o < 0 for o in outputs):
        raise DamagedFileError(f"{name} leaves out an output")
    if code == "CUSTOM":
        content = bytes(entry.content(OPERATOR_CUSTOM)[:MAX_CUSTOM_BYTES])
        return Op(code, inputs, outputs, {"custom_code": custom, "custom_options": content}, name)
    return Op(code, inputs, outputs, options_of(entry, code, name), name)


def _indices(table: Table, slot: int, tensors: int) -> list[int]:
    indices = table.array(slot, "int32")
    if len(indices) > MAX_ENDS:
        raise DamagedFileError(
            f"{table.description} has {len(indices)} inputs or outputs; at most {MAX_ENDS} are supported"
        )
    if len(indices) and (indices.min() < -1 or indices.max() >= tensors):
        raise DamagedFileError(
            f"{table.description} names a tensor that does not exist: {indices.min()} to {indices.max()}"
        )
    return [int(i) for i in indices]


def _signature(model: Table, graph: Graph) -> dict[int, str]:
    ends = {*graph.inputs, *graph.outputs}
    for signature in model.tables(MODEL_SIGNATURES, "signature", MAX_ENDS):
        if signature.number(SIGNATURE_GRAPH, "I") == 0:
            entries = [
                *signature.tables(SIGNATURE_INPUTS, "signature input", MAX_ENDS),
                *signature.tables(SIGNATURE_OUTPUTS, "signature output", MAX_ENDS),
            ]
            named = {entry.number(MAP_TENSOR, "I"): entry.text(MAP_NAME) for entry in entries}
            return {tensor: name for tensor, name in named.items() if tensor in ends}
    return {}


def end_names(graph: Graph) -> tuple[list[str], list[str]]:
    """Return the names of the ONNX model's inputs and outputs: those in the file, if they are unique."""
    names = unique_names(graph)
    inputs = [names[i] for i in graph.inputs]
    outputs, used = [], set(inputs)
    for number, i in enumerate(graph.outputs):
        name = names[i] if names[i] not in used else f"{names[i]}/output_{number}"
        used.add(name)
        outputs.append(name)
    return inputs, outputs


def unique_names(graph: Graph) -> list[str]:
    """Return a unique name for each tensor: its own if no other has it. Inputs and outputs choose first."""
    ends = [*graph.inputs, *graph.outputs]
    name_by_tensor: dict[int, str] = {}
    used: Counter[str] = Counter()
    for i in [*ends, *range(len(graph.tensors))]:
        if i in name_by_tensor:
            continue
        name = graph.tensors[i].name or f"tensor_{i}"
        while name in used:
            used[name] += 1
            name = f"{name}_{used[name]}"
        used[name] = 0
        name_by_tensor[i] = name
    return [name_by_tensor[i] for i in range(len(graph.tensors))]
