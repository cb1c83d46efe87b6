"""A server of bundles: its socket, its process and its end, by uvicorn.

SIGTERM drains: no new connection is taken, running and queued requests are answered, then the process ends.
"""

from __future__ import annotations

import secrets
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from edgekit.errors import MissingDependency, UsageError
from edgekit.serve.connection_watch import (
    FILES,
    LOOK_SECONDS,
    ConnectionLimits,
    ConnectionWatch,
    connection_limits,
    raised_open_files,
)
from edgekit.serve.model_entries import Key, bundles_by_name
from edgekit.serve.request_memory import RequestMemory
from edgekit.serve.serve_request import ADDRESS_SHARE, ServeRequest
from edgekit.serve.served_model import Paths, ServeOptions
from edgekit.serve.served_models import ServedModels
from edgekit.serve.tls import Tls, tls_of
from edgekit.serve.traffic_split import TrafficSplit, parse_split
from edgekit.system.cpu import default_threads
from edgekit.system.declared_options import called_with
from edgekit.system.listen_address import Address, address_of
from edgekit.system.memory import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import uvicorn
    from starlette.applications import Starlette

    from edgekit.serve.grpc_server import GrpcServer
    from edgekit.serve.service import Access, Service

BACKLOG = 1024
"""Connections that the system keeps until the server takes them."""
DRAIN_SECONDS = 30
USER_TIMEOUT_MS = 15_000
"""Time after which the system ends a connection whose client does not acknowledge data."""


def token_for(is_loopback: bool, token_file: Path | None, tls: Tls | None = None) -> str | None:
    """Return the token that clients must send: the file's, or a random one if clients of other machines need
    no certificate. Return None if no token is needed.

    Raises:
        UsageError: the file can't be read, or does not hold a token of 16 or more plain characters.
    """
    if token_file is None:
        return None if is_loopback or (tls and tls.clients) else secrets.token_urlsafe(24)
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
    if request.frigate is not None:
        from edgekit.serve.frigate.server import serve_frigate

        serve_frigate(request)
        return
    need_packages(request.grpc is not None, request.wyoming is not None)
    from edgekit.serve.service import Access

    address = address_of(request.listen)
    grpc = None if request.grpc is None else address_of(request.grpc, "--grpc")
    wyoming = None if request.wyoming is None else _wyoming_address(request.wyoming, request.behind_proxy)
    tls = _tls(request)
    is_loopback = address.loopback and (grpc is None or grpc.loopback) and not request.behind_proxy
    token = token_for(is_loopback, request.token_file, tls)
    admin_token = None if request.admin_token_file is None else read_token(request.admin_token_file)
    if admin_token is not None and admin_token == token:
        raise UsageError("--admin-token-file and --token-file hold the same token; they must differ")
    _check_exposed(address, grpc, bool(tls or request.behind_proxy))
    split = TrafficSplit([parse_split(text) for text in request.split])
    bundles = bundles_by_name(request.bundles)
    files = raised_open_files(request.connections + FILES)
    share = 1.0 if request.behind_proxy else ADDRESS_SHARE
    connections = connection_limits(request.connections, share, files, grpc is not None)
    limit_mb = request.request_memory_mb
    memory = RequestMemory(None if limit_mb is None else limit_mb << 20, share)
    with ExitStack() as sockets:
        listening = sockets.enter_context(_listening(address))
        address = replace(address, port=listening.getsockname()[1])
        is_loopback = address.loopback and not request.behind_proxy
        access = Access(token, is_loopback, admin_token, grpc is not None and not grpc.loopback)
        if grpc is not None:
            _listening(grpc).close()  # grpcio shares the port with another server of this user
        over_wyoming = None if wyoming is None else sockets.enter_context(_listening(wyoming))
        models = _models(request, bundles)
        if request.repository is None:
            _check_loaded(split, models, over_wyoming is not None)
        over_grpc = target = None
        if grpc is not None:
            over_grpc = _grpc_server(models, f"{grpc.shown}:{grpc.port}", tls, connections, share)
            target = f"{grpc.shown}:{over_grpc.port}"
        url = f"http{'s' * (tls is not None)}://{address.shown}:{address.port}"
        request.announce(url, target, token if request.token_file is None else None, models)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises it again after the drain
            signal.signal(number, _ended)
        app = _app_of(models, access, over_grpc, over_wyoming, memory, split)
        server_of(app, tls, connections).run(sockets=[listening])


def _tls(request: ServeRequest) -> Tls | None:
    return tls_of(request.tls_cert, request.tls_key, request.tls_clients)


def _check_exposed(address: Address, grpc: Address | None, is_protected: bool) -> None:
    for exposed, option in ((address, "--listen"), (grpc, "--grpc")):
        if exposed is not None and not (exposed.loopback or is_protected):
            raise UsageError(
                f"{option} {exposed.shown} lets other machines in, so clients need a token and TLS: give "
                "--tls-cert and --tls-key, or --behind-proxy if a proxy has TLS (docs/serve-behind-nginx.md)"
            )


