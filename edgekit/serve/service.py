"""Handling of a request over any protocol: access, concurrency limits, and the run."""

from __future__ import annotations

import asyncio
import hmac
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

from starlette.concurrency import run_in_threadpool

from edgekit._version import __version__
from edgekit.errors import (
    BusyError,
    EdgeKitError,
    MissingDependency,
    NonFiniteOutputError,
    NoVariantError,
    RejectedInputError,
    UsageError,
)
from edgekit.runtime.loading.output_checks import non_finite_inputs
from edgekit.runtime.remote.inference_protocol import about_tensors
from edgekit.runtime.traces.run_record import RunRecord
from edgekit.runtime.traces.trace_context import CURRENT
from edgekit.serve.inference_requests import EXTENSIONS, Request, RequestError
from edgekit.serve.model_entries import Key
from edgekit.serve.request_memory import RequestMemory
from edgekit.serve.request_traces import ServerTraces, current_trace
from edgekit.serve.served_model import ServedModel
from edgekit.serve.served_models import ServedModels
from edgekit.serve.served_text import ServedText
from edgekit.serve.traffic_split import TrafficSplit
from edgekit.target.shape_range import together
from edgekit.tensor_spec import Array, Json

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
CHANGES = 8
"""Maximum number of running and waiting loads and unloads of a process."""
IN_FLIGHT = 256
"""Maximum number of concurrent requests for all models."""


@dataclass(frozen=True)
class Access:
    """Access rules of a server.

    Attributes:
        token: Token of ``Authorization: Bearer ...``. None means everybody who reaches the socket has access.
        loopback: Whether the socket is on loopback. Requests with another Host are then rejected, because a
            web page can point its own name at 127.0.0.1 (DNS rebinding).
        admin_token: Token for loading and unloading models, which also allows everything else. None means
            nobody may do so over the network; on loopback without a token everybody may.
        exposed: Whether another socket of the same server, that of gRPC, is not on loopback.
    """

    token: str | None = None
    loopback: bool = True
    admin_token: str | None = None
    exposed: bool = False

    def check(self, headers: Mapping[bytes, bytes], is_open: bool = False) -> None:
        """Check a request over HTTP.

        Args:
            is_open: Whether no token is needed.

        Raises:
            RequestError: 401 or 403.
        """
        host = headers.get(b"host", b"").decode("latin-1")
        if self.token is None and self.loopback:
            self._check_host(host)
        if (origin := headers.get(b"origin")) is not None:
            _check_origin(origin.decode("latin-1"), host)
        if self.token is not None and not is_open:
            self.check_token(headers.get(b"authorization", b"").decode("latin-1"))

    def _check_host(self, host: str) -> None:
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if name not in LOOPBACK:
            raise RequestError(f"this server is for {LOOPBACK[0]} only, not for {host[:80]!r}", 403)

    def check_token(self, authorization: str) -> None:
        """Check a token. Raises RequestError: 401."""
        if self.token is None or _is_token(authorization, self.token):
            return
        if not _is_token(authorization, self.admin_token):
            raise RequestError("the token is missing or wrong: send Authorization: Bearer TOKEN", 401)

    def check_admin(self, authorization: str) -> None:
        """Check that a request may load and unload models.

        Raises:
            RequestError: 401 or 403.
        """
        if self.admin_token is None:
            if self.token is not None or not self.loopback or self.exposed:
                raise RequestError(
                    "models cannot be loaded or unloaded here: the server has no admin token; start it with "
                    "--admin-token-file",
                    403,
                )
        elif not _is_token(authorization, self.admin_token):
            raise RequestError(
                "loading and unloading models needs the admin token: send Authorization: Bearer ADMIN_TOKEN",
                401,
            )


def _is_token(authorization: str, token: str | None) -> bool:
    return token is not None and hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())


def _check_origin(origin: str, host: str) -> None:
    """Reject other sites' pages: browsers let any page send requests to any address, with its origin."""
    if origin.partition("://")[2] != host:
        raise RequestError("requests from web pages of other servers are rejected", 403)


