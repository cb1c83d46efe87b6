"""A server of bundles: its socket, its processes and its end, by uvicorn.

SIGTERM drains: no new connection is taken, running and queued requests are answered, then the process ends.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
from collections.abc import Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from edgekit.errors import MissingDependency, UsageError
from edgekit.serve.bundle_names import Key, bundles_by_name
from edgekit.serve.connections import (
    FILES,
    ConnectionLimits,
    Connections,
    connection_limits,
    raised_open_files,
)
from edgekit.serve.request_memory import RequestMemory, ServingLimits, default_budget_bytes
from edgekit.serve.seldom_logged import log_seldom
from edgekit.serve.serve_request import ServeRequest
from edgekit.serve.served_model import Paths, ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.tls import Tls, tls_of
from edgekit.serve.worker_group import WorkerGroup, last_state
from edgekit.serve.worker_metrics import WorkerMetrics
from edgekit.system.cpu import default_threads
from edgekit.system.declared_options import called_with, restored, stored_options
from edgekit.system.listen_address import Address, address_of
from edgekit.system.memory import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import uvicorn
    from starlette.applications import Starlette

    from edgekit.serve.grpc_server import GrpcServer
    from edgekit.serve.service import Access, Service

SETTINGS = "EDGEKIT_SERVE"
"""Environment variable of worker processes: what they serve, as JSON."""
WEBSOCKETS = "edgekit.serve.websocket_protocol:WebSocketProtocol"
BACKLOG = 1024
"""Connections that the system keeps until the server takes them."""
DRAIN_SECONDS = 30


def token_for(address: Address, token_file: Path | None, tls: Tls | None = None) -> str | None:
    """Return the token that clients must send: the file's, or a random one if others can reach the socket
    without a certificate. Return None if no token is needed.

    Raises:
        UsageError: the file can't be read, or does not hold a token of 16 or more plain characters.
    """
    if token_file is None:
        return None if address.loopback or (tls and tls.clients) else secrets.token_urlsafe(24)
    return read_token(token_file)


def read_token(token_file: Path) -> str:
    """Read the token of a file.

    Raises:
        UsageError: the file can't be read, or does not hold a token of 16 or more plain characters.
    """
    try:
        token = token_file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{token_file} can't be read as a token: {problem}") from None
    if not (token.isascii() and token.isprintable() and " " not in token and 16 <= len(token) <= 512):
        raise UsageError(
            f"{token_file} does not hold a token: one line of 16 to 512 characters without spaces"
        )
    return token


@called_with(ServeRequest)
def serve(request: ServeRequest) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        MissingDependency: the extra ``serve`` is not installed.
        UsageError: an option is wrong, or the address is in use.
        As ``ServedModels``.
    """
    request.check()
    need_packages(request.grpc is not None)
    from edgekit.serve.service import Access

    address = address_of(request.listen)
    grpc = None if request.grpc is None else address_of(request.grpc, "--grpc")
    tls = _tls(request)
    token = token_for(address if grpc is None or grpc.loopback else grpc, request.token_file, tls)
    admin_token = None if request.admin_token_file is None else read_token(request.admin_token_file)
    if admin_token is not None and admin_token == token:
        raise UsageError("--admin-token-file and --token-file hold the same token; they must differ")
    bundles = bundles_by_name(request.bundles)
    files = raised_open_files(request.connections + FILES)
    connections = connection_limits(request.connections, request.address_share, files, grpc is not None)
    limits = _limits(request)
    with ExitStack() as sockets:
        listening = sockets.enter_context(_listening(address))
        address = replace(address, port=listening.getsockname()[1])
        target = None
        if grpc is not None:
            port, reserved = _reserved_port(grpc, request.workers > 1)
            sockets.enter_context(reserved)
            target = f"{grpc.shown}:{port}"
        exposed = grpc is not None and not grpc.loopback
        access = Access(token, address.loopback, admin_token, exposed)
        models = _models(request, bundles)
        beside_it = None
        if target is not None and request.workers == 1:
            beside_it = _grpc_server(models, target, tls, connections, limits)
            target = f"{grpc.shown}:{beside_it.port}" if grpc is not None else None
        url = f"http{'s' * (tls is not None)}://{address.shown}:{address.port}"
        request.announce(url, target, token if request.token_file is None else None, models)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises it again after the drain
            signal.signal(number, _ended)
        if request.workers == 1:
            import uvicorn

            app = _app_of(models, access, beside_it, limits, connections)
            uvicorn.Server(_config(app, 1, tls)).run(sockets=[listening])
            return
        models.close()  # that they load is known; the workers load their own
        from edgekit.serve.worker_restarts import Workers

        shared = sockets.enter_context(TemporaryDirectory(prefix="edgekit-serve-"))  # its mode is 0700
        settings: dict[str, Any] = {"request": stored_options(request), "grpc": target, "folder": shared}
        settings |= {"bundles": _as_json(bundles), "access": asdict(access)}
        settings |= {"limits": asdict(limits), "connections": asdict(connections)}
        os.environ[SETTINGS] = json.dumps(settings)
        config = _config("edgekit.serve.server:worker_app", request.workers, tls)
        Workers(config, sockets=[listening]).run()


def worker_app() -> Starlette:
    """Return the app of a worker process, configured from its environment."""
    from edgekit.serve.service import Access

    settings = json.loads(os.environ[SETTINGS])
    request = restored(ServeRequest, settings["request"])
    bundles = {(name, version): tuple(map(Path, paths)) for name, version, *paths in settings["bundles"]}
    folder = Path(settings["folder"])
    models = _models(request, bundles, last_state(folder))
    group = WorkerGroup(folder, models) if WorkerGroup.possible() else None
    limits, connections = ServingLimits(**settings["limits"]), ConnectionLimits(**settings["connections"])
    access, metrics, target = Access(**settings["access"]), WorkerMetrics(folder), settings["grpc"]
    grpc = None if target is None else _grpc_server(models, target, _tls(request), connections, limits, True)
    return _app_of(models, access, grpc, limits, connections, metrics, group)


