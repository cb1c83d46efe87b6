"""Memory that a message of gRPC takes, by its fields, before it is parsed.

A field of two bytes can become an object of a hundred. The lengths of fields are read as protobuf has them
(protobuf.dev/programming-guides/encoding), of the message and of its tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from edgekit.serve.inference_requests import RequestError
from edgekit.tensor_spec import TensorSpec

LEAST_BYTES = 4 << 20
"""gRPC's own limit."""
MESSAGE_BYTES = 1 << 20
"""Maximum size of a message without its tensors."""

FIELDS = 10_000
"""Fields of a message with those of its tensors; raw_input_contents has one for each tensor."""
TENSOR, CONTENTS, RAW = 5, 5, 7
"""Numbers of fields: inputs of ModelInferRequest, contents of InferInputTensor, raw_input_contents."""
OF_RAW = 3
"""Copies of a tensor in memory: as received, in protobuf, and as an array."""
OF_CONTENTS = 24
"""A varint of one byte becomes 8 bytes, an entry of a list and 8 bytes of an array."""
OF_OTHERS = 128
"""An empty submessage has two bytes, and becomes an object."""


def limit_bytes(inputs: Sequence[TensorSpec]) -> int:
    """Return the maximum size of a request with its tensors as ``contents``; raw ones take fewer bytes.

    A whole number is a varint of at most ten bytes, and has a tag if a writer does not pack.
    """
    sizes = ((math.prod(spec.shape), np.dtype(spec.dtype)) for spec in inputs)
    tensor_bytes = sum(n * (1 + (dtype.itemsize if dtype.kind == "f" else 10)) for n, dtype in sizes)
    return MESSAGE_BYTES + max(LEAST_BYTES, tensor_bytes)


def parsed_bytes(message: bytes) -> int:
    """Return the memory that a ModelInferRequest takes with what is made of it; others take less.

    Raises:
        RequestError: it has too many fields, or is not a message.
    """
    size, count = len(message), 0
    for number, start, end in _fields(message, 0, len(message)):
        count += 1
        if number == RAW:
            size += OF_RAW * (end - start)
        elif number == TENSOR:
            for inner, inner_start, inner_end in _fields(message, start, end):
                count += 1
                size += (OF_CONTENTS if inner == CONTENTS else OF_OTHERS) * (inner_end - inner_start + 2)
                _check_count(count)
        else:
            size += OF_OTHERS * (end - start + 2)
        _check_count(count)
    return size + OF_OTHERS * count


def _check_count(count: int) -> None:
    if count > FIELDS:
        raise RequestError(f"the message has more than {FIELDS} fields")


def _fields(message: bytes, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield number, start and end of the content of each field."""
    while offset < end:
        tag, start = _varint(message, offset, end)
        kind = tag & 7
        if kind == 0:
            _, stop = _varint(message, start, end)
        elif kind == 1:
            stop = start + 8
        elif kind == 5:
            stop = start + 4
        elif kind == 2:
            length, start = _varint(message, start, end)
            stop = start + length
        else:
            raise _no_message()
        if stop > end:
            raise _no_message()
        yield tag >> 3, start, stop
        offset = stop


def _varint(message: bytes, offset: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if offset >= end:
            break
        byte = message[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
    raise _no_message()


def _no_message() -> RequestError:
    return RequestError("the message is not one of the Open Inference Protocol")
