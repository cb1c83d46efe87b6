"""The ASGI app of a server: the Open Inference Protocol v2 over HTTP, health and metrics.

    app = make_app(models, Access(token=None, loopback=True), limits)

It can be mounted in another ASGI app. Every error is the protocol's ``{"error": "..."}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgekit.errors import EdgeKitError, UsageError
from edgekit.runtime.metrics.prometheus import CONTENT_TYPE
from edgekit.serve import metrics_text, openapi
from edgekit.serve.inference_requests import LENGTH, RequestError, answer_of, request_of
from edgekit.serve.pictures import PICTURE_BYTES, Pictures
from edgekit.serve.served_models import READY
from edgekit.serve.service import IN_FLIGHT, Service
from edgekit.serve.service import Access as Access
from edgekit.serve.worker_metrics import EVERY_S, WorkerMetrics

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edgekit.serve.served_model import ServedModel
    from edgekit.serve.served_models import ServedModels

SMALL_BYTES = 64 << 10
"""Of a body that holds no tensors."""
DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
BODY_SECONDS = 30.0
"""In which a body must have come: a client that sends it slowly holds memory."""
THREADED_BYTES = 64 << 10
"""Bodies above it are parsed in a thread: the others' connections go on meanwhile."""
OPEN = ("/v2/health/live", "/v2/health/ready")
"""Without a token: for the probes of an orchestrator. They say nothing of the models."""

Handler = Callable[[Request], Awaitable[Response]]


class _App:
    def __init__(self, service: Service, shared: WorkerMetrics | None) -> None:
        self._service, self._models, self._shared = service, service.models, shared
        self._pictures = Pictures(service)

    # --- about -------------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": True})

    async def server(self, request: Request) -> Response:
        return JSONResponse(self._service.about_server())

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._service.about_model(self._find(request)))

    async def model_ready(self, request: Request) -> Response:
        model = self._find(request)
        state = model.session.state
        return JSONResponse({"name": model.name, "ready": state == "ready"}, 200 if state == "ready" else 503)

    async def metrics(self, request: Request) -> Response:
        def whole() -> str:
            own = metrics_text.snapshots(self._models)
            return metrics_text.text(own if self._shared is None else self._shared.with_others(own))

        return Response(await run_in_threadpool(whole), headers={"Content-Type": CONTENT_TYPE})

    def _find(self, request: Request) -> ServedModel:
        return self._models.find(request.path_params["model"], request.path_params.get("version"))

    # --- inference ---------------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        path = request.path_params
        async with self._service.model(path["model"], path.get("version")) as model:
            with self._service.admitted():
                body = await read_body(request, model.limit_bytes)
                session = model.session
                head = request.headers.get(LENGTH)
                parse = partial(request_of, body, head, session.inputs, session.outputs)
                asked = await run_in_threadpool(parse) if len(body) > THREADED_BYTES else parse()
                arrays = await self._service.run(model, asked)
                content, headers = answer_of(asked, arrays, model.name, model.version)
                return Response(content, headers=headers)

    async def predict(self, request: Request) -> Response:
        path = request.path_params
        async with self._service.model(path["model"], path.get("version")) as model:
            with self._service.admitted():
                content = await read_body(request, PICTURE_BYTES)
                return JSONResponse(await self._pictures.predict(model, content))

    async def events(self, request: Request) -> Response:
        name = self._find(request).name
        stream = await self._pictures.events(name, request.headers.get("last-event-id", ""))
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def stream(self, socket: WebSocket) -> None:
        """Pictures in, predictions out, in order; one at a time."""
        try:
            self._allow(socket, is_open=False)
            self._models.resolve(socket.path_params["model"], socket.path_params.get("version"))
        except RequestError as problem:
            await socket.send_denial_response(_json(str(problem), problem.status))
            return
        await socket.accept()
        number = 0
        with contextlib.suppress(WebSocketDisconnect):
            while (message := await socket.receive())["type"] != "websocket.disconnect":
                await socket.send_json({"index": number, **await self._streamed(socket, message)})
                number += 1

    async def _streamed(self, socket: WebSocket, message: Mapping[str, Any]) -> dict[str, Any]:
        path, content = socket.path_params, message.get("bytes")
        try:
            if content is None:
                raise RequestError("send each picture as a binary message")
            async with self._service.model(path["model"], path.get("version")) as model:
                with self._service.admitted():
                    return await self._pictures.predict(model, content)
        except EdgeKitError as problem:
            told = await _error(socket, problem)
            return {**json.loads(bytes(told.body)), "status": told.status_code}

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(openapi.document())

    # --- models ------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        rows = self._models.index()
        if (await _object_of(request)).get("ready") is True:
            rows = [row for row in rows if row["state"] == READY]
        return JSONResponse(rows)

    async def load(self, request: Request) -> Response:
        await self._service.load(request.path_params["model"], await _version_of(request))
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        await self._service.unload(request.path_params["model"], await _version_of(request))
        return JSONResponse({})

    # --- who may ask, and errors -------------------------------------------------------------------------

    def guarded(self, handler: Handler, is_open: bool) -> Handler:
        async def guard(request: Request) -> Response:
            self._allow(request, is_open)
            return await handler(request)

        return guard

    def _allow(self, request: HTTPConnection, is_open: bool) -> None:
        access, host = self._service.access, request.headers.get("host", "")
        access.check_host(host)
        access.check_origin(request.headers.get("origin"), host)
        if not is_open:
            access.check_token(request.headers.get("authorization", ""))


