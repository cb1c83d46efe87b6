"""The camera's rules for requests, on a server of their own: many at once, and tokens that are no text."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp")
SAMPLE = str(Path(__file__).resolve().parents[2] / "samples" / "camera")


@pytest.fixture
def access(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(SAMPLE)
    from live import access

    assert sys.modules["live.access"] is access
    return access


def served(rules: Any, handler: Any, act: Callable[[str], Awaitable[Any]]) -> Any:
    """What ``act`` returns of a server with these rules; it gets the server's address."""
    from aiohttp import web

    async def run() -> Any:
        app = web.Application(middlewares=[rules.middleware])
        app.router.add_get("/events", handler)
        app.router.add_get("/api", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        rules._hosts.add(f"127.0.0.1:{port}")
        try:
            return await act(f"http://127.0.0.1:{port}")
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def test_sockets_that_come_at_once_are_counted(access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is counted before it is answered: else all of them find room."""
    monkeypatch.setattr(access, "MOST_SOCKETS", 4)
    from aiohttp import web

    slow = web.WebSocketResponse.prepare

    async def prepare(self: Any, request: Any) -> Any:
        await asyncio.sleep(0.2)
        return await slow(self, request)

    monkeypatch.setattr(web.WebSocketResponse, "prepare", prepare)
    rules = access.Access(1, None)
    ended = asyncio.Event()

    async def handler(request: Any) -> Any:
        socket = await rules.open_socket(request)
        await ended.wait()
        rules.closed_socket()
        return socket

    async def act(url: str) -> list[int]:
        async def one(session: Any) -> int:
            try:
                await session.ws_connect(f"{url}/events")
            except aiohttp.WSServerHandshakeError as problem:
                return int(problem.status)
            return 101

        async with aiohttp.ClientSession() as session:
            found = list(await asyncio.gather(*(one(session) for _ in range(20))))
            ended.set()
        return found

    found = served(rules, handler, act)
    assert (found.count(101), found.count(503)) == (4, 16)
    assert rules._sockets == 0


@pytest.mark.parametrize("shown", [b"\xff\xfe", b"wrong", "\udc80".encode("utf-8", "surrogatepass")])
def test_a_token_that_is_no_text_is_a_wrong_one(access: Any, shown: bytes) -> None:
    rules = access.Access(1, "secret")

    async def handler(request: Any) -> Any:
        raise AssertionError

    async def act(url: str) -> bytes:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"GET /api HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\nAuthorization: Bearer "
        writer.write(head.encode() + shown + b"\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer

    assert served(rules, handler, act).startswith(b"HTTP/1.1 401 ")


def test_a_socket_whose_token_is_no_text_is_closed(access: Any) -> None:
    rules = access.Access(1, "secret")

    async def handler(request: Any) -> Any:
        socket = await rules.open_socket(request)
        rules.closed_socket()
        return socket

    async def act(url: str) -> list[int]:
        codes = []
        async with aiohttp.ClientSession() as session:
            for first in ('{"token": "\\ud800"}', '{"token": 7}', "[" * 2000, '{"token": "wrong"}'):
                async with session.ws_connect(f"{url}/events") as socket:
                    await socket.send_str(first)
                    await socket.receive()
                    codes.append(socket.close_code)
        return codes

    assert served(rules, handler, act) == [4401] * 4
    assert rules._sockets == 0


@pytest.mark.parametrize("seconds", [10**400, -(10**400), float("nan"), float("inf"), 3600.1, -1, True, "1"])
def test_a_zone_of_a_number_that_is_none(access: Any, seconds: Any) -> None:
    from live.zones import Zones

    wish = {"name": "a", "points": [[0, 0], [1, 0], [1, 1]], "label": "cat", "seconds": seconds}
    with pytest.raises(ValueError, match="seconds must be a number from 0 to 3600"):
        Zones().add(wish, ["cat"])
    with pytest.raises(ValueError, match="every corner is"):
        Zones().add({**wish, "seconds": 1, "points": [[0, 0], [1, 0], [seconds, 1]]}, ["cat"])
