"""Several worker processes that load and unload the same models.

Who is asked to load a version loads and checks it, writes what it then has to a file, and tells the others by
their sockets, which follow. A worker that is started again follows the file too. One change at a time: its
worker holds a lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from edgekit.errors import EdgeKitError
from edgekit.serve.inference_requests import RequestError
from edgekit.system.atomic_files import locked

if TYPE_CHECKING:
    from edgekit.serve.served_models import ServedModels
    from edgekit.tensor_spec import Json

STATE = "models.state"
SECONDS = 600.0
"""In which another worker must have loaded a version, or another change must have ended."""


class WorkerGroup:
    """A worker among those of its server.

    Args:
        folder: Of this server's workers alone; it exists.
        models: This worker's.
    """

    def __init__(self, folder: Path, models: ServedModels) -> None:
        self._folder, self._models = folder, models
        self._own = folder / f"{os.getpid()}-{os.urandom(4).hex()}.sock"
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def possible() -> bool:
        """Whether this system has what it needs."""
        return hasattr(socket, "AF_UNIX") and hasattr(asyncio, "start_unix_server")

    @asynccontextmanager
    async def member(self) -> AsyncIterator[None]:
        """As long as this worker runs. It begins with the models that the others have."""
        loop = asyncio.get_running_loop()

        def changed() -> None:
            loop.call_soon_threadsafe(self._share_later)

        server = await asyncio.start_unix_server(self._told, self._own)
        self._models.changed = changed
        try:
            async with self._alone():
                problem = await self._follow()
                if problem:
                    print(f"error: this worker lacks a model: {problem}", file=sys.stderr, flush=True)
                await self._tell()  # who made the last change may have died before it told all
            yield
        finally:
            self._models.changed = None
            server.close()
            self._own.unlink(missing_ok=True)

    async def change(self, act: Callable[[], object]) -> None:
        """Change this worker's models, and then the others'.

        Args:
            act: Changes these, in a thread.

        Raises:
            RequestError: as ``act``; 409: another worker can't follow, and all are as before; 503: another
                change does not end.
        """
        async with self._alone():
            before = self._models.state()
            await run_in_threadpool(act)
            self._write(self._models.state())
            problem = await self._tell()
            if problem:
                self._write(before)
                await self._follow()
                await self._tell()
                raise RequestError(f"a worker can't follow: {problem}", 409)

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        with ExitStack() as held:
            try:
                await run_in_threadpool(held.enter_context, locked(self._folder / "models.lock", SECONDS))
            except TimeoutError:
                raise RequestError("another model is being loaded; come again", 503, 10) from None
            yield

    def _share_later(self) -> None:
        """A candidate was committed or given up here: it is everywhere."""
        task = asyncio.ensure_future(self._share())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _share(self) -> None:
        with suppress(RequestError):
            await self.change(lambda: None)

    def _write(self, state: dict[str, Json]) -> None:
        draft = self._own.with_suffix(".part")
        draft.write_text(json.dumps(state), "utf-8")
        os.replace(draft, self._folder / STATE)

    async def _follow(self) -> str:
        """Have the models of the last change; what is wrong, or ""."""
        state = last_state(self._folder)
        try:
            if state is not None:
                await run_in_threadpool(self._models.follow, state)
        except EdgeKitError as problem:
            return str(problem)
        return ""

    async def _tell(self) -> str:
        """Let the others follow; what is wrong, or ""."""
        others = [path for path in sorted(self._folder.glob("*.sock")) if path != self._own]
        problems = await asyncio.gather(*(_ask(path) for path in others))
        return next(filter(None, problems), "")

    async def _told(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                await reader.readline()
                writer.write(json.dumps(await self._follow()).encode() + b"\n")
                await writer.drain()
        finally:
            writer.close()  # whatever failed: the other worker waits for a line, or the end


def last_state(folder: Path) -> dict[str, Json] | None:
    """What the workers of a folder have by the last change; None: there was none."""
    try:
        found: dict[str, Json] = json.loads((folder / STATE).read_text("utf-8"))
    except FileNotFoundError:
        return None
    return found


async def _ask(path: Path) -> str:
    """Let the worker with this socket follow; what is wrong, or "". One that has died is no problem: whoever
    takes its place reads the state."""
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
