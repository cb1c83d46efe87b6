"""The Open Inference Protocol v2, a server's side: the body of a request to arrays, and arrays to an answer.

Source: github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md, with Triton's
extension ``binary_tensor_data`` (triton-inference-server/server, docs/protocol/extension_binary_data.md).
A request is untrusted: its size is bounded before it is read, and it is the model's inputs or an error.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import orjson

from edgekit.errors import EdgeKitError, printable
from edgekit.runtime.remote.inference_protocol import BINARY, DATATYPES
from edgekit.runtime.remote.inference_protocol import LENGTH as LENGTH
from edgekit.system.formats.strict_json import brief
from edgekit.target.shape_range import RangeShapes, shape_of, takes, together
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

EXTENSIONS = (BINARY, "model_repository", "model_configuration", "statistics")
HEAD_LIMIT_BYTES = 64 << 10
"""Maximum size of a request without its tensors."""
VALUE_CHARS = 48
"""Maximum characters of a value in JSON, with its comma, brackets and indentation."""
PRIORITIES = 8
"""Classes of requests; 1 is run first."""
DEFAULT_PRIORITY = 4
KEPT, KEPT_BYTES = 64, 2048
"""Maximum number of cached heads of a model, and maximum size of one."""
NUMBERS = {int, float, bool}
"""Python types of JSON values in tensors."""
KINDS = {"b": "booleans", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
"""numpy's kind of a data type -> its word in errors."""


class RequestError(EdgeKitError):
    """Error of a request that the protocol or the model does not accept; sent with an HTTP status.

    Attributes:
        status: HTTP status; 400 by default.
        retry_after_s: Seconds after which the client may retry. None means this request never succeeds.
    """

    def __init__(self, message: str, status: int = 400, retry_after_s: int | None = None) -> None:
        super().__init__(printable(message))  # it may quote the request
        self.status, self.retry_after_s = status, retry_after_s


class Request(NamedTuple):
    """Inference request of a client.

    Attributes:
        requested_outputs: Names of the requested outputs, and whether each is sent in binary form.
        timeout_ms: Maximum waiting time before the run, in milliseconds; None if the client sets none.
        priority: Priority class with Triton's numbers: 1 is run first, 0 is the default class.
    """

    feeds: dict[str, Array]
    requested_outputs: dict[str, bool]
    id: str
    timeout_ms: float | None
    priority: int = 0


def body_limit_bytes(inputs: Sequence[TensorSpec]) -> int:
    """Return the maximum size of a request's body at one shape, in JSON or binary."""
    values = sum(math.prod(spec.shape) for spec in inputs)
    size_bytes = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in inputs)
    return HEAD_LIMIT_BYTES + max(size_bytes, VALUE_CHARS * values)


class _Plan(NamedTuple):
    """Parsed JSON of a request whose tensors are all in binary form."""

    tensors: list[tuple[TensorSpec, int]]
    size_bytes: int
    request: Request


class RequestReader:
    """Reader of the requests of one model. It caches small parsed heads, because a client's requests
    usually differ only in their tensors.

    Args:
        shapes: Inputs and outputs of the model at each of its shapes, the largest last.
    """

    def __init__(self, shapes: Sequence[Signature]) -> None:
        self._shapes = shapes
        self._plans: dict[bytes, _Plan] = {}

    def __call__(self, body: bytes, head_size: str | None) -> Request:
        """Read a request.

        Args:
            head_size: Header ``Inference-Header-Content-Length``; None if the whole body is JSON.

        Raises:
            RequestError: the request does not fit this model.
        """
        size = json_bytes(body, head_size)
        head, tail = body[:size], memoryview(body)[size:]
        plan = self._plans.get(head)
        if plan is None or plan.size_bytes != len(tail):
            return self._read(head, tail)
        feeds, offset = {}, 0
        for spec, size in plan.tensors:
            feeds[spec.name] = from_bytes(tail[offset : offset + size], spec)
            offset += size
        return plan.request._replace(feeds=feeds)

    def _read(self, json_part: bytes, tail: memoryview) -> Request:
        head = _object(json_part)
        entries = head.get("inputs")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise RequestError("inputs must be a list of tensors")
        specs = specs_of(
            [(entry.get("name"), entry.get("datatype"), entry.get("shape")) for entry in entries],
            self._shapes,
        )
        feeds: dict[str, Array] = {}
        binary, whole = True, len(tail)
        for entry, spec in zip(entries, specs, strict=True):
            feeds[spec.name], tail = _tensor(entry, spec, tail)
            binary = binary and _parameters(entry).get("binary_data_size") is not None
        if len(tail):
            raise RequestError(f"the body has {len(tail)} bytes after the last input")
        parameters = _parameters(head)
        name = head.get("id", "")
        if not isinstance(name, str) or len(name) > 256:
            raise RequestError("id must be a string of at most 256 characters")
        requested = _requested_outputs(
            head.get("outputs"), self._shapes[-1].outputs, parameters.get("binary_data_output") is True
        )
        request = Request(feeds, requested, name, timeout_ms(parameters), priority(parameters))
        if binary and len(json_part) <= KEPT_BYTES:
            if len(self._plans) >= KEPT:
                self._plans.clear()
            sizes = [(spec, feeds[spec.name].nbytes) for spec in specs]
            self._plans[json_part] = _Plan(sizes, whole, request._replace(feeds={}))
        return request


