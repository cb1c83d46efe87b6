"""The Open Inference Protocol v2 over HTTP, as KServe, Triton, MLServer and OpenVINO Model Server speak it.

Source: github.com/kserve/open-inference-protocol, specification/protocol/inference_rest.md. The binary form
is Triton's extension ``binary_tensor_data`` (triton-inference-server/server,
docs/protocol/extension_binary_data.md): a JSON head, its length in ``Inference-Header-Content-Length``, then
the tensors' little-endian bytes.

A server's response is untrusted: it is accepted only if it is exactly the model's outputs, and its bytes and
values are bounded before it is parsed. Parsing JSON holds the GIL, so an unbounded response would delay the
device's own run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from edgekit.errors import UsageError, printable
from edgekit.runtime.http_connection import HttpConnection, Reply
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.target.shape_range import shape_of
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}
HEAD_LIMIT_BYTES = 1 << 20
"""Of everything but the tensors."""
NUMBER_CHARS = 32
"""Of one value in JSON, with its comma and brackets."""
JSON_VALUES = 50_000
"""Of a response in JSON; beyond it only the binary form is accepted. Parsing JSON holds the GIL, so nothing
else in the process runs meanwhile: about 10 ms for this size."""
HEAD_VALUES = 10_000
"""Values, lists and objects of everything but the tensors."""
DIGITS = re.compile(rb"[0-9]{40}")
"""More than a float32 needs. Numbers of 399 digits took 0.6 s in a response of allowed size."""
SLICE = 4096
"""Values encoded as JSON in one call, which takes 1 to 2 ms, for the same reason."""
BINARY = "binary_tensor_data"
LENGTH = "inference-header-content-length"


def about_tensors(shapes: Sequence[Signature]) -> dict[str, list[Json]]:
    """Return ``inputs`` and ``outputs`` of a model's metadata. A dimension that the data determine, or that
    differs between the model's shapes, is -1."""
    return {
        kind: [_about(specs) for specs in zip(*(signature[place] for signature in shapes), strict=True)]
        for place, kind in enumerate(Signature._fields)
    }


def _about(specs: Sequence[TensorSpec]) -> Json:
    sizes = [set(dims) for dims in zip(*(spec.shape for spec in specs), strict=True)]
    shape = [dims.pop() if len(dims) == 1 else -1 for dims in sizes]
    return {"name": specs[-1].name, "datatype": DATATYPES[specs[-1].dtype], "shape": shape}


class AnswerError(Exception):
    """The server's response is invalid.

    Attributes:
        retry_after_s: When the server wants to be retried. None means it did not say.
    """

    def __init__(self, message: str, retry_after_s: float | None = None) -> None:
        super().__init__(printable(message))  # it may quote what the server sent
        self.retry_after_s = retry_after_s


class ServerForm(NamedTuple):
    """Capabilities of a server.

    Attributes:
        binary: Whether it supports the binary form.
        all_shapes: Whether it runs arrays at every shape of the model, and not at the largest only.
    """

    binary: bool = False
    all_shapes: bool = False


