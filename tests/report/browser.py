"""A browser with a page of ``edgekit report`` in it: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PHONE, DESK = (390, 844), (1280, 900)
"""Width and height of a window, in CSS pixels."""


def chromium() -> str | None:
    """The program; None where there is none."""
    return shutil.which("chromium")


@contextmanager
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # Root, as in a container, has no sandbox; the page is our own.
        running = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


@contextmanager
def opened(
    running: Any, path: Path, size: tuple[int, int] = DESK, scheme: str = "light"
) -> Iterator[tuple[Any, list[str]]]:
    """The page, and what the console, errors and requests said meanwhile."""
    page = running.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"console {message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.on("request", lambda request: said.append(f"request: {request.url}"))
    page.goto(path.as_uri())
    own = f"request: {path.as_uri()}"
    try:
        yield page, [line for line in said if line != own and not line.startswith("request: data:")]
    finally:
        page.close()
