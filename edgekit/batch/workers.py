"""Workers for builds: processes of this machine, or workers of a Dask or Ray cluster.

All are used through ``concurrent.futures``. Dask and Ray exchange pickles, and neither authenticates peers
unless it was set up with TLS. So an address must be in a network that its users trust.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, NamedTuple, TypeVar

from edgekit.errors import EngineError, UsageError, need_package

T = TypeVar("T")
LOCAL, DASK, RAY = "local", "dask://", "ray://"
DASK_PORT = 8786


class BuildWorkers(NamedTuple):
    """Open workers.

    Attributes:
        submit: Submits a call of a module's function with an argument that can be pickled.
        at_once: Maximum number of submitted calls; the others wait here. None means no limit.
        lost: Exceptions that a future raises if its worker died.
    """

    submit: Callable[[Callable[[Any], Any], Any], Future[Any]]
    at_once: int | None
    lost: tuple[type[BaseException], ...]


@contextlib.contextmanager
def open_workers(on: str, count: int | None = None) -> Iterator[BuildWorkers]:
    """Open workers until the context ends.

    Args:
        on: ``local``, ``dask://HOST[:PORT]`` or ``ray://[HOST:PORT]``. ``ray://`` alone is the cluster that
            runs on this machine, or a temporary one.
        count: Number of local processes. None means one for every two cores.

    Raises:
        UsageError: invalid address, or a count for a cluster, which has its own.
        MissingDependency: the cluster's package is not installed.
        EngineError: the cluster does not answer.
    """
    if on != LOCAL and count is not None:
        raise UsageError(f"--workers sets processes on this machine; {on} has its own workers")
    if on == LOCAL:
        pool: contextlib.AbstractContextManager[BuildWorkers] = _processes(
            count or max(1, (os.cpu_count() or 1) // 2)
        )
    elif on.startswith(DASK) and len(on) > len(DASK):
        pool = _dask(on)
    elif on.startswith(RAY):
        pool = _ray(on)
    else:
        raise UsageError(f"--on is {on!r}; it must be local, dask://HOST:PORT or ray://HOST:PORT")
    with pool as workers:
        yield workers


@contextlib.contextmanager
def _processes(count: int) -> Iterator[BuildWorkers]:
    """Yield workers that are processes of this machine. Each has its own executor, so the end of one fails
    its build alone."""
    context = multiprocessing.get_context("spawn")
    slots: dict[ProcessPoolExecutor, tuple[int, Future[Any]]] = {}

    def submit(function: Callable[[Any], Any], argument: Any) -> Future[Any]:
        executor, pid = _idle(slots)
        executor = executor or ProcessPoolExecutor(1, mp_context=context)
        try:
            pid = pid or executor.submit(os.getpid).result()
            future = executor.submit(function, argument)
        except BrokenProcessPool as problem:  # it died as it began, or while it had nothing to do
            future = Future()
            future.set_exception(problem)
        slots[executor] = pid, future
        return future

    try:
        yield BuildWorkers(submit, count, (BrokenProcessPool,))
    except BaseException:
        for pid, future in slots.values():
            if not future.done():  # what it builds is not wanted any more
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGTERM)
        raise
    finally:
        for executor in slots:
            executor.shutdown(wait=True, cancel_futures=True)


def _idle(
    slots: dict[ProcessPoolExecutor, tuple[int, Future[Any]]],
) -> tuple[ProcessPoolExecutor | None, int]:
    """Return a process whose build has ended, and its pid; forget processes that have died."""
    for executor, (pid, last) in list(slots.items()):
        if not last.done():
            continue
        if not isinstance(last.exception(), BrokenProcessPool):
            return executor, pid
        del slots[executor]
        executor.shutdown(wait=False)
    return None, 0


@contextlib.contextmanager
def _dask(on: str) -> Iterator[BuildWorkers]:
    with need_package("distributed", f"building on {on}", extra="dask"):
        from distributed import Client, KilledWorker
    host = on.removeprefix(DASK)
    address = host if ":" in host else f"{host}:{DASK_PORT}"
    try:
        client = Client(f"tcp://{address}", set_as_default=False)
    except (OSError, ValueError) as problem:
        raise EngineError(f"no Dask scheduler answers at {address}: {problem}") from None
    with client, client.get_executor() as executor:
        try:
            yield BuildWorkers(executor.submit, None, (KilledWorker,))
        except BaseException:
            executor.shutdown(wait=False)  # what waits there is not wanted any more
            raise


@contextlib.contextmanager
def _ray(on: str) -> Iterator[BuildWorkers]:
    with need_package("ray", f"building on {on}", extra="ray"):
        import ray
        from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError
    host = on.removeprefix(RAY)
    ours = not ray.is_initialized()
    if ours:
        try:
            if host:
                ray.init(on)
            else:
                ray.init(log_to_driver=False, include_dashboard=False)
        except (ConnectionError, ValueError) as problem:
            raise EngineError(f"no Ray cluster answers at {host or 'this machine'}: {problem}") from None

    def submit(function: Callable[[Any], Any], argument: Any) -> Future[Any]:
        task = ray.remote(function).options(max_retries=0)
        future: Future[Any] = task.remote(argument).future()
        return future

    try:
        yield BuildWorkers(submit, None, (WorkerCrashedError, NodeDiedError, OutOfMemoryError))
    finally:
        if ours:
            ray.shutdown()