class Client:
    """One model on one server, over one connection. One call at a time.

    Args:
        shapes: Inputs and outputs of the local model at each of its shapes, the largest last; the server's
            must match those of the largest.
        version: Version of the model on the server. Empty means the server's default.

    Raises:
        UsageError: the shape of an output depends on the data.
    """

    def __init__(
        self,
        connection: HttpConnection,
        model: str,
        shapes: Sequence[Signature],
        version: str = "",
    ) -> None:
        outputs = shapes[-1].outputs
        decided = [spec for spec in outputs if spec.is_open]
        if decided:
            raise UsageError(
                f"the shape of output {decided[0]} depends on the data;"
                " EdgeKit validates a server's outputs by fixed shapes"
            )
        self._wire = connection
        self._shapes = shapes
        self._path = f"/v2/models/{quote(model, safe='')}"
        if version:
            self._path += f"/versions/{quote(version, safe='')}"
        self._values = sum(math.prod(spec.shape) for spec in outputs)
        size_bytes = sum(math.prod(spec.shape) * np.dtype(spec.dtype).itemsize for spec in outputs)
        json_bytes, _ = json_limits(outputs)
        self._limit_bytes = max(json_bytes, HEAD_LIMIT_BYTES + size_bytes)

    def check_server(self, end_s: float) -> ServerForm:
        """Check that the server is ready and its model is the same.

        Raises:
            ConnectionFailedError, AnswerError: it is not.
        """
        ready = self._wire.exchange("GET", f"{self._path}/ready", end_s, HEAD_LIMIT_BYTES)
        if ready.status != 200:
            raise AnswerError(f"{self._path}/ready answered {ready.status}", ready.retry_after_s)
        server = self._object(self._wire.exchange("GET", "/v2", end_s, HEAD_LIMIT_BYTES))
        model = self._object(self._wire.exchange("GET", self._path, end_s, HEAD_LIMIT_BYTES))
        # MLServer omits them for a model without settings. Responses are checked anyway.
        declared = {k: rows for k in Signature._fields if isinstance(rows := model.get(k), list) and rows}
        for kind, rows in declared.items():
            _compare(kind, rows, getattr(self._shapes[-1], kind))
        extensions = server.get("extensions")
        binary = isinstance(extensions, list) and BINARY in extensions
        if not binary and self._values > JSON_VALUES:
            raise AnswerError(f"it supports JSON only, and {self._values} values take too long in it")
        return ServerForm(binary, "inputs" in declared and self._takes_all(declared["inputs"]))

    def _takes_all(self, declared: Sequence[Json]) -> bool:
        """Return whether a server that takes the largest shape takes the others too: it declares -1 there."""
        try:
            return all(_compare("inputs", declared, inputs) for inputs, _ in self._shapes)
        except AnswerError:
            return False

    def infer(
        self,
        feeds: Mapping[str, Array],
        end_s: float,
        binary: bool,
        more_headers: Mapping[str, str] | None = None,
    ) -> dict[str, Array]:
        """Run the model on the server.

        Args:
            feeds: Every input, contiguous, of the declared dtype and one of the shapes.
            end_s: The deadline, on ``time.monotonic()``.

        Raises:
            ConnectionFailedError: there was no response in time.
            AnswerError: it is not the model's outputs.
        """
        shape = shape_of(self._shapes, {name: array.shape for name, array in feeds.items()})
        assert shape is not None  # the session checked it
        inputs, outputs = shape
        body, headers = request_of(feeds, inputs, outputs, binary)
        headers.update(more_headers or {})
        reply = self._wire.exchange("POST", f"{self._path}/infer", end_s, self._limit_bytes, body, headers)
        if reply.status != 200:
            raise AnswerError(f"the server answered {reply.status}", reply.retry_after_s)
        return answer_of(reply, outputs)

    @property
    def is_reused(self) -> bool:
        """Return whether the connection was open before; the server may have closed it by now."""
        return self._wire.is_open

    def close(self) -> None:
        self._wire.close()

    @staticmethod
    def _object(reply: Reply) -> dict[str, Json]:
        if reply.status != 200:
            raise AnswerError(f"the server answered {reply.status} about itself", reply.retry_after_s)
        return _decoded(reply.body, HEAD_LIMIT_BYTES, HEAD_VALUES)


