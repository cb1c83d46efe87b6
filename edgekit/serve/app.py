"""The ASGI app of a server: the Open Inference Protocol v2 over HTTP, health and metrics.

    app = make_app(models, Access(token=None, loopback=True), limits)

It can be mounted in another ASGI app. Every error is the protocol's ``{"error": "..."}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from edgekit.errors import EdgeKitError
from edgekit.runtime.metrics import prometheus
from edgekit.serve import openapi, prometheus_protobuf, try_page
from edgekit.serve.http_errors import error_response, response_of
from edgekit.serve.infer_path import InferPath, named_in
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.model_entries import READY
from edgekit.serve.openai import OpenAiPath
from edgekit.serve.pictures import PICTURE_BYTES, Pictures
from edgekit.serve.request_memory import RequestMemory, began_s, headers_of, host_of, read_body
from edgekit.serve.request_traces import ServerTraces, route_of
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_models import ServedModels
from edgekit.serve.served_text import ServedText
from edgekit.serve.service import IN_FLIGHT, Service
from edgekit.serve.service import Access as Access
from edgekit.serve.traffic_split import TrafficSplit
from edgekit.serve.triton_extensions import model_config, model_statistics

HOURS_S = 30.0
"""How often the hours of models are looked at."""
YOUNGEST_COLLECTIONS, YOUNGER_COLLECTIONS = 1, 500
"""Collections of the youngest objects before one of those that have survived one, and of these before a full
one; Python's own numbers are 10. Each object is looked at as often, but fewer at a time."""
SMALL_BYTES = 64 << 10
"""Of a body that holds no tensors."""
MOST_VALUE = 1e9
"""Maximum absolute value of an outcome."""
OPEN = ("/", "/v2/health/live", "/v2/health/ready")
"""Without a token: the page to try a model, which asks for one, and the probes of an orchestrator. They say
nothing of the models."""

Handler = Callable[[Request], Awaitable[Response]]