def json_bytes(body: bytes, head_size: str | None) -> int:
    """Return the number of JSON bytes in a body.

    Raises:
        RequestError: the header is not a number, or the body is shorter.
    """
    if head_size is None:
        return len(body)
    if not (head_size.isascii() and head_size.isdecimal() and len(head_size) < 12):
        raise RequestError(f"{LENGTH} is {brief(head_size)}; it must be a number of bytes")
    if int(head_size) > len(body):
        raise RequestError(f"{LENGTH} is {int(head_size)}, and the body has {len(body)} bytes")
    return int(head_size)


def specs_of(tensors: Sequence[tuple[Any, Any, Any]], shapes: Sequence[Signature]) -> list[TensorSpec]:
    """Return the inputs that a request's tensors are, in their order, at the shape that they have.

    Args:
        tensors: Name, data type and shape (a list) of each tensor, as the client declares them.
        shapes: The model's shapes, the largest last.

    Raises:
        RequestError: they are not each of the model's inputs once, or have another type or shape.
    """
    inputs, names = shapes[-1].inputs, [name for name, _, _ in tensors]
    specs = {spec.name: spec for spec in inputs}
    if len(names) != len(specs) or any(not isinstance(n, str) or n not in specs for n in names):
        raise RequestError(f"inputs are {_names(names)}; the model takes {', '.join(map(str, inputs))}")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise RequestError(f"input {name} is given twice")
    for name, datatype, shape in tensors:
        whole = isinstance(shape, list) and all(type(size) is int for size in shape)
        if datatype != DATATYPES[specs[name].dtype] or not whole or not takes(shapes, name, shape):
            raise RequestError(
                f"input {name} is {brief(datatype)} {json.dumps(shape)[:60]}; "
                f"the model takes {DATATYPES[specs[name].dtype]} {_expected(shapes, name)}"
            )
    signature = shape_of(shapes, {name: shape for name, _, shape in tensors})
    if signature is None:
        texts = "; or ".join(together(shapes))
        raise RequestError(f"the shapes of the inputs do not belong together; the model takes {texts}")
    specs = {spec.name: spec for spec in signature.inputs}
    return [specs[name] for name in names]


def _expected(shapes: Sequence[Signature], name: str) -> str:
    """Return the shapes of an input as a request has them; a range as ``1x1..512``."""
    if isinstance(shapes, RangeShapes):
        return shapes.range.text(name)
    specs = (spec for signature in shapes for spec in signature.inputs if spec.name == name)
    return " or ".join(dict.fromkeys(str(list(spec.shape)) for spec in specs))


def timeout_ms(parameters: Mapping[str, Any]) -> float | None:
    """Return a request's timeout in milliseconds from its parameter ``timeout`` in microseconds, or None.

    Raises:
        RequestError: it is not a positive whole number.
    """
    timeout = parameters.get("timeout")
    if timeout is not None and (type(timeout) is not int or timeout <= 0):
        raise RequestError(f"parameters.timeout is {brief(timeout)}; it must be a number of microseconds")
    return None if timeout is None else timeout / 1000


