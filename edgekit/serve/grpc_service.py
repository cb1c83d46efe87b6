"""The Open Inference Protocol v2 over gRPC: the same models, limits and errors as over HTTP.

Tensors come as ``raw_input_contents`` or as ``contents``; answers are ``raw_output_contents``, as Triton's
are. A status of HTTP becomes a code of gRPC, ``Retry-After`` trailing metadata of the same name.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from edgekit.runtime.remote.inference_protocol import DATATYPES
from edgekit.serve.grpc_messages import messages
from edgekit.serve.grpc_server import GrpcServer, Unary, parsed
from edgekit.serve.inference_requests import Request, RequestError, from_bytes, priority, specs_of, timeout_ms
from edgekit.serve.model_entries import READY
from edgekit.serve.request_traces import traced
from edgekit.serve.service import public_error

if TYPE_CHECKING:
    from edgekit.serve.grpc_server import GrpcCall
    from edgekit.serve.request_memory import Lease
    from edgekit.serve.served_model import ServedModel
    from edgekit.serve.service import Service
    from edgekit.tensor_spec import Array, TensorSpec

CONTENTS = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents",
    "UINT32": "uint_contents", "UINT64": "uint64_contents", "FP32": "fp32_contents",
    "FP64": "fp64_contents",
}  # fmt: skip
"""The field of InferTensorContents of a datatype; FP16 has none."""
RANK_LIMIT = 65
"""Dimensions of a tensor that are read; numpy takes 64."""


def start(server: GrpcServer, service: Service) -> None:
    """Serve the models of a service. Called in the event loop, which loads and unloads models."""
    loop = asyncio.get_running_loop()
    about, infer, traces = _About(service, loop), _Infer(service, loop), service.traces
    unary: dict[str, Unary] = {
        "ServerLive": about.server_live,
        "ServerReady": about.server_ready,
        "ServerMetadata": about.server,
        "ModelReady": about.model_ready,
        "ModelMetadata": about.model,
        "ModelInfer": infer.one if traces is None else traces.over_grpc(infer.one, public_error),
        "RepositoryIndex": about.index,
        "RepositoryModelLoad": about.load,
        "RepositoryModelUnload": about.unload,
    }
    server.start(service, unary, infer.streamed)


class _About:
    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._loop, self._messages = service, loop, messages()

    def server_live(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        return self._messages["ServerLiveResponse"](live=True)

    def server_ready(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        return self._messages["ServerReadyResponse"](ready=True)

    def server(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        return self._messages["ServerMetadataResponse"](**self._service.about_server())

    def model_ready(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        model = self._service.models.served(request.name, request.version or None)
        return self._messages["ModelReadyResponse"](ready=model.state == "ready")

    def model(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        about = self._service.about_model(self._service.models.served(request.name, request.version or None))
        del about["parameters"]  # gRPC's message has none
        return self._messages["ModelMetadataResponse"](**about)

    def index(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        rows = self._service.models.index()
        if request.ready:
            rows = [row for row in rows if row["state"] == READY]
        return self._messages["RepositoryIndexResponse"](models=rows)

    def load(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        self._service.access.check_admin(call.header("authorization"))
        change = self._service.load(request.model_name, _version_of(request))
        call.result(asyncio.run_coroutine_threadsafe(change, self._loop))
        return self._messages["RepositoryModelLoadResponse"]()

    def unload(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        self._service.access.check_admin(call.header("authorization"))
        change = self._service.unload(request.model_name, _version_of(request))
        call.result(asyncio.run_coroutine_threadsafe(change, self._loop))
        return self._messages["RepositoryModelUnloadResponse"]()


def _version_of(request: Any) -> str | None:
    parameter = request.parameters.get("version")
    return None if parameter is None else str(_value(parameter))


class _Infer:
    """Inference: one request, or one of a stream."""

    def __init__(self, service: Service, loop: asyncio.AbstractEventLoop) -> None:
        self._service, self._loop, self._answer = service, loop, messages()["ModelInferResponse"]
        self._request = messages()["ModelInferRequest"]
        self._streamed = messages()["ModelStreamInferResponse"]
        traces = service.traces
        self._one_of_stream = (
            self.one if traces is None else traces.over_grpc(self.one, public_error, answers=False)
        )

    def one(self, request: Any, call: GrpcCall, lease: Lease) -> Any:
        models, name = self._service.models, request.model_name
        version = self._service.version_for(name, request.model_version or None, call.headers())
        key = models.resolve(name, version)
        if models.is_out(key):  # the event loop limits the time in which it is loaded again
            loaded = asyncio.run_coroutine_threadsafe(self._service.key(name, version), self._loop)
            key = call.result(loaded)
        with models.used(key) as model:
            lease.hold(lease.size_bytes + model.run_bytes)
            return self._one(model, request, call)

    def _one(self, model: ServedModel, request: Any, call: GrpcCall) -> Any:
        since_s = time.monotonic()
        with self._service.admitted():
            with traced("prepare"):
                inference = request_of(request, model)
            left_s = call.time_remaining()
            if left_s is not None:
                left_ms = max(1000 * left_s, 0.001)
                inference = inference._replace(timeout_ms=min(inference.timeout_ms or math.inf, left_ms))
            arrays = self._service.run_in_thread(model, inference, since_s, call.result)
            return self._response(inference, arrays, model)

    def streamed(self, content: bytes, call: GrpcCall) -> Any:
        """Respond to one request of a stream. An error is sent as a response, and the stream continues."""
        request = None
        with self._service.memory.lease(call.host) as lease:
            try:
                request = parsed(self._request, content, lease)
                return self._streamed(infer_response=self._one_of_stream(request, call, lease))
            except Exception as problem:
                answer = self._streamed(error_message=str(public_error(problem)))
                if request is not None:
                    answer.infer_response.id = request.id  # the client knows by it which one failed
                return answer

    def _response(self, request: Request, arrays: Mapping[str, Array], model: ServedModel) -> Any:
        answer = self._answer(model_name=model.name, model_version=model.version, id=request.id)
        for name in request.requested_outputs:
            array = arrays[name]
            answer.outputs.add(name=name, datatype=DATATYPES[array.dtype.name], shape=array.shape)
            answer.raw_output_contents.append(
                array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
            )
        return answer


def request_of(message: Any, model: ServedModel) -> Request:
    """Convert a ModelInferRequest to a request.

    Raises:
        RequestError: it is not one for this model.
    """
    raw, count = message.raw_input_contents, len(model.shapes[-1].inputs)
    if raw and len(raw) != len(message.inputs):
        raise RequestError(f"raw_input_contents has {len(raw)} entries for {len(message.inputs)} inputs")
    tensors = message.inputs[: count + 8]  # each becomes an object
    specs = specs_of([(t.name, t.datatype, list(t.shape[:RANK_LIMIT])) for t in tensors], model.shapes)
    feeds: dict[str, Array] = {}
    for index, (tensor, spec) in enumerate(zip(tensors, specs, strict=True)):
        feeds[spec.name] = from_bytes(memoryview(raw[index]), spec) if raw else _contents(tensor, spec)
    available = {spec.name for spec in model.session.outputs}
    requested = [output.name for output in message.outputs]
    if unknown := [name for name in requested if name not in available]:
        raise RequestError(
            f"there is no output {unknown[0][:64]!r}; the model has {', '.join(sorted(available))}"
        )
    if len(message.id) > 256:
        raise RequestError("id must be a string of at most 256 characters")
    parameters = {name: _value(value) for name, value in message.parameters.items()}
    requested = requested or [spec.name for spec in model.session.outputs]
    return Request(
        feeds, dict.fromkeys(requested, True), message.id, timeout_ms(parameters), priority(parameters)
    )


def _value(parameter: Any) -> Any:
    kind = parameter.WhichOneof("parameter_choice")
    return None if kind is None else getattr(parameter, kind)


def _contents(tensor: Any, spec: TensorSpec) -> Array:
    field = CONTENTS.get(tensor.datatype)
    if field is None:
        raise RequestError(f"input {spec.name} is {tensor.datatype}: send it as raw_input_contents")
    values = getattr(tensor.contents, field)
    size = math.prod(spec.shape)
    if len(values) != size:
        raise RequestError(f"{field} of input {spec.name} has {len(values)} values; the model takes {size}")
    dtype = np.dtype(spec.dtype)
    wide = np.array(values, {"int_contents": np.int32, "uint_contents": np.uint32}.get(field, dtype))
    if dtype.kind in "iu" and size:
        limits = np.iinfo(dtype)
        if int(wide.min()) < limits.min or int(wide.max()) > limits.max:
            raise RequestError(
                f"a value in {field} of input {spec.name} is out of the range of {tensor.datatype}"
            )
    array: Array = wide.astype(dtype).reshape(spec.shape)
    return array
