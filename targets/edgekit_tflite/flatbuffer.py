"""Graph -> the bytes of a .tflite file.

Its tables are those of schema.py; nothing of an engine is imported. Weights follow the tables (assembly.py),
aligned, so that a runtime maps the file and reads them in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from edgekit.compiler.model.rewriting import fingerprint, same_bits
from edgekit.tensor_spec import Array, Content
from edgekit_tflite.assembly import IDENTIFIER, TABLES_BYTES, assembled, empty_buffer, is_outside
from edgekit_tflite.graph import Graph, Op, Tensor
from edgekit_tflite.op_versions import op_version
from edgekit_tflite.records import Record, packed
from edgekit_tflite.schema import NUMBERS

SIGNATURE = "serving_default"
REDUCED_PRECISION, FP16_ALLOWED = "reduced_precision_support", b"fp16accfp16"
"""Name and content of the metadata with which a file permits XNNPACK to compute in float16. It then does so
on ARM processors that can; on others it computes in float32. Python's interpreter has no flag for it.
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/tools/optimize/
reduced_precision_metadata.h. With LiteRT 2.3 on emulated ARM: Cortex-A76 52 to 55 dB from float32, A72 and
x86 equal to it; sums in float32 (fp16accfp32) are ignored on all."""

SHARED_FROM_BYTES = 1 << 10
"""Constants of this size on are compared with others, so that equal ones are stored once."""

SHARED_OPTIONS: Mapping[str, str] = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "MEAN": "ReducerOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "REDUCE_ALL": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "SUM": "ReducerOptions",
}
"""Operator -> its options table, if another operator has the same one or it has another name."""


def options_tables(codes: str) -> dict[str, str]:
    """Return each operator's options table in the schema, by its name; empty if it has none.

    >>> options_tables("ADD TOPK_V2 CEIL MEAN")
    {'ADD': 'AddOptions', 'TOPK_V2': 'TopKV2Options', 'CEIL': '', 'MEAN': 'ReducerOptions'}
    """
    by_name = {name.lower(): name for name in NUMBERS["BuiltinOptions"]}
    return {
        code: SHARED_OPTIONS.get(code, by_name.get(f"{code.replace('_', '')}options".lower(), ""))
        for code in codes.split()
    }


OPTIONS = options_tables("""
    ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BITCAST BITWISE_XOR BROADCAST_TO CAST CEIL
    CONCATENATION CONV_2D COS CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV ELU EQUAL EXP FILL
    FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL HARD_SWISH
    LEAKY_RELU LESS LESS_EQUAL LOCAL_RESPONSE_NORMALIZATION LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
    LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PAD PADV2 POW PRELU QUANTIZE
    REDUCE_MAX REDUCE_MIN REDUCE_PROD RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR
    RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT SCATTER_ND SELECT_V2 SIGN SIN SLICE SOFTMAX
    SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH TILE TOPK_V2
    TRANSPOSE TRANSPOSE_CONV
""")
"""Operator -> its options table. What isn't here is never written."""

ENUMS: Mapping[str, str] = {
    "fused_activation_function": "ActivationFunctionType",
    "padding": "Padding",
    "mode": "MirrorPadMode",
    "in_data_type": "TensorType",
    "out_data_type": "TensorType",
    "output_type": "TensorType",
}
"""Option fields that hold a value of an enum."""


class Program(NamedTuple):
    """A subgraph and its signature.

    Attributes:
        graph: Tensors without a reader are written too, prune before.
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
) -> Content:
    """Serialize. The same graph gives the same bytes.

    Args:
        others: Further programs; constants that are equal are stored once.
    """
    programs = [Program(graph, input_names, output_names), *others]
    places, contents = _contents([part.graph for part in programs])
    outside = is_outside(contents)
    # Buffer 0 means "no data", by the schema.
    buffers = [Record("Buffer"), *(empty_buffer(outside) for _ in contents)]
    metadata = None
    if fp16_arithmetic:
        metadata = [Record("Metadata", name=REDUCED_PRECISION, buffer=len(buffers))]
        buffers.append(Record("Buffer", data=np.frombuffer(FP16_ALLOWED, np.uint8)))
    codes: dict[tuple[str, int], int] = {}
    model = Record(
        "Model",
        version=3,
        subgraphs=[_subgraph(program, slots, codes) for program, slots in zip(programs, places, strict=True)],
        operatorCodes=[_operator_code(*code) for code in codes],
        description="EdgeKit",
        buffers=buffers,
        metadata=metadata,
        signatureDefs=[_signature(program, index) for index, program in enumerate(programs)],
    )
    return assembled(packed(model, IDENTIFIER, TABLES_BYTES), contents)


def _contents(graphs: Sequence[Graph]) -> tuple[list[list[int | None]], list[Array]]:
    """Return the index of each tensor's content, by graph, with None for a tensor that has none; and the
    contents.

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


def _subgraph(program: Program, places: Sequence[int | None], codes: dict[tuple[str, int], int]) -> Record:
    graph = program.graph
    return Record(
        "SubGraph",
        name="main" if program.signature == SIGNATURE else program.signature,
        tensors=[
            _tensor(tensor, 0 if place is None else 1 + place)
            for tensor, place in zip(graph.tensors, places, strict=True)
        ],
        inputs=graph.inputs,
        outputs=graph.outputs,
        operators=[
            _operator(op, codes.setdefault((op.code, op_version(graph, op)), len(codes))) for op in graph.ops
        ],
    )


def _tensor(tensor: Tensor, buffer: int) -> Record:
    scales = tensor.quantization
    quantization = scales and Record(
        "QuantizationParameters",
        scale=scales.scale,
        zeroPoint=scales.zero_point,
        quantizedDimension=scales.axis,
    )
    return Record(
        "Tensor",
        name=tensor.name,
        shape=tensor.shape,
        type=NUMBERS["TensorType"][tensor.dtype.upper()],
        hasRank=True,
        buffer=buffer,
        quantization=quantization,
    )


def _operator_code(code: str, version: int) -> Record:
    number = NUMBERS["BuiltinOperator"][code]
    # Runtimes of before 2020 read only this byte, in which 127 says "look at builtinCode".
    return Record("OperatorCode", builtinCode=number, deprecatedBuiltinCode=min(number, 127), version=version)


def _operator(op: Op, opcode_index: int) -> Record:
    table = OPTIONS[op.code]
    options = Record(table) if table else None
    for name, value in op.options.items():
        field = _camel(name)
        if not hasattr(options, field):
            raise ValueError(f"{op.code} has no option {name}")
        number = NUMBERS[ENUMS[name]][value] if name in ENUMS and isinstance(value, str) else value
        setattr(options, field, number)
    return Record(
        "Operator",
        opcodeIndex=opcode_index,
        inputs=op.inputs,
        outputs=op.outputs,
        builtinOptionsType=NUMBERS["BuiltinOptions"][table or "NONE"],
        builtinOptions=options,
    )


@cache
def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _signature(program: Program, subgraph: int) -> Record:
    graph = program.graph
    return Record(
        "SignatureDef",
        signatureKey=program.signature,
        subgraphIndex=subgraph,
        inputs=[_named(n, i) for n, i in zip(program.inputs, graph.inputs, strict=True)],
        outputs=[_named(n, i) for n, i in zip(program.outputs, graph.outputs, strict=True)],
    )


def _named(name: str, tensor: int) -> Record:
    return Record("TensorMap", name=name, tensorIndex=tensor)