def _check_loaded(split: TrafficSplit, models: ServedModels, is_wyoming: bool) -> None:
    if is_wyoming:
        from edgekit.serve.wyoming import need_audio

        need_audio(models)
    for name, version in (rule.key for rule in split.rules):
        if version not in (versions := models.versions(name)):
            known = f"; it has {', '.join(versions)}" if versions else ", and is not served"
            raise UsageError(f"--split {name}:{version}: {name} has no version {version}{known}")


def _models(request: ServeRequest, bundles: Mapping[Key, Paths]) -> ServedModels:
    return ServedModels(
        bundles,
        ServeOptions(
            request.engine,
            request.threads or default_threads(),
            request.deadline_ms,
            request.queue,
            request.text_deadline_ms,
            request.conversations,
            request.context,
        ),
        repository=request.repository,
        memory_bytes=None if request.memory_mb is None else request.memory_mb << 20,
    )


def _grpc_server(
    models: ServedModels, target: str, tls: Tls | None, connections: ConnectionLimits, share: float
) -> GrpcServer:
    from edgekit.serve.grpc_message_cost import limit_bytes
    from edgekit.serve.grpc_server import GrpcServer

    most_bytes = max((limit_bytes(inputs) for model in models for inputs, _ in model.shapes), default=0)
    return GrpcServer(target, most_bytes or limit_bytes([]), connections.grpc, share, tls)


def _app_of(
    models: ServedModels,
    access: Access,
    grpc: GrpcServer | None,
    wyoming: socket.socket | None,
    memory: RequestMemory,
    split: TrafficSplit,
) -> Starlette:
    from edgekit.serve.app import make_app
    from edgekit.serve.request_traces import traces_of_environment

    @asynccontextmanager
    async def companions(service: Service) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if grpc is not None:
                from edgekit.serve.grpc_service import start

                start(grpc, service)
                stack.push_async_callback(grpc.close, DRAIN_SECONDS)
            if wyoming is not None:
                from edgekit.serve.wyoming import wyoming_server

                await stack.enter_async_context(wyoming_server(wyoming)(service))
            yield

    return_freed_memory()
    return make_app(
        models,
        access,
        memory=memory,
        companion=companions,
        traces=traces_of_environment(),
        split=split,
    )


def _wyoming_address(text: str, is_protected: bool) -> Address:
    kind, _, rest = text.partition("://")
    if kind != "tcp" or ":" not in rest:
        raise UsageError(f"--wyoming is {text!r}; it must be tcp://HOST:PORT, e.g. tcp://127.0.0.1:10300")
    address = address_of(rest, "--wyoming")
    if not (address.loopback or is_protected):
        raise UsageError(
            f"--wyoming {text} lets other machines in, and the protocol has neither TLS nor a token: use "
            "tcp://127.0.0.1:PORT, or give --behind-proxy if only your satellites reach the address"
        )
    return address


def need_packages(grpc: bool = False, wyoming: bool = False) -> None:
    """Raise MissingDependency if uvicorn, httptools or Starlette is not installed, or grpcio for gRPC, or
    wyoming for Wyoming."""
    if wyoming and find_spec("wyoming") is None:
        raise MissingDependency("wyoming", "serving Wyoming", extra="wyoming")
    needed = {"uvicorn": "uvicorn", "httptools": "httptools", "starlette": "starlette"}
    for module, package in {**needed, **({"grpc": "grpcio"} if grpc else {})}.items():
        if find_spec(module) is None:
            raise MissingDependency(package, "serving bundles", extra="serve")


def _listening(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol by name: asyncio turns Nagle's algorithm off only if it reads TCP, and a response in two
    # writes otherwise waits 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if sys.platform == "linux":  # the connections inherit it
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        reason = problem.strerror or problem
        raise UsageError(f"can't listen on {address.shown}:{address.port}: {reason}") from None
    return listener


def server_of(
    app: Starlette, tls: Tls | None = None, connections: ConnectionLimits | None = None
) -> uvicorn.Server:
    """Return uvicorn's server of an app, with limits on connections."""
    import uvicorn

    from edgekit.serve.http_protocol import KEPT_SECONDS, http_protocol
    from edgekit.serve.pictures import PICTURE_BYTES

    watch = ConnectionWatch(connections or ConnectionLimits())

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:  # each 0.1 s
            if counter % int(10 * LOOK_SECONDS) == 0:
                watch.look(cast("Any", self.server_state.connections))
            return await super().on_tick(counter)

    config = uvicorn.Config(
        app,
        log_level="error",  # a client can cause warnings
        access_log=False,
        server_header=False,
        proxy_headers=False,
        loop="edgekit.serve.tls:new_event_loop",
        http=http_protocol(watch),
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
    return Server(config)


def _ended(*_: object) -> None:
    """Ignore the signal, because nothing is left to do after the drain."""
