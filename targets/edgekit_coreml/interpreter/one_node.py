"""One ONNX operator as a model, written byte by byte: a device has onnxruntime, and not onnx.

Field numbers: onnx/onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np

from edgekit.system import onnx_runtime
from edgekit.tensor_spec import Array

OPSET, IR_VERSION = 19, 9
ELEMENTS: Mapping[str, int] = {"float32": 1, "int32": 6, "int64": 7, "float16": 10}
LARGE = 4096
"""From so many elements on ONNX Runtime converts between float16 and float32 faster than numpy: 692,224
elements in 0.1 instead of 2.2 ms, to the same bits."""
Types = tuple[tuple[str, tuple[int, ...] | None], ...]
"""Element type and shape of each operand. None means any shape."""
Attributes = tuple[tuple[str, Any], ...]
"""Name and value, an int, a float, a str or a tuple of ints; sorted, so that they can be a key."""


_threads: ContextVar[int] = ContextVar("threads", default=1)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Run operators on ``count`` threads while the block runs."""
    token = _threads.set(count)
    try:
        yield
    finally:
        _threads.reset(token)


def run_node(op: str, operands: Sequence[Array], attributes: Mapping[str, Any]) -> Array:
    """Run one operator on ONNX Runtime, with float32 inputs and a float32 output."""
    fixed = tuple(sorted((k, tuple(v) if isinstance(v, list) else v) for k, v in attributes.items()))
    types = tuple((array.dtype.name, array.shape) for array in operands)
    session = _session(op, types, fixed, "float32", _threads.get())
    feeds = {f"i{n}": np.ascontiguousarray(array) for n, array in enumerate(operands)}
    output: Array = session.run(None, feeds)[0]
    return output


def converted(array: Array, dtype: str) -> Array:
    """``array.astype(dtype)``; a large one between float16 and float32 by ONNX Runtime."""
    pair = {array.dtype.name, dtype} == {"float16", "float32"}
    if not pair or array.size < LARGE:
        return array.astype(dtype)
    types = ((array.dtype.name, None),)
    session = _session("Cast", types, (("to", ELEMENTS[dtype]),), dtype, _threads.get())
    output: Array = session.run(None, {"i0": np.ascontiguousarray(array)})[0]
    return output


@lru_cache(maxsize=512)
def _session(op: str, types: Types, attributes: Attributes, result: str, threads: int) -> Any:
    ort = onnxruntime()
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.log_severity_level = 3
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = one_node_model(op, types, attributes, result)
    return ort.InferenceSession(model, settings, providers=["CPUExecutionProvider"])


def release_sessions() -> None:
    """Free the sessions: each holds the memory of its largest output."""
    _session.cache_clear()


def onnxruntime() -> Any:
    """Return the package ``onnxruntime``.

    Raises:
        MissingDependency: it is not installed.
    """
    return onnx_runtime.onnxruntime("running an .mlpackage off macOS", "ort")


def one_node_model(op: str, types: Types, attributes: Attributes, result: str) -> bytes:
    """Return a serialized ModelProto: inputs i0, i1 ..., one node, output o of element type ``result``."""
    node = b"".join(_text(1, f"i{n}") for n in range(len(types))) + _text(2, "o") + _text(4, op)
    node += b"".join(_message(5, _attribute(name, value)) for name, value in attributes)
    graph = _message(1, node) + _text(2, "g")
    graph += b"".join(_message(11, _value_info(f"i{n}", *declared)) for n, declared in enumerate(types))
    graph += _message(12, _text(1, "o") + _message(2, _message(1, _number(1, ELEMENTS[result]))))
    return _number(1, IR_VERSION) + _message(7, graph) + _message(8, _text(1, "") + _number(2, OPSET))


def _value_info(name: str, dtype: str, shape: tuple[int, ...] | None) -> bytes:
    tensor = _number(1, ELEMENTS[dtype])
    if shape is not None:
        tensor += _message(2, b"".join(_message(1, _number(1, n)) for n in shape))
    return _text(1, name) + _message(2, _message(1, tensor))


def _attribute(name: str, value: Any) -> bytes:
    if isinstance(value, str):
        return _text(1, name) + _text(4, value) + _number(20, 3)
    if isinstance(value, float):
        return _text(1, name) + bytes([2 << 3 | 5]) + np.float32(value).tobytes() + _number(20, 1)
    if isinstance(value, int):
        return _text(1, name) + _number(3, value) + _number(20, 2)
    return _text(1, name) + b"".join(_number(8, n) for n in value) + _number(20, 7)


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(int(value))


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, content: str) -> bytes:
    return _message(field, content.encode())