def _tls(request: ServeRequest) -> Tls | None:
    return tls_of(request.tls_cert, request.tls_key, request.tls_clients)


def _limits(request: ServeRequest) -> ServingLimits:
    share_mb = request.request_memory_mb and request.request_memory_mb << 20
    each_bytes = share_mb // request.workers if share_mb else default_budget_bytes(request.workers)
    return ServingLimits(request.connections, request.address_share, each_bytes)


def _models(
    request: ServeRequest, bundles: Mapping[Key, Paths], state: Mapping[str, Any] | None = None
) -> ServedModels:
    """Load the models; ``state``: of another worker, see ``ServedModels``."""
    threads = request.threads or max(1, default_threads() // request.workers)
    return ServedModels(
        bundles,
        ServeOptions(
            request.engine,
            threads,
            request.deadline_ms,
            request.queue,
            request.text_deadline_ms,
            request.conversations,
            request.context,
        ),
        repository=request.repository,
        memory_bytes=None if request.memory_mb is None else request.memory_mb << 20,
        state=state,
    )


def _as_json(bundles: Mapping[tuple[str, str], Paths]) -> list[list[str]]:
    return [[*key, *(str(path.resolve()) for path in paths)] for key, paths in bundles.items()]


def _grpc_server(
    models: ServedModels,
    target: str,
    tls: Tls | None,
    connections: ConnectionLimits,
    limits: ServingLimits,
    shares_port: bool = False,
) -> GrpcServer:
    from edgekit.serve.grpc_message_cost import limit_bytes
    from edgekit.serve.grpc_server import GrpcServer

    most_bytes = max((limit_bytes(inputs) for model in models for inputs, _ in model.shapes), default=0)
    return GrpcServer(
        target,
        most_bytes or limit_bytes([]),
        connections.grpc,
        limits.address_share,
        tls,
        shares_port,
    )


def _app_of(
    models: ServedModels,
    access: Access,
    grpc: GrpcServer | None,
    limits: ServingLimits,
    connections: ConnectionLimits,
    shared: WorkerMetrics | None = None,
    group: WorkerGroup | None = None,
) -> Starlette:
    """Return the app, which runs the gRPC server, if any. ``shared`` and ``group`` are for one of several
    workers."""
    from edgekit.serve.app import make_app
    from edgekit.serve.request_traces import traces_of_environment

    @asynccontextmanager
    async def grpc_server(service: Service) -> AsyncIterator[None]:
        from edgekit.serve.grpc_service import start

        assert grpc is not None
        start(grpc, service)
        try:
            yield
        finally:
            await grpc.close(DRAIN_SECONDS)

    log_seldom()
    return_freed_memory()
    memory = RequestMemory(limits.request_bytes, limits.address_share)
    return make_app(
        models,
        access,
        memory=memory,
        connections=Connections(connections),
        shared=shared,
        group=group,
        companion=None if grpc is None else grpc_server,
        traces=traces_of_environment(),
    )


def need_packages(grpc: bool = False) -> None:
    """Raise MissingDependency if uvicorn, httptools or Starlette is not installed, or grpcio for gRPC."""
    needed = {"uvicorn": "uvicorn", "httptools": "httptools", "starlette": "starlette"}
    for module, package in {**needed, **({"grpc": "grpcio"} if grpc else {})}.items():
        if find_spec(module) is None:
            raise MissingDependency(package, "serving bundles", extra="serve")


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol by name: asyncio turns Nagle's algorithm off only where it reads TCP, and an answer in two
    # writes otherwise waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        reason = problem.strerror or problem
        raise UsageError(f"can't listen on {address.shown}:{address.port}: {reason}") from None
    return listener


def _reserved_port(address: Address, is_shared: bool) -> tuple[int, socket.socket]:
    """Return gRPC's port, or 0 for any, and a socket that keeps a shared one until each process listens
    there. Systems without SO_REUSEPORT keep nothing.

    Raises:
        UsageError: another program has the port.
    """
    with _listening(address) as probe:  # an exclusive one: SO_REUSEPORT shares with any server of this user
        port = probe.getsockname()[1]
    reserved = socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET, socket.SOCK_STREAM)
    if is_shared and hasattr(socket, "SO_REUSEPORT"):
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((address.host, port))
    return port if is_shared else address.port, reserved


def _config(
    app: Starlette | str,
    workers: int,
    tls: Tls | None = None,
) -> uvicorn.Config:
    import uvicorn

    from edgekit.serve.http_protocol import KEPT_SECONDS
    from edgekit.serve.pictures import PICTURE_BYTES

    return uvicorn.Config(
        app,
        factory=isinstance(app, str),
        workers=workers,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        loop="edgekit.serve.event_loop:new_event_loop",
        http="edgekit.serve.http_protocol:HttpProtocol",
        ws="none"
        if find_spec("websockets") is None
        else "edgekit.serve.websocket_protocol:WebSocketProtocol",
        ws_max_size=PICTURE_BYTES,
        ws_per_message_deflate=False,  # a few bytes could become a message of the greatest size
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=int(KEPT_SECONDS),
        timeout_graceful_shutdown=DRAIN_SECONDS,
        **({} if tls is None else tls.uvicorn_options()),
    )


def _ended(*_: object) -> None:
    """Ignore the signal, because nothing is left to do after the drain."""