def public_error(problem: Exception) -> RequestError:
    """Return the error for a client. Engine errors, which may contain local paths, go to the log.

    The error and those before it lose their tracebacks: one that comes from a thread refers to itself through
    its own, and so would keep the body of its request until the next collection.
    """
    try:
        return _public_error(problem)
    finally:
        error: BaseException | None = problem
        while error is not None:
            error.__traceback__, error = None, error.__context__


def _public_error(problem: Exception) -> RequestError:
    if isinstance(problem, RequestError):
        return problem
    if isinstance(problem, UsageError):
        return RequestError(str(problem))
    if isinstance(problem, EdgeKitError):
        print(f"error: {problem}{_trace()}", file=sys.stderr, flush=True)
        if isinstance(problem, MissingDependency):
            return RequestError("the server lacks a package for this request; the server's log names it", 500)
        return RequestError("no variant of the model ran this input; the server's log says why", 500)
    traceback.print_exception(problem, file=sys.stderr)
    if trace := _trace():
        print(f"error:{trace}", file=sys.stderr, flush=True)
    return RequestError("the server failed because of a bug; its log has the traceback", 500)


def _trace() -> str:
    """Return the id of the current request's trace for the log; "" if it is not traced."""
    context = CURRENT.get()
    return "" if context is None else f" (trace {context.trace_id})"


