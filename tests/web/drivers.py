"""Firefox and WebKitGTK with one page each, driven by W3C's WebDriver BiDi and WebDriver.

Playwright drives its own builds of both only, which come from no package registry.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

MINI_BROWSER = "webkit2gtk-4.*/MiniBrowser"
ANSWER_S = 60.0
ANSWER_BYTES = 32 << 20  # a screenshot
T = TypeVar("T")


class Page(Protocol):
    """One page in one browser."""

    def goto(self, url: str) -> None:
        """Load a page, and wait until it and what it names are loaded."""

    def evaluate(self, body: str) -> Any:
        """Run the body of an async function in the page; returns what it returns, through JSON."""

    def screenshot(self, path: Path) -> None:
        """Write what the window shows as PNG."""


def webkit_browser() -> Path | None:
    """Return WebKitGTK's browser, which its package keeps beside its processes; None where there is none."""
    return next(iter(sorted(Path("/usr/lib").glob(f"*/{MINI_BROWSER}"))), None)


def are_installed() -> bool:
    """Return whether both browsers are here, with what drives them."""
    programs = ("firefox-esr", "WebKitWebDriver", "xvfb-run")
    return all(map(shutil.which, programs)) and webkit_browser() is not None


@contextmanager
def started(*command: str, **environment: str) -> Iterator[None]:
    """Start a program in a process group of its own; at the end the whole group is ended."""
    process = subprocess.Popen(
        command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


def free_port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answered(ask: Callable[[], T], *not_yet: type[Exception]) -> T:
    """Return what a program that starts answers, once it does."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return ask()
        except not_yet:
            assert time.monotonic() < deadline, "it does not answer"
            time.sleep(0.1)


class _Firefox:
    """A session of WebDriver BiDi (https://w3c.github.io/webdriver-bidi) with its first tab."""

    def __init__(self, channel: Any) -> None:
        self._channel, self._ids = channel, itertools.count(1)
        self._call("session.new", capabilities={})
        self._tab = self._call("browsingContext.getTree")["contexts"][0]["context"]

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._channel.send(json.dumps({"id": number, "method": method, "params": params}))
        answer: dict[str, Any] = {}
        while answer.get("id") != number:  # others are events
            answer = json.loads(self._channel.recv(timeout=ANSWER_S))
        assert answer["type"] == "success", answer
        return dict(answer["result"])

    def goto(self, url: str) -> None:
        self._call("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    def evaluate(self, body: str) -> Any:
        expression = f"(async () => JSON.stringify([await (async () => {{{body}}})()]))()"
        target = {"context": self._tab}
        answer = self._call("script.evaluate", expression=expression, target=target, awaitPromise=True)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])[0]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(
            base64.b64decode(self._call("browsingContext.captureScreenshot", context=self._tab)["data"])
        )


@contextmanager
def firefox() -> Iterator[Page]:
    """Debian's Firefox without a window, with a profile of its own."""
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    port = free_port()
    with tempfile.TemporaryDirectory() as profile:
        options = ("--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", str(port))
        with started("firefox-esr", *options):
            url = f"ws://127.0.0.1:{port}/session"
            with answered(
                lambda: connect(url, max_size=ANSWER_BYTES), OSError, WebSocketException
            ) as channel:
                yield _Firefox(channel)


class _WebKit:
    """A session of WebDriver (https://www.w3.org/TR/webdriver2)."""

    def __init__(self, port: int, arguments: Sequence[str]) -> None:
        self._url = f"http://127.0.0.1:{port}"
        options = {"binary": str(webkit_browser()), "args": ["--automation", *arguments]}
        wanted = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}}
        self._url += f"/session/{self._call('POST', '/session', wanted)['sessionId']}"
        self._call("POST", "/timeouts", {"script": int(ANSWER_S * 1000)})

    def _call(self, method: str, path: str, data: Any = None) -> Any:
        request = urllib.request.Request(
            self._url + path, None if data is None else json.dumps(data).encode(), method=method
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)["value"]

    def goto(self, url: str) -> None:
        self._call("POST", "/url", {"url": url})

    def evaluate(self, body: str) -> Any:
        script = (
            f"const done = arguments[0]; (async () => {{{body}}})()"
            ".then((value) => done(JSON.stringify([value])), (error) => done(`!${error}`))"
        )
        answer = self._call("POST", "/execute/async", {"script": script, "args": []})
        assert not answer.startswith("!"), answer
        return json.loads(answer)[0]

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._call("GET", "/screenshot")))


@contextmanager
def webkit(*arguments: str) -> Iterator[Page]:
    """WebKitGTK, Safari's engine on Linux, in a display of its own."""
    port = free_port()
    # Root, as in a container, has no user namespace for the sandbox; the page is our own.
    environment = {"WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1"}
    with started("xvfb-run", "-a", "WebKitWebDriver", f"--port={port}", **environment):
        yield answered(lambda: _WebKit(port, arguments), urllib.error.URLError)
