"""Graph -> the bytes of a .tflite file.

The schema is the vendored one (generated/README.md); nothing of an engine is imported. Weights follow the
tables (assembly.py), aligned, so that a runtime maps the file and reads them in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import flatbuffers
import numpy as np

from edgekit.compiler.model.rewriting import fingerprint, same_bits
from edgekit.tensor_spec import Array
from edgekit_tflite.assembly import TABLES_BYTES, assembled, empty_buffer, is_outside
from edgekit_tflite.graph import Graph, Op, Tensor
from edgekit_tflite.op_versions import op_version

schema: Any = import_module("edgekit_tflite.generated.schema")
"""Untyped, as the generator writes it."""

SIGNATURE = "serving_default"
REDUCED_PRECISION, FP16_ALLOWED = "reduced_precision_support", b"fp16accfp16"
"""Name and content of the metadata with which a file permits XNNPACK to compute in float16. It then does so
on ARM processors that can; on others it computes in float32. Python's interpreter has no flag for it.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/tools/optimize/
reduced_precision_metadata.h. With LiteRT 2.3 on emulated ARM: Cortex-A76 52 to 55 dB from float32, A72 and
x86 equal to it; sums in float32 (fp16accfp32) are ignored on all."""

SHARED_FROM_BYTES = 1 << 10
"""Constants of this size on are compared with others, so that equal ones are stored once."""

OPTIONS: Mapping[str, str] = {
    "ABS": "AbsOptions",
    "ADD": "AddOptions",
    "ARG_MAX": "ArgMaxOptions",
    "ARG_MIN": "ArgMinOptions",
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "BATCH_MATMUL": "BatchMatMulOptions",
    "BITWISE_XOR": "BitwiseXorOptions",
    "BROADCAST_TO": "BroadcastToOptions",
    "CAST": "CastOptions",
    "CEIL": "",
    "CONCATENATION": "ConcatenationOptions",
    "CONV_2D": "Conv2DOptions",
    "COS": "CosOptions",
    "CUMSUM": "CumsumOptions",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions",
    "DEPTH_TO_SPACE": "DepthToSpaceOptions",
    "DEQUANTIZE": "DequantizeOptions",
    "DIV": "DivOptions",
    "ELU": "",
    "EQUAL": "EqualOptions",
    "EXP": "ExpOptions",
    "FILL": "FillOptions",
    "FLOOR": "",
    "FLOOR_DIV": "FloorDivOptions",
    "FLOOR_MOD": "FloorModOptions",
    "FULLY_CONNECTED": "FullyConnectedOptions",
    "GATHER": "GatherOptions",
    "GATHER_ND": "GatherNdOptions",
    "GELU": "GeluOptions",
    "GREATER": "GreaterOptions",
    "GREATER_EQUAL": "GreaterEqualOptions",
    "HARD_SWISH": "HardSwishOptions",
    "LEAKY_RELU": "LeakyReluOptions",
    "LESS": "LessOptions",
    "LESS_EQUAL": "LessEqualOptions",
    "LOCAL_RESPONSE_NORMALIZATION": "LocalResponseNormalizationOptions",
    "LOG": "",
    "LOGICAL_AND": "LogicalAndOptions",
    "LOGICAL_NOT": "LogicalNotOptions",
    "LOGICAL_OR": "LogicalOrOptions",
    "LOGISTIC": "",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MIRROR_PAD": "MirrorPadOptions",
    "MUL": "MulOptions",
    "NEG": "NegOptions",
    "NOT_EQUAL": "NotEqualOptions",
    "PAD": "PadOptions",
    "PADV2": "PadV2Options",
    "POW": "PowOptions",
    "PRELU": "",
    "QUANTIZE": "QuantizeOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "RELU": "",
    "RELU6": "",
    "RELU_N1_TO_1": "",
    "RESHAPE": "ReshapeOptions",
    "RESIZE_BILINEAR": "ResizeBilinearOptions",
    "RESIZE_NEAREST_NEIGHBOR": "ResizeNearestNeighborOptions",
    "REVERSE_V2": "ReverseV2Options",
    "ROUND": "",
    "RSQRT": "",
    "SCATTER_ND": "ScatterNdOptions",
    "SELECT_V2": "SelectV2Options",
    "SIGN": "SignOptions",
    "SIN": "",
    "SLICE": "SliceOptions",
    "SOFTMAX": "SoftmaxOptions",
    "SPACE_TO_DEPTH": "SpaceToDepthOptions",
    "SPLIT": "SplitOptions",
    "SPLIT_V": "SplitVOptions",
    "SQRT": "",
    "SQUARE": "SquareOptions",
    "SQUARED_DIFFERENCE": "SquaredDifferenceOptions",
    "STRIDED_SLICE": "StridedSliceOptions",
    "SUB": "SubOptions",
    "SUM": "ReducerOptions",
    "TANH": "",
    "TILE": "TileOptions",
    "TOPK_V2": "TopKV2Options",
    "TRANSPOSE": "TransposeOptions",
    "TRANSPOSE_CONV": "TransposeConvOptions",
}
"""Operator -> its options table in the schema; empty where it has none. What isn't here is never written."""

