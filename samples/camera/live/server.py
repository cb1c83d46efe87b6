"""The page, its two WebSockets and the API: aiohttp, in one event loop, which never waits for an engine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from aiohttp import WSMsgType, web

from edgekit.runtime.metrics import prometheus
from live.access import BODY_BYTES, Access, RefusedError
from live.camera import Camera
from live.device import MODES

Send = Callable[[web.WebSocketResponse, asyncio.Semaphore], Awaitable[None]]
PAGE = Path(__file__).resolve().parents[1] / "page"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
STATE_S, LOOK_S = 0.5, 0.2
"""The state is sent that often at least, and looked at for changes."""
SEND_S = 10.0
"""A viewer that takes no byte for so long is gone."""
FLOOD = 200
"""Messages a second that ask for no frame, from which on a viewer is an attack."""


class Server:
    """Serves one camera.

    Args:
        camera: What is served.
        access: Who may.
    """

    def __init__(self, camera: Camera, access: Access) -> None:
        self._camera, self._access = camera, access
        self._loop = asyncio.get_running_loop()
        self._message: tuple[int, bytes] = (-1, b"")
        self._came = asyncio.Event()
        self._waiting = 0
        self._sockets: set[web.WebSocketResponse] = set()
        camera.watch(self._encoded, lambda: self._waiting > 0)
        self.app = web.Application(middlewares=[access.middleware], client_max_size=BODY_BYTES)
        self.app.add_routes(
            [
                web.get("/", self._page),
                web.get("/page/{name}", self._page),
                web.get("/frames", self._frames),
                web.get("/events", self._events),
                web.get("/sound", self._sound),
                web.get("/api/state", self._state),
                web.post("/api/switches/{name}", self._switch),
                web.post("/api/power", self._power),
                web.post("/api/zones", self._add_zone),
                web.delete("/api/zones/{number:[0-9]{1,9}}", self._remove_zone),
                web.get("/api/alerts/{number:[0-9]{1,9}}.jpg", self._alert),
                web.get("/metrics", self._metrics),
            ]
        )
        self.app.on_shutdown.append(self._end)

    async def _end(self, app: web.Application) -> None:
        for socket in list(self._sockets):
            with contextlib.suppress(Exception):
                await asyncio.wait_for(socket.close(code=1001), 0.3)

    # --- page and API --------------------------------------------------------------------------------------

    async def _page(self, request: web.Request) -> web.Response:
        name = request.match_info.get("name", "index.html")
        path = PAGE / name
        if path.parent != PAGE or path.suffix not in KINDS or not path.is_file():
            raise RefusedError(404, "there is no such page")
        return web.Response(body=path.read_bytes(), content_type=KINDS[path.suffix], charset="utf-8")

    async def _state(self, request: web.Request) -> web.Response:
        return web.Response(text=await self._in_thread(self._camera.state), content_type="application/json")

    async def _switch(self, request: web.Request) -> web.Response:
        name, body = request.match_info["name"], await self._access.body(request)
        if name not in self._camera.switches:
            raise RefusedError(404, f"there is no such switch; there are {', '.join(self._camera.switches)}")
        if not isinstance(body, dict) or not isinstance(body.get("on"), bool) or len(body) != 1:
            raise RefusedError(400, 'the body must be {"on": true} or {"on": false}')
        await self._in_thread(self._camera.switch, name, body["on"])
        self._camera.changed()
        return await self._state(request)

    async def _power(self, request: web.Request) -> web.Response:
        body = await self._access.body(request)
        if not isinstance(body, dict) or body.get("mode") not in list(MODES) or len(body) != 1:
            raise RefusedError(400, f"mode must be one of {', '.join(MODES)}")
        await self._in_thread(self._camera.device.set_mode, body["mode"])
        self._camera.changed()
        return await self._state(request)

    async def _add_zone(self, request: web.Request) -> web.Response:
        body = await self._access.body(request)
        try:
            zone = self._camera.device.zones.add(body, self._camera.device.labels)
        except ValueError as problem:
            raise RefusedError(400, str(problem)) from None
        self._camera.changed()
        return web.json_response(zone.as_json(), status=201)

    async def _remove_zone(self, request: web.Request) -> web.Response:
        if not self._camera.device.zones.remove(int(request.match_info["number"])):
            raise RefusedError(404, "there is no such zone")
        self._camera.changed()
        return web.Response(status=204)

    async def _alert(self, request: web.Request) -> web.Response:
        picture = self._camera.alerts.picture(int(request.match_info["number"]))
        if picture is None:
            raise RefusedError(404, "this alert is not listed any more")
        return web.Response(body=picture, content_type="image/jpeg")

    async def _metrics(self, request: web.Request) -> web.Response:
        snapshot = await self._in_thread(self._camera.metrics.snapshot)
        text = prometheus.text(prometheus.families(snapshot))
        return web.Response(text=text, headers={"Content-Type": prometheus.CONTENT_TYPE})

    async def _in_thread(self, act: Callable[..., Any], *arguments: Any) -> Any:
        return await self._loop.run_in_executor(None, act, *arguments)

    # --- sockets -------------------------------------------------------------------------------------------

    async def _frames(self, request: web.Request) -> web.StreamResponse:
        """One JPEG after each "next": the newest one not sent to this viewer yet."""
        return await self._served(request, self._send_frames)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """The state, at every change and at least twice a second."""
        return await self._served(request, self._send_states)

    async def _sound(self, request: web.Request) -> web.StreamResponse:
        """Blocks of a sound, and the text of each."""
        speech = self._camera.speech
        if speech is None:
            raise RefusedError(404, "this camera has no speech model; start it with --speech")
        socket = await self._access.open_socket(request)
        self._sockets.add(socket)
        try:
            # Others speak, or the page is gone: the socket is closed.
            with contextlib.suppress(RefusedError, ConnectionError, asyncio.TimeoutError):
                await speech.transcribe(socket)
        finally:
            self._sockets.discard(socket)
            self._access.closed_socket()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(socket.close(), 1.0)
        return socket

    async def _served(self, request: web.Request, send: Send) -> web.StreamResponse:
        socket = await self._access.open_socket(request)
        self._sockets.add(socket)
        asked = asyncio.Semaphore(0)
        sender = asyncio.ensure_future(send(socket, asked))
        try:
            began, messages = time.monotonic(), 0
            async for received in socket:
                if received.type != WSMsgType.TEXT:
                    break
                if received.data == "next" and asked.locked():  # one wish for each frame
                    asked.release()
                    continue
                messages += 1
                if messages > FLOOD:
                    if time.monotonic() - began < 1.0:
                        break
                    began, messages = time.monotonic(), 0
        finally:
            self._sockets.discard(socket)
            self._access.closed_socket()
            while not sender.done():  # wait_for may lose a cancellation (CPython 86296, until 3.12)
                sender.cancel()
                await asyncio.wait([sender], timeout=0.1)
            with contextlib.suppress(asyncio.CancelledError, Exception):
                sender.result()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(socket.close(), 1.0)
        return socket

    async def _send_frames(self, socket: web.WebSocketResponse, asked: asyncio.Semaphore) -> None:
        last, first = -1, True
        while not socket.closed:
            if not first:
                await asked.acquire()
            first = False
            self._waiting += 1
            self._camera.want()
            try:
                while self._message[0] == last:
                    self._came.clear()
                    await self._came.wait()
            finally:
                self._waiting -= 1
            last, content = self._message
            await asyncio.wait_for(socket.send_bytes(content), SEND_S)

    async def _send_states(self, socket: web.WebSocketResponse, asked: asyncio.Semaphore) -> None:
        sent, sent_s = "", 0.0
        while not socket.closed:
            text = await self._in_thread(self._camera.state)
            if text != sent or time.monotonic() - sent_s >= STATE_S:
                await asyncio.wait_for(socket.send_str(text), SEND_S)
                sent, sent_s = text, time.monotonic()
            await asyncio.sleep(LOOK_S)

    def _encoded(self, number: int, content: bytes) -> None:
        """Of the encoder's thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._publish, number, content)

    def _publish(self, number: int, content: bytes) -> None:
        self._message = (number, content)
        self._came.set()


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)
