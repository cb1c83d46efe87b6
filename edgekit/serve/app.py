"""The ASGI app of a server: the Open Inference Protocol v2 over HTTP, health and metrics.

    app = make_app(models, Access(token=None, loopback=True), limits)

It can be mounted in another ASGI app. Every error is the protocol's ``{"error": "..."}``.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgekit._version import __version__
from edgekit.errors import BusyError, EdgeKitError, UsageError
from edgekit.runtime.metrics.prometheus import CONTENT_TYPE
from edgekit.serve.inference_requests import EXTENSIONS, LENGTH, RequestError, answer_of, metadata, request_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from edgekit.serve.served_models import ServedModel, ServedModels

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
DISCARDED_BYTES = 8 << 20
"""Read beyond the limit and thrown away: who still sends when the connection is closed may not see why."""
BODY_SECONDS = 30.0
"""In which a body must have come: a client that sends it slowly holds memory."""
IN_FLIGHT = 256
"""Requests at once, of all models; more are refused."""
THREADED_BYTES = 64 << 10
"""Bodies above it are parsed in a thread: the others' connections go on meanwhile."""
OPEN = ("/v2/health/live", "/v2/health/ready")
"""Without a token: for the probes of an orchestrator. They say nothing of the models."""

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True)
class Access:
    """Who may ask.

    Attributes:
        token: Of ``Authorization: Bearer ...``; None: everybody who reaches the socket.
        loopback: The socket is on loopback: requests whose Host is another name are refused, because a web
            page can point a name of its own at 127.0.0.1 (DNS rebinding).
    """

    token: str | None = None
    loopback: bool = True


class _App:
    def __init__(self, models: ServedModels, access: Access, in_flight: int) -> None:
        self._models, self._access, self._limit = models, access, in_flight
        self._running = 0

    # --- about -------------------------------------------------------------------------------------------

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"ready": True})

    async def server(self, request: Request) -> Response:
        return JSONResponse({"name": "edgekit", "version": __version__, "extensions": list(EXTENSIONS)})

    async def index(self, request: Request) -> Response:
        """Of Triton's model repository extension, without its states."""
        rows = [{"name": m.name, "version": m.version, "state": "READY", "reason": ""} for m in self._models]
        return JSONResponse(rows)

    async def model(self, request: Request) -> Response:
        model = self._find(request)
        active = model.session.active
        return JSONResponse(
            {
                "name": model.name,
                "versions": self._models.versions(model.name),
                "platform": "edgekit",
                "inputs": metadata(model.session.inputs),
                "outputs": metadata(model.session.outputs),
                "parameters": {"variant": active.variant, "engine": active.engine},
            }
        )

    async def model_ready(self, request: Request) -> Response:
        model = self._find(request)
        state = model.session.state
        return JSONResponse({"name": model.name, "ready": state == "ready"}, 200 if state == "ready" else 503)

    async def metrics(self, request: Request) -> Response:
        return Response(self._models.prometheus(), headers={"Content-Type": CONTENT_TYPE})

    def _find(self, request: Request) -> ServedModel:
        return self._models.find(request.path_params["model"], request.path_params.get("version"))

    # --- inference ---------------------------------------------------------------------------------------

    async def infer(self, request: Request) -> Response:
        model = self._find(request)
        if self._running >= self._limit:
            raise RequestError(f"{self._limit} requests are being answered; come again", 503, 1)
        self._running += 1
        try:
            return await self._infer(request, model)
        finally:
            self._running -= 1

    async def _infer(self, request: Request, model: ServedModel) -> Response:
        body = await _body(request, model.limit_bytes)
        session = model.session
        parse = partial(request_of, body, request.headers.get(LENGTH), session.inputs, session.outputs)
        asked = await run_in_threadpool(parse) if len(body) > THREADED_BYTES else parse()
        try:
            arrays = await asyncio.wrap_future(model.run(asked.feeds, asked.timeout_ms))
        except BusyError as problem:
            raise model.overdue(problem) from None
        except (CancelledError, asyncio.CancelledError):
            raise RequestError("the server is ending", 503, 1) from None
        content, headers = answer_of(asked, arrays, model.name, model.version)
        return Response(content, headers=headers)

    # --- who may ask, and errors -------------------------------------------------------------------------

    def guarded(self, handler: Handler) -> Handler:
        async def guard(request: Request) -> Response:
            self._check(request)
            return await handler(request)

        return guard

    def _check(self, request: Request) -> None:
        """Raises: RequestError: 401 or 403."""
        access = self._access
        if access.token is None:
            host = request.headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if access.loopback and name not in LOOPBACK:
                raise RequestError(f"this server is for {LOOPBACK[0]} only, not for {host[:80]!r}", 403)
            return
        if request.url.path in OPEN:
            return
        said = request.headers.get("authorization", "")
        if not hmac.compare_digest(said.encode(), f"Bearer {access.token}".encode()):
            raise RequestError("the token is missing or wrong: send Authorization: Bearer TOKEN", 401)


def make_app(models: ServedModels, access: Access | None = None, in_flight: int = IN_FLIGHT) -> Starlette:
    """The app of some models, which it closes when it ends.

    Args:
        models: Loaded.
        access: Who may ask; None: loopback without a token.
        in_flight: Most requests at once.
    """
    app = _App(models, access or Access(), in_flight)
    model = "/v2/models/{model}"
    both = (model, model + "/versions/{version}")
    table: list[tuple[str, str, Handler]] = [
        ("/v2/health/live", "GET", app.live),
        ("/v2/health/ready", "GET", app.ready),
        ("/v2", "GET", app.server),
        ("/v2/repository/index", "POST", app.index),
        *((path, "GET", app.model) for path in both),
        *((f"{path}/ready", "GET", app.model_ready) for path in both),
        *((f"{path}/infer", "POST", app.infer) for path in both),
        ("/metrics", "GET", app.metrics),
    ]
    routes = [Route(path, app.guarded(handler), methods=[method]) for path, method, handler in table]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await run_in_threadpool(models.close)

    handlers: dict[Any, Any] = {HTTPException: _http_error, EdgeKitError: _error, Exception: _bug}
    handlers[ClientDisconnect] = _gone
    return Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)


async def _body(request: Request, limit_bytes: int) -> bytes:
    """All of a request's body.

    Raises:
        RequestError: it is too large, compressed, or does not come in time.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise RequestError("compressed bodies are not taken; send it as it is", 415)
    too_large = RequestError(f"the body is larger than this model's limit of {limit_bytes} bytes", 413)
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > limit_bytes + DISCARDED_BYTES:
        raise too_large
    try:
        return await asyncio.wait_for(_read(request, limit_bytes, too_large), BODY_SECONDS)
    except asyncio.TimeoutError:  # in Python 3.10 not the built-in one
        raise RequestError(f"the body did not come within {BODY_SECONDS:g} s", 408) from None


async def _read(request: Request, limit_bytes: int, too_large: RequestError) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit_bytes + DISCARDED_BYTES:
            raise too_large
        if size <= limit_bytes:
            pieces.append(piece)
    if size > limit_bytes:
        raise too_large
    return b"".join(pieces)


def _json(message: str, status: int, retry_after_s: int | None = None) -> Response:
    headers = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
    if status in (401, 403, 408, 413, 415):
        headers["Connection"] = "close"  # what is left of the body is not read
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    content = json.dumps({"error": message}).encode()
    return Response(content, status, {**headers, "Content-Type": "application/json"})


async def _error(request: Request, problem: Exception) -> Response:
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