ENUMS: Mapping[str, type] = {
    "fused_activation_function": schema.ActivationFunctionType,
    "padding": schema.Padding,
    "mode": schema.MirrorPadMode,
    "in_data_type": schema.TensorType,
    "out_data_type": schema.TensorType,
    "output_type": schema.TensorType,
}
"""Option fields that hold a value of an enum."""


class Program(NamedTuple):
    """A subgraph and its signature.

    Attributes:
        graph: Tensors without a reader are written too, prune before.
        inputs: Names of ``graph.inputs`` in the signature.
        outputs: Names of ``graph.outputs`` in the signature.
        signature: Its key.
    """

    graph: Graph
    inputs: Sequence[str]
    outputs: Sequence[str]
    signature: str = SIGNATURE


def pack(
    graph: Graph,
    input_names: Sequence[str],
    output_names: Sequence[str],
    *,
    others: Sequence[Program] = (),
    fp16_arithmetic: bool = False,
) -> bytes:
    """Serialize. The same graph gives the same bytes.

    Args:
        graph, input_names, output_names: The first program, as ``Program`` has them.
        others: Further programs; constants that are equal are stored once.
        fp16_arithmetic: Permit it, where the processor has it.
    """
    programs = [Program(graph, input_names, output_names), *others]
    places, contents = _contents([each.graph for each in programs])
    outside = is_outside(contents)
    model = schema.ModelT()
    model.version = 3
    model.description = "EdgeKit"
    # Buffer 0 means "no data", by the schema.
    model.buffers = [schema.BufferT(), *(empty_buffer(outside) for _ in contents)]
    model.operatorCodes, model.subgraphs, model.signatureDefs = [], [], []
    codes: dict[tuple[str, int], int] = {}
    for index, (program, own) in enumerate(zip(programs, places, strict=True)):
        model.subgraphs.append(_subgraph(program, own, codes, model.operatorCodes))
        model.signatureDefs.append(_signature(program, index))
    if fp16_arithmetic:
        entry, holder = schema.MetadataT(), schema.BufferT()
        entry.name, entry.buffer = REDUCED_PRECISION, len(model.buffers)
        holder.data = np.frombuffer(FP16_ALLOWED, np.uint8)
        model.buffers.append(holder)
        model.metadata = [entry]
    builder = flatbuffers.Builder(TABLES_BYTES)
    builder.Finish(model.Pack(builder), b"TFL3")
    return assembled(bytes(builder.Output()), contents)


