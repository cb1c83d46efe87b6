"""A static host on this machine, and a browser with its page."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.report.browser import DESK, chromium

OPENED = "body:is([data-state=ready], [data-state=refused])"
PREDICTED = "body:is([data-state=predicted], [data-state=failed])"
OFFLINE = "body[data-offline]"
WAIT_MS = 60_000
GPU_FLAGS = ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"]
GPU_FLAGS += ["--enable-features=Vulkan,WebGPU", "--ignore-gpu-blocklist"]
"""Chromium's flags for WebGPU on SwiftShader, a GPU in software."""
FRAME = np.random.default_rng(1).integers(0, 256, (48, 64, 3)).astype(np.uint8)
PREDICT = """async (photo) => {
  const {Session} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit');
  const found = await session.predict(await (await fetch(photo)).blob());
  await session.close();
  return {...found, variant: session.variant, golden: session.golden, fallbacks: session.fallbacks};
}"""
"""Predicts a file of the host with a session of its own."""


class _Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Print nothing."""


class Host:
    """A host that sends files and no header of its own. ``stop`` is the end of the network."""

    def __init__(self, folder: Path, port: int = 0) -> None:
        handler = functools.partial(_Handler, directory=str(folder))
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def hosted(folder: Path) -> Iterator[Host]:
    """Serve a folder."""
    host = Host(folder)
    try:
        yield host
    finally:
        host.stop()


@contextmanager
def opened(context: Any, url: str, size: tuple[int, int] = DESK) -> Iterator[tuple[Any, list[str]]]:
    """Open the page; yield it and the lines of its console, which must be none at the end."""
    page = context.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    try:
        page.goto(url)
        page.wait_for_selector(OPENED, timeout=WAIT_MS)
        yield page, said
        assert said == []
    finally:
        page.close()


def choose_bundle(page: Any, path: Path) -> None:
    """Open a bundle in the page by its file picker."""
    page.evaluate("document.body.dataset.state = 'test'")
    page.set_input_files("#other", str(path))
    page.wait_for_selector(OPENED, timeout=WAIT_MS)


def choose_photograph(page: Any, path: Path) -> None:
    """Let the page predict a photograph by its file picker."""
    page.evaluate("document.body.dataset.state = 'test'")
    page.set_input_files("#photo", str(path))
    page.wait_for_selector(PREDICTED, timeout=WAIT_MS)


def checks(page: Any) -> list[str]:
    """Rows of the page's list of checks."""
    return [" ".join(row.split()) for row in page.locator("#checks li").all_inner_texts()]


def first_photograph(shared: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """The first one of coco128, RGB pixels."""
    path = sorted((shared / "data" / "coco128").rglob("*.jpg"))[0]
    return np.ascontiguousarray(Image.open(path).convert("RGB"))


def assert_same_boxes(items: Sequence[Mapping[str, Any]], expected: Any) -> None:
    """Compare a page's boxes with Python's: labels, scores within 1e-4, corners within 0.05 pixels."""
    assert len(expected) > 3
    assert [item["label"] for item in items] == [one.label for one in expected]
    np.testing.assert_allclose([item["score"] for item in items], expected.scores, atol=1e-4)
    np.testing.assert_allclose([item["box"] for item in items], expected.boxes, atol=0.05)


def save_photograph(path: Path, frame: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Path:
    """Write RGB pixels and return the path."""
    Image.fromarray(frame).save(path)
    return path


def violations(page: Any) -> list[str]:
    """Return what axe finds in the page."""
    from axe_playwright_python.sync_playwright import Axe

    listed = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in listed]


@contextmanager
def browser_with(device: str, file: Path | None, *flags: str, allowed: bool = True) -> Iterator[Any]:
    """Start a browser with a device that plays a file, or without one."""
    from playwright.sync_api import sync_playwright

    own = ["--no-sandbox", *flags]
    if file is not None:
        capture = {"camera": "video", "microphone": "audio"}[device]
        own += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-{capture}-capture={file}"]
    with sync_playwright() as playwright:
        program = playwright.chromium.launch(executable_path=chromium(), args=own)
        context = program.new_context()
        if allowed:
            context.grant_permissions([device])
        yield context
        program.close()