class _App:
    def __init__(self, service: Service) -> None:
        self._service, self._models = service, service.models
        self._pictures = Pictures(service)

    # --- about -------------------------------------------------------------------------------------------

    async def page(self, request: Request) -> Response:
        return try_page.page()

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = all(model.state != "incomplete" for model in self._models)
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def server(self, request: Request) -> Response:
        return JSONResponse(self._service.about_server())

    async def model(self, request: Request) -> Response:
        model = self._find(request)
        about = self._service.about_model(model)
        parameters = {**about["parameters"], "accepts": try_page.accepts(model)}
        return JSONResponse({**about, "parameters": parameters})

    async def model_ready(self, request: Request) -> Response:
        model = self._find(request)
        state = model.state
        return JSONResponse({"name": model.name, "ready": state == "ready"}, 200 if state == "ready" else 503)

    async def config(self, request: Request) -> Response:
        return JSONResponse(model_config(self._find(request)))

    async def statistics(self, request: Request) -> Response:
        if "model" in request.path_params:
            models = [self._find(request)]
        else:
            models = [model for _, model in self._models.current() if model is not None]
        rows = await run_in_threadpool(lambda: [model_statistics(model) for model in models])
        return JSONResponse({"model_stats": rows})

    async def metrics(self, request: Request) -> Response:
        as_protobuf = prometheus_protobuf.MEDIA_TYPE in request.headers.get("Accept", "")
        content = await run_in_threadpool(_metrics_of, self._models, as_protobuf)
        kind = prometheus_protobuf if as_protobuf else prometheus
        return Response(content, headers={"Content-Type": kind.CONTENT_TYPE})

    def _find(self, request: Request) -> ServedModel | ServedText:
        return self._models.served(request.path_params["model"], request.path_params.get("version"))

    # --- inference ---------------------------------------------------------------------------------------

    async def predict(self, request: Request) -> Response:
        path, since_s, begun_s = request.path_params, began_s(request.scope), time.monotonic()
        with self._service.memory.lease(host_of(request.scope)) as lease:
            headers = headers_of(request.scope)
            async with self._service.model(path["model"], self._version(path, headers)) as model:
                self._pictures.check(model)
                content = await read_body(headers, request.receive, PICTURE_BYTES, lease)
                lease.hold(len(content))
                since_s += time.monotonic() - begun_s  # the deadline counts from when all of it is there
                with self._service.admitted():
                    return JSONResponse(await self._pictures.predict(model, content, since_s, lease))

    def _version(self, path: Mapping[str, str], headers: Mapping[bytes, bytes]) -> str | None:
        return self._service.version_for(path["model"], path.get("version"), headers)

    async def report_outcome(self, request: Request) -> Response:
        model = self._find(request)
        value = (await _object_of(request)).get("value")
        if not isinstance(value, int | float) or not abs(value) <= MOST_VALUE:
            raise RequestError(f"value must be a number of at most {MOST_VALUE:g}, or true or false")
        self._service.split.report((model.name, model.version), float(value))
        return JSONResponse({})

    async def outcomes(self, request: Request) -> Response:
        name = request.path_params["model"]
        return JSONResponse(self._service.split.outcomes(name, self._models.resolve(name, None)[1]))

    async def events(self, request: Request) -> Response:
        name = self._find(request).name
        stream = await self._pictures.events(name, request.headers.get("last-event-id", ""))
        headers = {"Cache-Control": "no-store"}
        return StreamingResponse(stream, media_type="text/event-stream", headers=headers)

    async def stream(self, socket: WebSocket) -> None:
        try:
            self._allow(socket, is_open=False)
            self._models.resolve(socket.path_params["model"], socket.path_params.get("version"))
        except RequestError as problem:
            await socket.send_denial_response(response_of(problem))
            return
        number = 0
        with contextlib.suppress(WebSocketDisconnect):
            await socket.accept()
            while (message := await socket.receive())["type"] != "websocket.disconnect":
                await socket.send_json({"index": number, **await self._streamed(socket, message)})
                number += 1

    async def _streamed(self, socket: WebSocket, message: Mapping[str, Any]) -> dict[str, Any]:
        path, content, since_s = socket.path_params, message.get("bytes"), time.monotonic()
        try:
            if content is None:
                raise RequestError("send each picture as a binary message")
            with self._service.memory.lease(host_of(socket.scope)) as lease, self._service.admitted():
                version = self._version(path, headers_of(socket.scope))
                async with self._service.model(path["model"], version) as model:
                    return await self._pictures.predict(model, content, since_s, lease)
        except EdgeKitError as problem:
            response = response_of(problem)
            return {**json.loads(bytes(response.body)), "status": response.status_code}

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(openapi.document())

    # --- models ------------------------------------------------------------------------------------------

    async def index(self, request: Request) -> Response:
        rows = self._models.index()
        if (await _object_of(request)).get("ready") is True:
            rows = [row for row in rows if row["state"] == READY]
        return JSONResponse(rows)

    async def load(self, request: Request) -> Response:
        self._check_admin(request)
        await self._service.load(request.path_params["model"], await _version_of(request))
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        self._check_admin(request)
        await self._service.unload(request.path_params["model"], await _version_of(request))
        return JSONResponse({})

    def _check_admin(self, request: Request) -> None:
        self._service.access.check_admin(request.headers.get("authorization", ""))

    # --- who may ask, and errors -------------------------------------------------------------------------

    def guarded(self, handler: Handler, is_open: bool) -> Handler:
        async def guard(request: Request) -> Response:
            self._allow(request, is_open)
            return await handler(request)

        return guard

    def _allow(self, request: HTTPConnection, is_open: bool) -> None:
        self._service.access.check(headers_of(request.scope), is_open)