def _contents(graphs: Sequence[Graph]) -> tuple[list[list[int | None]], list[Array]]:
    """For each tensor of each graph the index of its content, None where it has none; and the contents.

    Large equal ones are one: a language model's embedding is its head too, there with scales.
    """
    places: list[list[int | None]] = []
    contents: list[Array] = []
    alike: dict[tuple[object, ...], list[int]] = {}
    for graph in graphs:
        places.append([])
        for tensor in graph.tensors:
            data, place = tensor.data, None
            key = fingerprint(data) if data is not None and data.nbytes >= SHARED_FROM_BYTES else None
            if data is not None and key is not None:
                others = alike.setdefault(key, [])
                place = next((other for other in others if same_bits(contents[other], data)), None)
                if place is None:
                    others.append(len(contents))
            if data is not None and place is None:
                place = len(contents)
                contents.append(data)
            places[-1].append(place)
    return places, contents


def _subgraph(
    program: Program, places: Sequence[int | None], codes: dict[tuple[str, int], int], written: list[Any]
) -> Any:
    """A SubGraphT; operators that ``codes`` does not have yet are added to it, and written."""
    graph, entry = program.graph, schema.SubGraphT()
    entry.name = "main" if program.signature == SIGNATURE else program.signature
    entry.tensors = [
        _tensor(tensor, 0 if place is None else 1 + place)
        for tensor, place in zip(graph.tensors, places, strict=True)
    ]
    entry.inputs = np.array(graph.inputs, np.int32)
    entry.outputs = np.array(graph.outputs, np.int32)
    entry.operators = []
    for op in graph.ops:
        key = (op.code, op_version(graph, op))
        if key not in codes:
            codes[key] = len(codes)
            written.append(_operator_code(*key))
        entry.operators.append(_operator(op, codes[key]))
    return entry


def _tensor(tensor: Tensor, buffer: int) -> Any:
    entry = schema.TensorT()
    entry.name = tensor.name
    entry.shape = np.array(tensor.shape, np.int32)
    entry.type = getattr(schema.TensorType, tensor.dtype.upper())
    entry.hasRank = True
    entry.buffer = buffer
    if tensor.quantization is not None:
        quantization = schema.QuantizationParametersT()
        quantization.scale = np.array(tensor.quantization.scale, np.float32)
        quantization.zeroPoint = np.array(tensor.quantization.zero_point, np.int64)
        quantization.quantizedDimension = tensor.quantization.axis
        entry.quantization = quantization
    return entry


def _operator_code(code: str, version: int) -> Any:
    entry = schema.OperatorCodeT()
    entry.builtinCode = getattr(schema.BuiltinOperator, code)
    # Runtimes of before 2020 read only this byte, in which 127 says "look at builtinCode".
    entry.deprecatedBuiltinCode = min(entry.builtinCode, 127)
    entry.version = version
    return entry


def _operator(op: Op, opcode_index: int) -> Any:
    entry = schema.OperatorT()
    entry.opcodeIndex = opcode_index
    entry.inputs = np.array(op.inputs, np.int32)
    entry.outputs = np.array(op.outputs, np.int32)
    table = OPTIONS[op.code]
    if table:
        entry.builtinOptionsType = getattr(schema.BuiltinOptions, table)
        entry.builtinOptions = getattr(schema, f"{table}T")()
    for name, value in op.options.items():
        field = _camel(name)
        if not table or not hasattr(entry.builtinOptions, field):
            raise ValueError(f"{op.code} has no option {name}")
        if name in ENUMS and isinstance(value, str):
            value = getattr(ENUMS[name], value)
        setattr(entry.builtinOptions, field, np.array(value, np.int32) if isinstance(value, tuple) else value)
    return entry


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _signature(program: Program, subgraph: int) -> Any:
    signature, graph = schema.SignatureDefT(), program.graph
    signature.signatureKey = program.signature
    signature.subgraphIndex = subgraph
    signature.inputs = [_named(n, i) for n, i in zip(program.inputs, graph.inputs, strict=True)]
    signature.outputs = [_named(n, i) for n, i in zip(program.outputs, graph.outputs, strict=True)]
    return signature


def _named(name: str, tensor: int) -> Any:
    entry = schema.TensorMapT()
    entry.name = name
    entry.tensorIndex = tensor
    return entry
