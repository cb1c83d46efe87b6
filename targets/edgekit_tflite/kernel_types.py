"""The element types that LiteRT's kernels take, operator by operator.

From the type switches of tensorflow/lite/kernels/*.cc (2.14) as far as EdgeKit needs them. 8- and 16-bit
integers are here for operators that only move data; arithmetic on them means quantized arithmetic to these
kernels, and needs scales that an ONNX integer does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

FLOAT = frozenset({"float32"})
NUMBERS = frozenset({"float32", "int32"})
QUANTIZED = frozenset({"float32", "int8", "uint8", "int16"})
NOT_BOOL = frozenset({"float32", "int32", "int8", "uint8", "int16"})
ANY = NOT_BOOL | {"bool"}

COMPARED = NUMBERS | {"int16"}
"""What may be compared: on 8-bit integers without scales these kernels end the process."""

INTEGER_KERNELS = frozenset(
    {
        "ADD", "CONV_2D", "DEPTHWISE_CONV_2D", "ELU", "FULLY_CONNECTED", "HARD_SWISH", "LEAKY_RELU",
        "LOGISTIC", "MAXIMUM", "MEAN", "MINIMUM", "MUL", "RELU", "RELU6", "RELU_N1_TO_1", "RESIZE_BILINEAR",
        "SOFTMAX", "SUB", "SUM", "TANH", "TRANSPOSE_CONV",
    }
)  # fmt: skip
"""Operators that also compute on int8, if it is quantized by a scale."""

KERNEL_TYPES: Mapping[str, frozenset[str]] = {
    "ABS": FLOAT,
    "ADD": NUMBERS,
    "ARG_MAX": frozenset({"float32", "int32", "int8", "uint8"}),
    "ARG_MIN": frozenset({"float32", "int32", "int8", "uint8"}),
    "AVERAGE_POOL_2D": FLOAT,
    "BATCH_MATMUL": FLOAT,
    "BITCAST": frozenset({"float32", "int32"}),
    "BITWISE_XOR": NOT_BOOL - {"float32"},
    "BROADCAST_TO": ANY,
    "CAST": ANY,
    "CEIL": FLOAT,
    "CONCATENATION": ANY,
    "CONV_2D": FLOAT,
    "COS": FLOAT,
    "CUMSUM": NUMBERS,
    "DEPTHWISE_CONV_2D": FLOAT,
    "DEPTH_TO_SPACE": frozenset({"float32", "int32", "int8", "uint8"}),
    "DEQUANTIZE": frozenset({"float16", "int8", "uint8", "int16"}),
    "DIV": NUMBERS,
    "ELU": FLOAT,
    "EQUAL": COMPARED | {"bool"},
    "EXP": FLOAT,
    "FILL": ANY - {"uint8"},
    "FLOOR": FLOAT,
    "FLOOR_DIV": NUMBERS,
    "FLOOR_MOD": NUMBERS,
    "FULLY_CONNECTED": FLOAT,
    "GATHER": ANY,
    "GATHER_ND": NOT_BOOL,
    "GELU": FLOAT,
    "GREATER": COMPARED,
    "GREATER_EQUAL": COMPARED,
    "HARD_SWISH": FLOAT,
    "LEAKY_RELU": FLOAT,
    "LESS": COMPARED,
    "LESS_EQUAL": COMPARED,
    "LOCAL_RESPONSE_NORMALIZATION": FLOAT,
    "LOG": FLOAT,
    "LOGICAL_AND": frozenset({"bool"}),
    "LOGICAL_NOT": frozenset({"bool"}),
    "LOGICAL_OR": frozenset({"bool"}),
    "LOGISTIC": FLOAT,
    "MAXIMUM": NUMBERS,
    "MAX_POOL_2D": QUANTIZED,
    "MEAN": FLOAT,
    "MINIMUM": NUMBERS,
    "MIRROR_PAD": NOT_BOOL - {"int16"},
    "MUL": NUMBERS,
    "NEG": NUMBERS,
    "NOT_EQUAL": COMPARED | {"bool"},
    "PAD": NOT_BOOL,
    "PADV2": NOT_BOOL,
    "POW": NUMBERS,
    "PRELU": FLOAT,
    "QUANTIZE": frozenset({"float32", "int16", "int8", "uint8"}),
    "REDUCE_MAX": NOT_BOOL,
    "REDUCE_MIN": NOT_BOOL,
    "REDUCE_PROD": NUMBERS,
    "RELU": FLOAT,
    "RELU6": FLOAT,
    "RELU_N1_TO_1": FLOAT,
    "RESHAPE": ANY,
    "RESIZE_BILINEAR": FLOAT,
    "RESIZE_NEAREST_NEIGHBOR": QUANTIZED,
    "REVERSE_V2": ANY,
    "ROUND": FLOAT,
    "RSQRT": FLOAT,
    "SCATTER_ND": NOT_BOOL - {"int16"},
    "SELECT_V2": ANY,
    "SIGN": FLOAT,
    "SIN": FLOAT,
    "SLICE": ANY,
    "SOFTMAX": FLOAT,
    "SPACE_TO_DEPTH": frozenset({"float32", "int32", "int8", "uint8"}),
    "SPLIT": NOT_BOOL,
    "SPLIT_V": NOT_BOOL,
    "SQRT": FLOAT,
    "SQUARE": FLOAT,
    "SQUARED_DIFFERENCE": NUMBERS,
    "STRIDED_SLICE": ANY,
    "SUB": NUMBERS,
    "SUM": NUMBERS,
    "TANH": FLOAT,
    "TILE": ANY - {"int16"},
    "TOPK_V2": NOT_BOOL,
    "TRANSPOSE": ANY,
    "TRANSPOSE_CONV": FLOAT,
}

DATA_OPERAND: Mapping[str, int] = {
    "FILL": 1,
    "SELECT_V2": 1,
    "SPLIT": 1,
    "TRANSPOSE_CONV": 2,
    "SCATTER_ND": 1,
}
"""Which input decides the type, if it is not the first."""