class AnswerWriter:
    """Writer of the responses of a model's version. A model has few shapes, so if all outputs are requested
    in binary form, everything but their bytes is written once for each.
    """

    def __init__(self, model: str, version: str) -> None:
        self._model, self._version = model, version
        self._responses: dict[tuple[tuple[str, tuple[int, ...]], ...], tuple[bytes, dict[str, str]]] = {}

    def __call__(self, request: Request, arrays: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
        """Return the body and headers of :func:`answer_of`. The caller must not change the headers."""
        if request.id or not all(request.requested_outputs.values()):
            return answer_of(request, arrays, self._model, self._version)
        tail = b"".join([_little(arrays[name]).tobytes() for name in request.requested_outputs])
        key = tuple([(name, arrays[name].shape) for name in request.requested_outputs])
        cached = self._responses.get(key)
        if cached is None:
            content, headers = answer_of(request, arrays, self._model, self._version)
            if len(self._responses) >= KEPT:
                self._responses.clear()
            self._responses[key] = content[: len(content) - len(tail)], headers
            return content, headers
        return cached[0] + tail, cached[1]


def answer_of(
    request: Request, arrays: Mapping[str, Array], model: str, version: str
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a response.

    Raises:
        RequestError: an output that is asked for in JSON can't be written in it (NaN, float16).
    """
    entries: list[dict[str, Any]] = []
    tail: list[bytes] = []
    for name, binary in request.requested_outputs.items():
        array = arrays[name]
        entry: dict[str, Any] = {
            "name": name, "shape": list(array.shape), "datatype": DATATYPES[array.dtype.name],
        }  # fmt: skip
        if binary:
            tail.append(_little(array).tobytes())
            entry["parameters"] = {"binary_data_size": len(tail[-1])}
        else:
            if array.dtype.kind == "f" and (array.dtype.itemsize < 4 or not np.isfinite(array).all()):
                err = "is float16" if array.dtype.itemsize < 4 else "holds NaN or an infinity"
                raise RequestError(f"output {name} {err}, which JSON can't hold: request it with binary_data")
            entry["data"] = np.ascontiguousarray(array).reshape(-1)
        entries.append(entry)
    body: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    head = orjson.dumps(body | ({"id": request.id} if request.id else {}), option=orjson.OPT_SERIALIZE_NUMPY)
    if not tail:
        return head, {"Content-Type": "application/json"}
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}
    return b"".join([head, *tail]), headers


def _little(array: Array) -> Array:
    return array if sys.byteorder == "little" else array.astype(array.dtype.newbyteorder("<"), copy=False)


def priority(parameters: Mapping[str, Any]) -> int:
    """Return the priority class of a request from its parameter ``priority``, or 0 if the parameter is
    absent.

    Raises:
        RequestError: it is not a valid class.
    """
    value = parameters.get("priority", 0)
    if type(value) is not int or not 0 <= value <= PRIORITIES:
        raise RequestError(
            f"parameters.priority is {brief(value)}; it must be from 1 (first) to {PRIORITIES}"
        )
    return value


def _object(head: bytes) -> dict[str, Any]:
    try:
        decoded = orjson.loads(head)
    except orjson.JSONDecodeError as problem:
        raise RequestError(f"the request is not JSON: {str(problem)[:200]}") from None
    if not isinstance(decoded, dict):
        raise RequestError("the request is not a JSON object")
    return decoded


def _parameters(table: Mapping[str, Any]) -> dict[str, Any]:
    parameters = table.get("parameters", {})
    if not isinstance(parameters, dict):
        raise RequestError("parameters must be an object")
    return parameters


def _requested_outputs(requested: Json, outputs: Sequence[TensorSpec], binary: bool) -> dict[str, bool]:
    """Return the requested outputs, and for each whether it is sent in binary form. If none is named, return
    all outputs."""
    if not requested:
        return {spec.name: binary for spec in outputs}
    names = {spec.name for spec in outputs}
    if not isinstance(requested, list) or not all(isinstance(entry, dict) for entry in requested):
        raise RequestError("outputs must be a list of objects with a name")
    binary_by_name = {}
    for entry in requested:
        name = entry.get("name")
        if not isinstance(name, str) or name not in names:
            raise RequestError(f"there is no output {brief(name)}; the model has {', '.join(sorted(names))}")
        binary_by_name[name] = _parameters(entry).get("binary_data", binary) is True
    return binary_by_name


def _tensor(entry: Mapping[str, Any], spec: TensorSpec, tail: memoryview) -> tuple[Array, memoryview]:
    dtype, values = np.dtype(spec.dtype), math.prod(spec.shape)
    size = _parameters(entry).get("binary_data_size")
    if size is None:
        return _from_json(entry.get("data"), spec, dtype, values), tail
    if type(size) is not int or size != values * dtype.itemsize or size > len(tail):
        raise RequestError(
            f"input {spec.name} declares {brief(size)} bytes, and the body has {len(tail)} for it; "
            f"the model takes {values * dtype.itemsize}"
        )
    return from_bytes(tail[:size], spec), tail[size:]


def from_bytes(data: memoryview, spec: TensorSpec) -> Array:
    """Return the array of an input, copied from its little-endian bytes.

    Raises:
        RequestError: their number is wrong, or they are not booleans and the input is BOOL.
    """
    dtype = np.dtype(spec.dtype)
    size = math.prod(spec.shape) * dtype.itemsize
    if len(data) != size:
        raise RequestError(f"input {spec.name} has {len(data)} bytes; the model takes {size}")
    if dtype.kind == "b" and np.frombuffer(data, np.uint8).max(initial=0) > 1:
        raise RequestError(f"input {spec.name} is BOOL, and a byte of it is neither 0 nor 1")
    array: Array = np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(spec.shape)
    return array


def _from_json(data: Json, spec: TensorSpec, dtype: np.dtype[Any], values: int) -> Array:
    if spec.dtype == "float16":
        raise RequestError(f"input {spec.name} is FP16, which JSON can't hold: send it in the binary form")
    numbers = _flat_numbers(data, dtype, values)
    if numbers is not None:
        return numbers.reshape(spec.shape)
    try:
        elements = np.asarray(data, dtype=object).ravel().tolist()  # as numpy's texts all are as long as one
        kinds = set(map(type, elements))
        if list in kinds:
            raise ValueError
        array: Array = np.asarray(elements if kinds <= NUMBERS else [])
    except (ValueError, TypeError, OverflowError):
        raise RequestError(f"the data of input {spec.name} is not a tensor of numbers") from None
    fits = array.dtype.kind in {"b": "b", "f": "fiu"}.get(dtype.kind, "iu")
    if len(elements) != values or (values and not (kinds <= NUMBERS and fits)):
        mixed = "texts" if str in kinds and kinds <= NUMBERS | {str} else "mixed values"
        kind_name = KINDS.get(array.dtype.kind, mixed) if kinds <= NUMBERS else mixed
        raise RequestError(
            f"the data of input {spec.name} has {len(elements)} {kind_name}; "
            f"the model takes {values} of {DATATYPES[spec.dtype]}"
        )
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if int(array.min()) < limits.min or int(array.max()) > limits.max:
            raise RequestError(f"a value of input {spec.name} is out of the range of {DATATYPES[spec.dtype]}")
    with np.errstate(over="ignore"):
        cast: Array = array.astype(dtype).reshape(spec.shape)
    return cast


def _flat_numbers(data: Json, dtype: np.dtype[Any], values: int) -> Array | None:
    """Return a flat list as an array, in a third of the time that checking each value's type takes. None: it
    is nested, does not fit, or could hold booleans only."""
    wide = {"f": "d", "i": "q", "u": "Q"}.get(dtype.kind)
    if wide is None or not isinstance(data, list) or len(data) != values:
        return None
    try:
        array: Array = np.frombuffer(struct.pack(f"{values}{wide}", *data), wide)
    except (struct.error, OverflowError):
        return None
    if values == 0 or (array.min() >= 0 and array.max() <= 1 and not np.any((array > 0) & (array < 1))):
        return None
    with np.errstate(over="ignore"):
        cast: Array = array.astype(dtype)
    return cast if dtype.kind == "f" or np.array_equal(cast, array) else None


def _names(names: Sequence[Json]) -> str:
    return ", ".join(brief(name) for name in names[:8]) or "none"