def make_app(
    models: ServedModels,
    access: Access | None = None,
    in_flight: int = IN_FLIGHT,
    *,
    shared: WorkerMetrics | None = None,
    beside: Callable[[Service], AbstractAsyncContextManager[object]] | None = None,
) -> Starlette:
    """The app of some models, which it closes when it ends.

    Args:
        models: Loaded.
        access: Who may ask; None: loopback without a token.
        in_flight: Most requests at once.
        shared: Of a worker, one of several: models are not loaded and unloaded, and metrics are of all.
        beside: What runs as long as the app and answers by the same service, e.g. gRPC.
    """
    service = Service(models, access or Access(), in_flight, alone=shared is None)
    app = _App(service, shared)
    model = "/v2/models/{model}"
    both = (model, model + "/versions/{version}")
    table: list[tuple[str, str, Handler]] = [
        *((f"{path}/infer", "POST", app.infer) for path in both),  # first: each route before it costs 4 us
        ("/v2/health/live", "GET", app.live),
        ("/v2/health/ready", "GET", app.ready),
        ("/v2", "GET", app.server),
        ("/v2/repository/index", "POST", app.index),
        ("/v2/repository/models/{model}/load", "POST", app.load),
        ("/v2/repository/models/{model}/unload", "POST", app.unload),
        *((path, "GET", app.model) for path in both),
        *((f"{path}/ready", "GET", app.model_ready) for path in both),
        *((f"{path}/predict", "POST", app.predict) for path in both),
        (f"{model}/events", "GET", app.events),
        ("/v2/openapi.json", "GET", app.openapi),
        ("/metrics", "GET", app.metrics),
    ]
    routes: list[BaseRoute] = [
        Route(path, app.guarded(handler, path in OPEN), methods=[method]) for path, method, handler in table
    ]
    routes += [WebSocketRoute(f"{path}/stream", app.stream) for path in both]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with nullcontext() if beside is None else beside(service):
            writing = None if shared is None else asyncio.ensure_future(_write(shared, models))
            yield
            if shared is not None and writing is not None:
                writing.cancel()
                await run_in_threadpool(shared.write, metrics_text.snapshots(models))
        await run_in_threadpool(models.close)

    handlers: dict[Any, Any] = {HTTPException: _http_error, EdgeKitError: _error, Exception: _bug}
    handlers[ClientDisconnect] = _gone
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


async def _write(shared: WorkerMetrics, models: ServedModels) -> None:
    """Share this worker's metrics every second."""
    while True:
        await run_in_threadpool(shared.write, metrics_text.snapshots(models))
        await asyncio.sleep(EVERY_S)


async def _object_of(request: Request) -> dict[str, Any]:
    """A small body in JSON; an empty one is an empty object."""
    body = await read_body(request, SMALL_BYTES)
    try:
        found = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RequestError("the body is not a JSON object")
    return found


async def _version_of(request: Request) -> str | None:
    """``parameters.version`` of a body; None: it does not say."""
    parameters = (await _object_of(request)).get("parameters") or {}
    version = parameters.get("version") if isinstance(parameters, dict) else {}
    if version is not None and (not isinstance(version, str | int) or isinstance(version, bool)):
        raise RequestError('parameters.version must be a version, e.g. "3"')
    return None if version is None else str(version)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """All of a request's body.

    Raises:
        RequestError: it is too large, compressed, or does not come in time.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError("compressed bodies are not taken; send it as it is", 415)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit_bytes + DISCARDED_BYTES:
        raise _too_large(limit_bytes)
    try:
        return await asyncio.wait_for(_read(request, limit_bytes), BODY_SECONDS)
    except asyncio.TimeoutError:  # in Python 3.10 not the built-in one
        raise RequestError(f"the body did not come within {BODY_SECONDS:g} s", 408) from None


def _too_large(limit_bytes: int) -> RequestError:
    return RequestError(f"the body is larger than this model's limit of {limit_bytes} bytes", 413)


async def _read(request: Request, limit_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit_bytes + DISCARDED_BYTES:
            raise _too_large(limit_bytes)
        if size <= limit_bytes:
            pieces.append(piece)
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    return b"".join(pieces)


def _json(message: str, status: int, retry_after_s: int | None = None) -> Response:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status in (401, 403, 408, 413, 415):
        headers["Connection"] = "close"  # what is left of the body is not read
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps({"error": message}).encode()
    return Response(content, status, {**headers, "Content-Type": "application/json"})


async def _error(request: HTTPConnection, problem: Exception) -> Response:
    if isinstance(problem, RequestError):
        return _json(str(problem), problem.status, problem.retry_after_s)
    if isinstance(problem, UsageError):
        return _json(str(problem), 400)
    print(f"error: {problem}", file=sys.stderr, flush=True)  # it may name paths of this machine
    return _json("no variant of the model ran this input; the server's log says why", 500)


async def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    what = {404: f"there is no {request.url.path[:200]} here", 405: f"{request.method} is not for this path"}
    return _json(what.get(problem.status_code, problem.detail), problem.status_code)


async def _gone(request: Request, problem: Exception) -> Response:
    return _json("the client is gone", 400)


async def _bug(request: Request, problem: Exception) -> Response:
    traceback.print_exception(problem, file=sys.stderr)
    return _json("the server failed: this is a bug of it; its log says where", 500)


def model_lines(models: ServedModels) -> list[str]:
    """What is served, for the terminal."""
    lines = []
    for model in models:
        active = model.session.active
        lines.append(
            f"  {model.name} {model.version}  {active.variant} on {active.engine}, {active.precision}"
        )
    return lines
