"""The live camera as its users have it: a process with a page, on a street of one blue thing."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import numpy as np

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "camera"
EVERYWHERE = {
    "name": "all of it",
    "points": [[0, 0], [1, 0], [1, 1], [0, 1]],
    "label": "blue",
    "seconds": 0.2,
}
T = TypeVar("T")


def write_video(path: Path, rate: float = 25.0, frames: int = 40) -> Path:
    """Blue frames that flicker: each is worth a run, and shows one blue thing in its middle."""
    import cv2

    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), rate, (128, 96))
    assert writer.isOpened()
    for number in range(frames):
        writer.write(np.full((96, 128, 3), (250, 10 + 40 * (number % 2), 20), np.uint8))
    writer.release()
    return path


class LiveCamera:
    """A running watch.py."""

    def __init__(self, bundle: Path, source: str | Path, home: Path, *options: str) -> None:
        script = str(SAMPLE / "watch.py")
        command = [sys.executable, script, str(bundle), str(source), "--home", str(home), "--port", "0"]
        self.log = home.with_suffix(".log")
        self._errors = self.log.open("wb")
        self.process = subprocess.Popen(
            [*command, "--no-browser", *options], stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"(http://[^/\s]+)(?:/#token=(\S+))?", line)
        assert found, f"{line!r}: {self.log.read_text('utf-8')}"
        self.url, self.token = found[1], found[2]

    def stop(self) -> None:
        """Send SIGTERM and wait for the end. Raises TimeoutExpired: it does not end."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self._errors.close()

    def __enter__(self) -> LiveCamera:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._errors.close()
        if self.process.stdout is not None:
            self.process.stdout.close()

    # --- its API -------------------------------------------------------------------------------------------

    def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON (or bytes) of one request."""

        async def asked(session: aiohttp.ClientSession) -> tuple[int, Any]:
            async with session.request(method, self.url + path, **options) as answer:
                content = await answer.read()
                is_json = answer.content_type == "application/json"
                return answer.status, json.loads(content) if is_json else content

        return self.in_session(asked)

    def in_session(self, work: Callable[[aiohttp.ClientSession], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine with a client session, for at most a minute."""

        async def run() -> T:
            headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
            async with aiohttp.ClientSession(headers=headers) as session:
                return await asyncio.wait_for(work(session), 60)

        return asyncio.run(run())

    def state(self) -> dict[str, Any]:
        status, state = self.ask("GET", "/api/state")
        assert status == 200
        return dict(state)

    def switch(self, name: str, on: bool) -> None:
        status, answer = self.ask("POST", f"/api/switches/{name}", json={"on": on})
        assert status == 200, answer

    def wait(self, shows: Callable[[dict[str, Any]], Any], seconds: float = 3.0) -> dict[str, Any]:
        """The first state that shows it."""
        end = time.monotonic() + seconds * SLOW
        while True:
            state = self.state()
            if shows(state):
                return state
            assert time.monotonic() < end, (state, self.log.read_text("utf-8")[-2000:])
            time.sleep(0.1)

    def says(self, pattern: str, seconds: float = 3.0) -> dict[str, Any]:
        """The first state with an event of this pattern."""
        return self.wait(
            lambda state: any(re.search(pattern, event["text"]) for event in state["events"]), seconds
        )

    def frames(self, count: int) -> list[tuple[dict[str, Any], Any]]:
        """So many messages of /frames: the JSON and the picture."""
        import cv2

        async def taken(session: aiohttp.ClientSession) -> list[bytes]:
            messages = []
            async with session.ws_connect(self.url + "/frames") as socket:
                for _ in range(count):
                    messages.append(await socket.receive_bytes(timeout=60))
                    await socket.send_str("next")
            return messages

        found = []
        for message in self.in_session(taken):
            size = struct.unpack("<I", message[:4])[0]
            picture = cv2.imdecode(np.frombuffer(message[4 + size :], np.uint8), cv2.IMREAD_COLOR)
            found.append((json.loads(message[4 : 4 + size]), picture))
        return found

    def frames_with_token(self, token: str) -> int:
        """How many frames a viewer with this token gets, of one."""

        async def taken(session: aiohttp.ClientSession) -> int:
            async with session.ws_connect(self.url + "/frames") as socket:
                await socket.send_json({"token": token})
                return int((await socket.receive(timeout=60)).type == aiohttp.WSMsgType.BINARY)

        return self.in_session(taken)


SLOW = float(os.environ.get("EDGEKIT_TEST_PATIENCE", "20"))
"""A machine that runs other tests too is that much slower than the one that the limits are for."""


def used(pid: int) -> dict[str, float]:
    """Resident memory in MB, threads and open descriptors of a process; Linux."""
    proc = Path("/proc") / str(pid)
    lines = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    descriptors = len(list((proc / "fd").iterdir()))
    megabytes = int(lines["VmRSS"].split()[0]) / 1024
    return {"mb": megabytes, "threads": int(lines["Threads"]), "descriptors": descriptors}