class _PastStarlette(Starlette):
    """Requests for inference go past Starlette, whose layers cost as much again as the request.

    Attributes:
        traces: Records a span of each request, if given.
    """

    infer: InferPath
    memory: RequestMemory
    traces: ServerTraces | None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        route = "" if self.traces is None or scope["type"] != "http" else route_of(scope)
        if self.traces is not None and route:
            await self.traces.over_http(self._answer, route, scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        quick = scope["type"] == "http" and scope["method"] == "POST" and not scope.get("root_path")
        if quick and not self.user_middleware:
            named = named_in(scope["path"])
            if named is not None:
                scope["path_params"] = named
                await self.infer(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def make_app(
    models: ServedModels,
    access: Access | None = None,
    in_flight: int = IN_FLIGHT,
    *,
    memory: RequestMemory | None = None,
    companion: Callable[[Service], AbstractAsyncContextManager[object]] | None = None,
    traces: ServerTraces | None = None,
    split: TrafficSplit | None = None,
) -> Starlette:
    """Create the app of some models, which it closes when it ends.

    Args:
        companion: Context that runs as long as the app and uses the same service, e.g. gRPC.
        traces: Records spans of requests, and is closed with the app, if given.
    """
    service = Service(models, access or Access(), in_flight, memory, traces, split)
    app = _App(service)
    model = "/v2/models/{model}"
    both = (model, model + "/versions/{version}")
    table: list[tuple[str, str, Handler]] = [
        ("/", "GET", app.page),
        ("/v2/health/live", "GET", app.live),
        ("/v2/health/ready", "GET", app.ready),
        ("/v2", "GET", app.server),
        ("/v2/repository/index", "POST", app.index),
        ("/v2/repository/models/{model}/load", "POST", app.load),
        ("/v2/repository/models/{model}/unload", "POST", app.unload),
        ("/v2/models/stats", "GET", app.statistics),
        *((path, "GET", app.model) for path in both),
        *((f"{path}/ready", "GET", app.model_ready) for path in both),
        *((f"{path}/config", "GET", app.config) for path in both),
        *((f"{path}/stats", "GET", app.statistics) for path in both),
        *((f"{path}/predict", "POST", app.predict) for path in both),
        *((f"{path}/outcomes", "POST", app.report_outcome) for path in both),
        *((f"{path}/outcomes", "GET", app.outcomes) for path in both),
        (f"{model}/events", "GET", app.events),
        ("/v2/openapi.json", "GET", app.openapi),
        ("/metrics", "GET", app.metrics),
    ]
    routes: list[BaseRoute] = [
        Route(path, app.guarded(handler, path in OPEN), methods=[method]) for path, method, handler in table
    ]
    infer = InferPath(service)
    routes += [Route(f"{path}/infer", infer, methods=["POST"]) for path in both]  # where it is mounted
    routes.append(Route("/v1/{path:path}", OpenAiPath(service)))
    routes += [WebSocketRoute(f"{path}/stream", app.stream) for path in both]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with nullcontext() if companion is None else companion(service):
            hours = asyncio.ensure_future(_keep_hours(models))
            try:
                with _rare_full_collections():
                    yield
            finally:
                hours.cancel()
                await asyncio.wait([hours])  # it may be in a thread
                await service.changes_ended()
        await run_in_threadpool(models.close)
        if traces is not None:
            await run_in_threadpool(traces.close)

    handlers: dict[Any, Any] = {HTTPException: _http_error, EdgeKitError: _error, Exception: _error}
    whole = _PastStarlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    whole.infer, whole.memory, whole.traces = infer, service.memory, traces
    return whole


@contextlib.contextmanager
def _rare_full_collections() -> Iterator[None]:
    """Keep full collections of Python's garbage rare, in which nothing is answered.

    One of all that is loaded takes 25 ms, and one with a thousand connections 60 ms. Requests and connections
    over HTTP leave no garbage that refers to itself.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(before[0], YOUNGEST_COLLECTIONS, YOUNGER_COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _keep_hours(models: ServedModels) -> None:
    while True:
        await run_in_threadpool(models.keep_hours)
        await asyncio.sleep(HOURS_S)


async def _object_of(request: Request) -> dict[str, Any]:
    body = await read_body(headers_of(request.scope), request.receive, SMALL_BYTES)
    try:
        value = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise RequestError("the body is not a JSON object")
    return value


async def _version_of(request: Request) -> str | None:
    parameters = (await _object_of(request)).get("parameters") or {}
    version = parameters.get("version") if isinstance(parameters, dict) else {}
    if version is not None and (not isinstance(version, str | int) or isinstance(version, bool)):
        raise RequestError('parameters.version must be a version, e.g. "3"')
    return None if version is None else str(version)


async def _error(request: Request, problem: Exception) -> Response:
    return response_of(problem)


async def _http_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    messages = {
        404: f"the path {request.url.path[:200]} does not exist",
        405: f"{request.method} is not allowed for this path",
    }
    return error_response(messages.get(problem.status_code, problem.detail), problem.status_code)


def _metrics_of(models: ServedModels, as_protobuf: bool) -> bytes:
    """Return the metrics of all models in a format of Prometheus, which declares each once."""
    families: dict[str, prometheus.Family] = {}
    for model in models:
        snapshot = {**model.metrics.snapshot(), "model": model.name, "version": model.version}
        for family in prometheus.families(snapshot):
            before = families[family.name].samples if family.name in families else ()
            families[family.name] = family._replace(samples=[*before, *family.samples])
    if as_protobuf:
        return prometheus_protobuf.encode(families.values())
    return prometheus.text(families.values()).encode("utf-8")
