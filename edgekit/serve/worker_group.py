"""Several worker processes that load and unload the same models.

A worker that gets a load request loads and checks the version, writes its state to a file, and notifies the
others by their sockets. The others follow, and so does a restarted worker. Changes are serialized: the worker
that makes one holds a lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

from starlette.concurrency import run_in_threadpool

from edgekit.errors import EdgeKitError
from edgekit.serve.inference_requests import RequestError
from edgekit.serve.served_models import ServedModels
from edgekit.system.atomic_files import locked
from edgekit.tensor_spec import Json

STATE = "models.state"
SECONDS = 600.0
"""Timeout in seconds for another worker to load a version, and for another change to end."""


class WorkerGroup:
    """Membership of a worker in its server's group.

    Args:
        folder: Existing folder that only this server's workers use.
        models: Models of this worker.
    """

    def __init__(self, folder: Path, models: ServedModels) -> None:
        self._folder, self._models = folder, models
        self._socket = folder / f"{os.getpid()}-{os.urandom(4).hex()}.sock"
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def possible() -> bool:
        """Return whether this system supports worker groups."""
        return sys.platform != "win32"  # sockets in the file system

    @asynccontextmanager
    async def member(self) -> AsyncIterator[None]:
        """Join the group while this worker runs. The worker first loads the models of the others."""
        if sys.platform == "win32":  # where possible() is False
            raise NotImplementedError
        loop = asyncio.get_running_loop()

        def changed() -> None:
            loop.call_soon_threadsafe(self._share_later)

        server = await asyncio.start_unix_server(self._receive, self._socket)
        self._models.changed = changed
        try:
            async with self._only_worker():
                problem = await self._follow()
                if problem:
                    print(f"error: this worker lacks a model: {problem}", file=sys.stderr, flush=True)
                await self._notify()  # who made the last change may have died before it told all
            yield
        finally:
            self._models.changed = None
            server.close()
            self._socket.unlink(missing_ok=True)

    async def change(self, act: Callable[[], object]) -> None:
        """Change this worker's models, and then the others'.

        Args:
            act: Function that changes this worker's models; it runs in a thread.

        Raises:
            RequestError: ``act`` fails; 409: another worker cannot follow, and the change is undone; 503:
                another change does not end.
        """
        async with self._only_worker():
            before = self._models.state()
            await run_in_threadpool(act)
            self._write(self._models.state())
            problem = await self._notify()
            if problem:
                self._write(before)
                await self._follow()
                await self._notify()
                raise RequestError(f"another worker could not make the same change: {problem}", 409)

    @asynccontextmanager
    async def _only_worker(self) -> AsyncIterator[None]:
        with ExitStack() as stack:
            try:
                await run_in_threadpool(stack.enter_context, locked(self._folder / "models.lock", SECONDS))
            except TimeoutError:
                raise RequestError("another model is being loaded; retry in 10 s", 503, 10) from None
            yield

    def _share_later(self) -> None:
        """Share the commit or drop of a candidate with all workers."""
        task = asyncio.ensure_future(self._share())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _share(self) -> None:
        with suppress(RequestError):
            await self.change(lambda: None)

    def _write(self, state: dict[str, Json]) -> None:
        draft = self._socket.with_suffix(".part")
        draft.write_text(json.dumps(state), "utf-8")
        os.replace(draft, self._folder / STATE)

    async def _follow(self) -> str:
        """Load the models of the last change. Return the error, or ""."""
        state = last_state(self._folder)
        try:
            if state is not None:
                await run_in_threadpool(self._models.follow, state)
        except EdgeKitError as problem:
            return str(problem)
        return ""

    async def _notify(self) -> str:
        """Notify the others to follow. Return the first error, or ""."""
        others = [path for path in sorted(self._folder.glob("*.sock")) if path != self._socket]
        problems = await asyncio.gather(*(_ask(path) for path in others))
        return next(filter(None, problems), "")

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await reader.readline()
                writer.write(json.dumps(await self._follow()).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()  # whatever failed: the other worker waits for a line, or the end


def last_state(folder: Path) -> dict[str, Json] | None:
    """Return the state of a folder's workers after the last change, or None if there was no change."""
    try:
        state: dict[str, Json] = json.loads((folder / STATE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    return state


async def _ask(path: Path) -> str:
    """Notify the worker with this socket to follow. Return its error, or "". A dead worker is not an error:
    its replacement reads the state."""
    if sys.platform == "win32":
        raise NotImplementedError
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return ""
    try:
        writer.write(b"follow\n")
        line = await asyncio.wait_for(reader.readline(), SECONDS)
        return str(json.loads(line)) if line else ""
    except asyncio.TimeoutError:
        return f"it takes longer than {SECONDS:g} s"
    except OSError:
        return ""
    finally:
        writer.close()