class Service:
    """Models of a server, and its limits."""

    def __init__(
        self,
        models: ServedModels,
        access: Access,
        in_flight: int = IN_FLIGHT,
        memory: RequestMemory | None = None,
        traces: ServerTraces | None = None,
        split: TrafficSplit | None = None,
    ) -> None:
        self.split = split or TrafficSplit()
        self.memory, self.traces = memory or RequestMemory(), traces
        self.models, self.access, self._limit = models, access, in_flight
        self._places = threading.Semaphore(in_flight)  # calls of gRPC are in threads
        self._changes: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Admit a request, and count it as running while the block runs, from reading its body on.

        Raises:
            RequestError: 503: too many are.
        """
        if not self._places.acquire(blocking=False):
            raise RequestError(f"the server is answering {self._limit} requests; retry in 1 s", 503, 1)
        try:
            yield
        finally:
            self._places.release()

    def version_for(self, name: str, version: str | None, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the version of a request: the named one, or the one that the split gives it. None means the
        current one."""
        if version is not None or not self.split.rules:
            return version
        chosen = self.split.version(name, headers)
        return chosen if chosen in self.models.versions(name) else None

    @asynccontextmanager
    async def model(self, name: str, version: str | None) -> AsyncIterator[ServedModel]:
        """Hold a model during a request; one that was unloaded to free memory is loaded again, which takes a
        while.

        Raises:
            RequestError: 404: there is none; 503: it can't be loaded, or not before the deadline.
        """
        with self.models.used(await self.key(name, version)) as model:
            yield model

    async def key(self, name: str, version: str | None) -> Key:
        """Return the key of the requested version, and reload an evicted version first. Raise the errors of
        :meth:`model`."""
        key = self.models.resolve(name, version)
        if self.models.is_out(key):
            loading = asyncio.ensure_future(run_in_threadpool(self.models.load_again, key))
            try:
                await asyncio.wait_for(asyncio.shield(loading), self.models.options.deadline_ms / 1000)
            except asyncio.TimeoutError:
                loading.add_done_callback(lambda task: task.exception())
                raise RequestError(f"{name} is being loaded; retry in 1 s", 503, 1) from None
        return key

    async def load(self, name: str, version: str | None) -> None:
        """Load a version; it answers for the model from now on.

        Raises:
            RequestError: see ``ServedModels.load``.
        """
        await self._change(partial(self.models.load, name, version))

    async def unload(self, name: str, version: str | None) -> None:
        """Unload a version, or all of a model.

        Raises:
            RequestError: 404: there is none.
        """
        await self._change(partial(self.models.unload, name, version))

    async def _change(self, act: Callable[[], object]) -> None:
        """Change the models. A change that has begun ends, even if its client cancels the request."""
        if len(self._changes) >= CHANGES:
            raise RequestError(f"{CHANGES} loads and unloads are waiting; retry in 10 s", 503, 10)
        task = asyncio.ensure_future(self._whole_change(act))
        self._changes.add(task)
        task.add_done_callback(self._changed)
        await asyncio.shield(task)

    async def _whole_change(self, act: Callable[[], object]) -> None:
        async with self._changing:  # one at a time takes a thread
            await run_in_threadpool(act)

    def _changed(self, task: asyncio.Task[None]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # its client, which may be gone, was told

    async def changes_ended(self) -> None:
        """Wait for the loads and unloads that have begun."""
        if self._changes:
            await asyncio.wait(self._changes)

    async def run(
        self,
        model: ServedModel,
        request: Request,
        since_s: float | None = None,
        reading_s: float = 0.0,
    ) -> Mapping[str, Array]:
        """Run a request and return its outputs.

        Args:
            since_s: From when its deadline counts, on the clock of ``time.monotonic``. None means from now.

        Raises:
            RequestError: 503: it can't be run before its deadline, or the server is ending.
            As ``Session.run``.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Mapping[str, Array]] = loop.create_future()

        def hand_over(done: Future[dict[str, Array]]) -> None:  # in the thread that ran it
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, waiting, done)

        with _recorded(model, request) as record:
            spent_s = 0.0 if since_s is None else time.monotonic() - since_s
            running = model.run(request, spent_s, reading_s, record)
            running.add_done_callback(hand_over)
            try:
                return await waiting
            except asyncio.CancelledError:
                running.cancel()
                raise

    def run_in_thread(
        self,
        model: ServedModel,
        request: Request,
        since_s: float,
        wait: Callable[[Future[dict[str, Array]]], Mapping[str, Array]],
    ) -> Mapping[str, Array]:
        """Run a request and return its outputs, in a thread of the caller.

        Raises:
            RequestError: as :meth:`run`.
        """
        with _recorded(model, request) as record:
            return wait(model.run(request, time.monotonic() - since_s, 0.0, record))

    def about_server(self) -> dict[str, Json]:
        """Return the server's metadata."""
        return {"name": "edgekit", "version": __version__, "extensions": list(EXTENSIONS)}

    def about_model(self, model: ServedModel | ServedText) -> dict[str, Json]:
        """Return a model's metadata."""
        active = model.session.active
        shapes = {"shapes": "; ".join(together(model.shapes))} if len(model.shapes) > 1 else {}
        return {
            "name": model.name,
            "versions": list(self.models.versions(model.name)),
            "platform": "edgekit",
            **about_tensors(model.shapes),
            "parameters": {"variant": active.variant, "engine": active.engine, **shapes},
        }


@contextmanager
def _recorded(model: ServedModel, request: Request) -> Iterator[RunRecord | None]:
    """Record a run for the trace of the request, and raise its errors as those of the request."""
    trace = current_trace()
    record = None if trace is None else RunRecord(trace.context)
    try:
        yield record
    except NoVariantError as problem:
        lines = non_finite_inputs(request.feeds)
        if not lines and isinstance(problem, NonFiniteOutputError):
            lines = ["the inputs are extreme"]
        if lines:  # the client's fault, not the engine's
            raise RequestError(f"{lines[0]}, and the model's outputs are not finite") from None
        if isinstance(problem, RejectedInputError):
            raise RequestError(
                "the model fails on this input and computes others; check its values, e.g. that indices are "
                "in range"
            ) from None
        raise
    except BusyError as problem:
        raise model.overdue(problem) from None
    except (CancelledError, asyncio.CancelledError):
        raise RequestError("the server is shutting down", 503, 1) from None
    finally:
        if trace is not None and record is not None:
            trace.ran(record)


def _settle(waiting: asyncio.Future[Mapping[str, Array]], done: Future[dict[str, Array]]) -> None:
    """Give an answer to who waits for it, in the event loop."""
    if waiting.done():  # cancelled: nobody waits any more
        return
    if done.cancelled():
        waiting.cancel()
    elif (problem := done.exception()) is not None:
        waiting.set_exception(problem)
    else:
        waiting.set_result(done.result())