def request_of(
    feeds: Mapping[str, Array], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], binary: bool
) -> tuple[list[bytes], dict[str, str]]:
    """Return a request's body, in pieces, and its headers.

    Raises:
        AnswerError: a value cannot be encoded in JSON (float16, NaN).
    """
    tail: list[bytes] = []
    tensors: list[bytes] = []
    for spec in inputs:
        array = feeds[spec.name]
        entry: dict[str, Json] = {
            "name": spec.name,
            "shape": list(spec.shape),
            "datatype": DATATYPES[spec.dtype],
        }
        if binary:
            entry["parameters"] = {"binary_data_size": array.nbytes}
            tail.append(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
            tensors.append(json.dumps(entry).encode())
        elif spec.dtype == "float16":
            raise AnswerError(f"input {spec.name} is float16, which JSON cannot encode")
        else:
            tensors.append(json.dumps(entry).encode()[:-1] + b', "data": [' + _json_of(array) + b"]}")
    requested: list[dict[str, Json]] = [{"name": spec.name} for spec in outputs]
    if binary:
        requested = [{**entry, "parameters": {"binary_data": True}} for entry in requested]
    head = b'{"inputs": [' + b", ".join(tensors) + b'], "outputs": ' + json.dumps(requested).encode() + b"}"
    headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
    if binary:
        headers[LENGTH.title()] = str(len(head))
    return [head, *tail], headers


def _json_of(array: Array) -> bytes:
    flat = array.reshape(-1)
    slices = (flat[start : start + SLICE].tolist() for start in range(0, flat.size, SLICE))
    try:
        return b",".join(json.dumps(values, allow_nan=False).encode()[1:-1] for values in slices)
    except ValueError:
        raise AnswerError("an input holds NaN or an infinity, which JSON cannot encode") from None


def answer_of(reply: Reply, outputs: Sequence[TensorSpec]) -> dict[str, Array]:
    """Return the outputs in a response, as arrays of our own.

    Raises:
        AnswerError: they are not the model's.
    """
    head, tail = reply.body, memoryview(b"")
    length = reply.headers.get(LENGTH)
    if length is not None:
        if not (
            length.isascii() and length.isdecimal() and len(length) < 12 and int(length) <= len(reply.body)
        ):
            raise AnswerError(f"its header length {length[:20]!r} does not fit the response")
        head, tail = reply.body[: int(length)], memoryview(reply.body)[int(length) :]
    entries = _decoded(head, *json_limits(outputs)).get("outputs")
    if not isinstance(entries, list):
        raise AnswerError("its response has no list of outputs")
    if not _compare("outputs", entries, outputs):
        raise AnswerError("its response lacks outputs")
    expected = {spec.name: spec for spec in outputs}
    answers = {}
    for entry in entries:
        spec = expected[entry["name"]]
        dtype = np.dtype(spec.dtype)
        parameters = entry.get("parameters")
        size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
        if size is not None:
            if size != math.prod(spec.shape) * dtype.itemsize or size > len(tail):
                raise AnswerError(f"output {spec.name} has {strict_json.brief(size)} bytes")
            array = np.frombuffer(tail[:size], dtype.newbyteorder("<")).astype(dtype).reshape(spec.shape)
            tail = tail[size:]
        else:
            array = _array_of(entry.get("data"), spec, dtype)
        answers[spec.name] = array
    if len(tail):
        raise AnswerError(f"{len(tail)} bytes after its last output")
    return {spec.name: answers[spec.name] for spec in outputs}


def _array_of(data: Json, spec: TensorSpec, dtype: np.dtype[Any]) -> Array:
    kinds: set[type] = {bool} if dtype.kind == "b" else {int, float} if dtype.kind == "f" else {int}
    try:
        # As objects first: numpy would convert strings to numbers, and large integers to floats.
        array: Array = np.asarray(data, dtype=object)
        if array.size != math.prod(spec.shape) or not kinds.issuperset(type(v) for v in array.flat):
            raise ValueError
        if dtype.kind in "iu" and array.size:
            limits = np.iinfo(dtype)
            if min(array.flat) < limits.min or max(array.flat) > limits.max:
                raise ValueError
        with np.errstate(over="ignore"):
            cast: Array = array.astype(dtype).reshape(spec.shape)
    except (ValueError, TypeError, OverflowError):
        raise AnswerError(f"output {spec.name} is not {spec}") from None
    return cast


def _compare(kind: str, reported: Sequence[Json], specs: Sequence[TensorSpec]) -> bool:
    """Compare a server's tensor specs with the model's; -1 matches any dimension. Returns whether there were
    any -1.

    Raises: AnswerError: they differ.
    """
    expected = {spec.name: spec for spec in specs}
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in reported]
    if len(names) != len(specs) or not all(isinstance(name, str) and name in expected for name in names):
        shown = ", ".join(strict_json.brief(name) for name in names[:8])
        raise AnswerError(f"its {kind} are {shown or 'none'}; expected {', '.join(map(str, specs))}")
    for entry in reported:
        spec, shape = expected[entry["name"]], entry.get("shape")
        fits = isinstance(shape, list) and len(shape) == len(spec.shape)
        fits = fits and all(a in (b, -1) for a, b in zip(shape, spec.shape, strict=True))
        if not fits or entry.get("datatype") != DATATYPES[spec.dtype]:
            raise AnswerError(f"{kind[:-1]} {spec.name} differs there; expected {spec}")
    return len(set(names)) == len(specs)


def json_limits(outputs: Sequence[TensorSpec]) -> tuple[int, int]:
    """Compute the limits of a JSON response: its bytes, and its total number of values, lists and objects."""
    values = sum(math.prod(spec.shape) for spec in outputs)
    if values > JSON_VALUES:
        return HEAD_LIMIT_BYTES, HEAD_VALUES
    # A tensor may be a flat list, or nested as its shape.
    lists = sum(math.prod(spec.shape[:n]) for spec in outputs for n in range(len(spec.shape)))
    return HEAD_LIMIT_BYTES + NUMBER_CHARS * values, HEAD_VALUES + values + 2 * lists


def _decoded(body: bytes, limit_bytes: int, limit_values: int) -> dict[str, Json]:
    """Parse a body as a JSON object.

    Raises:
        AnswerError: it is not one, or exceeds a limit; then nothing was parsed.
    """
    if len(body) > limit_bytes:
        raise AnswerError(f"its response has {len(body)} bytes of JSON; the limit is {limit_bytes}")
    values = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if values > limit_values:
        raise AnswerError(f"its response has about {values} values of JSON; the limit is {limit_values}")
    try:
        # strict_json is too slow for tensors in JSON.
        if len(body) > HEAD_LIMIT_BYTES:
            if DIGITS.search(body):
                raise JsonError("a number of 40 digits or more")
            value = json.loads(body, parse_constant=_refuse)
        else:
            value = strict_json.decode(body, "its response", limit_bytes)
    except (JsonError, ValueError, RecursionError) as problem:
        raise AnswerError(f"its response is not JSON: {str(problem)[:200]}") from None
    if not isinstance(value, dict):
        raise AnswerError("its response is not a JSON object")
    return value


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
