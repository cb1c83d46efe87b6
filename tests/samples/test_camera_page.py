"""The camera's page in a real browser, in front of the real camera: a detector, a video, every switch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import edgekit
from tests.report.browser import DESK, PHONE, browser

pytestmark = [
    pytest.mark.needs_browser,
    pytest.mark.needs_shared,
    pytest.mark.needs_ort,
    pytest.mark.needs_tflite,
]
pytest.importorskip("aiohttp")
pytest.importorskip("cv2")

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "camera"
EFFECT_S = 3.0
LOST_S = 8.0
"""3 s without a word, and then the page says so."""
ENGINES_S = 20.0
"""Every engine of the bundle looks at a model that is none."""
OUTBOX_S = 8.0
"""The longest wait of the outbox between two attempts is 5 s."""
PAINTED = """() => {
  const {width, height} = document.getElementById("overlay");
  const {data} = document.getElementById("overlay").getContext("2d").getImageData(0, 0, width, height);
  return data.some((value, index) => index % 4 === 3 && value > 0);
}"""
WIDTH = "document.documentElement.scrollWidth"
SWITCHES = {
    "network": r"(?s)Offline: \d+ waiting, none lost\..*the network was pulled",
    "kill": r"(\w+-fp32) -> (?!\1)\w+-fp32: ",
    "hang": r"(\w+-fp32) -> (?!\1)\w+-fp32: ",
    "load": r"\d+ processes keep the cores busy",
    "budget": r"budget: an answer may take [\d.]+ ms",
    "update": r"a damaged update was refused|the update \w+ was (installed|rolled back)",  # the last lines
}
"""Switch -> what the page says beside it."""


class Camera:
    """The camera's process and its page's address."""

    def __init__(self, bundle: Path, video: Path, home: Path, port: int, *options: str) -> None:
        command = [sys.executable, str(SAMPLE / "watch.py"), str(bundle), str(video), "--home", str(home)]
        command += ["--port", str(port), "--no-browser", *options]
        self.home = home
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                self.url = found[0]
                break

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@contextmanager
def camera(*arguments: Any) -> Iterator[Camera]:
    running = Camera(*arguments)
    try:
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def bundle(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "coco.edgekit"
    card = SAMPLE.parent / "cards" / "yolox_nano.toml"
    edgekit.build(shared / "models" / "yolox_nano.onnx", targets=["ort", "tflite"], card=card).save(path)
    return path


@pytest.fixture(scope="module")
def video(shared: Path) -> Path:
    return shared / "data" / "video" / "bikes.mp4"


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def running(bundle: Path, video: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Camera]:
    with camera(bundle, video, tmp_path_factory.mktemp("home"), 0) as started:
        yield started


@contextmanager
def opened(
    program: Any, url: str, size: tuple[int, int] = DESK, scheme: str = "light", **options: Any
) -> Iterator[Any]:
    """The page with frames; it must have said nothing on the console when it is closed."""
    page = program.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, **options)
    said: list[str] = []
    page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: said.append(f"error: {error}"))
    page.goto(url)
    try:
        assert until(lambda: shown(page) > 2, 20.0), "no frames"
        yield page
        assert said == []
    finally:
        page.close()


def until(happened: Any, seconds: float) -> float | None:
    """Seconds until it was true; None: not in time."""
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        if happened():
            return passed
        time.sleep(0.05)
    return None


def shown(page: Any) -> int:
    """Frames that the page has shown."""
    return int(page.get_attribute("#stage", "data-shown") or 0)


def text(page: Any, selector: str) -> str:
    return str(page.text_content(selector))


def violations(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]


def drag(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Draw a rectangle on the picture with the mouse; places are shares of it."""
    box = page.locator("#stage").bounding_box()
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in (start, end)]
    page.mouse.move(*places[0])
    page.mouse.down()
    page.mouse.move(*places[1], steps=4)
    page.mouse.up()


def swipe(page: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    """The same with a finger, as the browser gets it from a screen: a page that lets it scroll cancels it."""
    box = page.locator("#stage").bounding_box()
    screen = page.context.new_cdp_session(page)
    for step in range(9):
        x, y = (a + (b - a) * step / 8 for a, b in zip(start, end, strict=True))
        point = {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}
        kind = "touchMove" if step else "touchStart"
        screen.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
    time.sleep(0.2)  # a finger that rests: else the browser takes the next tap for one that stops a fling
    screen.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [point]})
    screen.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def test_it_is_small_and_has_nothing_inline() -> None:
    files = list((SAMPLE / "page").iterdir())
    assert sum(path.stat().st_size for path in files) < 150_000
    html = (SAMPLE / "page" / "index.html").read_text("utf-8")
    assert not re.search(r"<style| style=| on\w+=|<script(?![^>]* src=)", html)
    sources = "".join(path.read_text("utf-8") for path in files)
    assert re.findall(r"(?:src|href|from|url\()=?\s*[\"'(]?(https?:)", sources) == []


def test_frames_boxes_and_ids(program: Any, running: Camera) -> None:
    with opened(program, running.url) as page:
        before = shown(page)
        assert until(lambda: page.get_attribute("#stage", "data-ids"), 15.0), "no ids"
        assert until(lambda: shown(page) > before + 10, 10.0), "frames stand still"
        assert until(lambda: page.evaluate(PAINTED), 5.0), "nothing is drawn"
        assert until(lambda: "person" in text(page, "#seen"), 15.0)
        assert re.fullmatch(r"(ort|tflite)-fp32", text(page, "#answers"))
        assert float(text(page, "#total-p95")) > 0


@pytest.mark.parametrize("name", SWITCHES)
def test_a_switch_has_a_visible_effect(program: Any, running: Camera, name: str) -> None:
    with opened(program, running.url) as page:
        assert until(lambda: text(page, "#fps") != "0.0", 20.0)  # it answers, also after the switch before
        page.check(f"[data-switch={name}]")
        took = until(lambda: re.search(SWITCHES[name], text(page, f"#effect-{name}")), EFFECT_S)
        print(f"{name}: {took}")
        assert took is not None, text(page, f"#effect-{name}")
        assert page.is_visible(f"#effect-{name}")
        if name == "network":
            assert text(page, "#link .text") == "live, device offline"
        if name == "update":
            rolled_back(page)
        page.uncheck(f"[data-switch={name}]")
        state = f"{running.url}/api/state"
        assert until(lambda: not page.request.get(state).json()["switches"][name], EFFECT_S)


def rolled_back(page: Any) -> None:
    """A bad update is on the page with its end: the bundle before it answers again."""
    version, effect = text(page, "#version"), "#effect-update"
    assert until(lambda: "was rolled back: " in text(page, effect), ENGINES_S), text(page, effect)
    told = text(page, "#events")  # the newest first
    steps = ("was rolled back: ", "was installed; no model in it loads", "a damaged update was refused: ")
    places = [told.index(step) for step in steps]
    assert places == sorted(places)
    assert version == text(page, "#version")
    before = shown(page)
    assert until(lambda: shown(page) > before + 5, 10.0), "frames stand still"


def test_blur_and_power(program: Any, running: Camera) -> None:
    with opened(program, running.url) as page:
        page.check("[data-switch=blur]")
        assert until(lambda: "blur: person" in text(page, "#events"), EFFECT_S)
        page.uncheck("[data-switch=blur]")
        page.check("[value=battery]", force=True)
        assert until(lambda: "power: battery" in text(page, "#power-effect"), EFFECT_S)
        page.check("[value=interactive]", force=True)
        assert until(lambda: "power: interactive" in text(page, "#power-effect"), EFFECT_S)


def test_an_alert_raised_offline_is_delivered_once(program: Any, running: Camera, tmp_path: Path) -> None:
    """A zone drawn by pointer fires; without a network its alert waits, and later it is sent once.

    EDGEKIT_SCREENSHOTS: the folder that screenshots stay in; docs/camera-page.jpg is this one's.
    """
    folder = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
    with opened(program, running.url) as page:
        page.check("[data-switch=network]")
        page.click("#draw")
        drag(page, (0.06, 0.12), (0.94, 0.94))
        page.fill("#rule-name", "Street")
        page.fill("#rule-seconds", "0")  # the film's people are seen for a moment only
        page.click("#rule [type=submit]")
        alerts = page.locator("#alerts li")
        assert until(lambda: alerts.count() > 0, 20.0), "the rule did not fire"
        assert "person in Street" in alerts.last.inner_text()
        assert alerts.last.get_attribute("data-state") == "queued"
        assert until(
            lambda: page.evaluate("document.querySelector('#alerts img').naturalWidth > 0"), EFFECT_S
        )
        assert until(lambda: "person" in text(page, "#seen"), 15.0)
        page.screenshot(path=folder / "camera-page.png")
        page.click("#zones .remove")
        assert until(lambda: page.locator("#zones li").count() == 0, EFFECT_S)
        page.uncheck("[data-switch=network]")
        sent = "[...document.querySelectorAll('#alerts li')].every(row => row.dataset.state === 'sent')"
        assert until(lambda: page.evaluate(sent), OUTBOX_S), "not sent"
        rows = [json.loads(path.read_text("utf-8")) for path in (running.home / "received").iterdir()]
        raised = [int(row.get_attribute("data-id")) for row in alerts.all()]
        assert sorted(row["id"] for row in rows) == sorted(raised)


def test_a_zone_drawn_by_a_finger_fires(program: Any, running: Camera) -> None:
    """On a phone: a drag on the picture draws and does not scroll the page; then taps alone."""
    with opened(program, running.url, PHONE, has_touch=True, is_mobile=True) as page:
        page.tap("#draw")
        swipe(page, (0.06, 0.98), (0.94, 0.1))
        assert page.evaluate("document.activeElement.type") == "submit"  # no keyboard over the picture
        assert violations(page) == []
        assert page.evaluate(WIDTH) <= PHONE[0]
        page.fill("#rule-name", "Finger")
        page.fill("#rule-seconds", "0")
        page.tap("#rule [type=submit]")
        alert = page.locator("#alerts li", has_text="person in Finger").first  # others may be there already
        assert until(alert.is_visible, 20.0), "the rule did not fire"
        page.tap("#zones .remove")
        assert until(lambda: page.locator("#zones li").count() == 0, EFFECT_S)
        page.tap("#draw")
        box = page.locator("#stage").bounding_box()
        for x, y in ((0.1, 0.1), (0.9, 0.1), (0.5, 0.9), (0.1, 0.1)):
            page.touchscreen.tap(box["x"] + x * box["width"], box["y"] + y * box["height"])
        assert page.is_visible("#rule")
        page.tap("#rule-cancel")


def test_a_zone_drawn_by_keys(program: Any, running: Camera) -> None:
    with opened(program, running.url, PHONE) as page:
        page.focus("#draw")
        for key in ("Enter", "Space", "Shift+ArrowRight", "Space", "Shift+ArrowDown", "Space", "Enter"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.id") == "rule-name"
        page.keyboard.press("Enter")
        assert until(lambda: page.locator("#zones li").count() == 1, EFFECT_S)
        assert page.evaluate("document.activeElement.id") == "draw"
        (zone,) = page.request.get(f"{running.url}/api/state").json()["zones"]
        assert zone["points"] == [[0.5, 0.5], [0.6, 0.5], [0.6, 0.6]]
        page.locator("#zones .remove").press("Enter")
        assert until(lambda: page.locator("#zones li").count() == 0, EFFECT_S)


@pytest.mark.parametrize(
    ("size", "scheme"), [(DESK, "light"), (DESK, "dark"), (PHONE, "light"), (PHONE, "dark")]
)
def test_axe_and_width(
    program: Any, running: Camera, size: tuple[int, int], scheme: str, tmp_path: Path
) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    folder = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
    with opened(program, running.url, size, scheme) as page:
        assert until(lambda: page.get_attribute("#stage", "data-ids"), 15.0)
        page.screenshot(path=folder / f"camera-{size[0]}-{scheme}.png")
        assert page.evaluate(WIDTH) <= size[0]
        assert violations(page) == []
        page.click("#draw")
        drag(page, (0.2, 0.2), (0.8, 0.8))
        assert violations(page) == []
        assert page.evaluate(WIDTH) <= size[0]


def test_a_lost_device_is_said_and_found_again(
    program: Any, bundle: Path, video: Path, tmp_path: Path
) -> None:
    page = program.new_page()
    with camera(bundle, video, tmp_path / "first", 0) as first:
        page.goto(first.url)
        assert until(lambda: shown(page) > 2, 20.0)
    assert until(lambda: page.is_visible("#veil"), LOST_S)
    assert text(page, ".veil-title") == "The page lost the device; reconnecting"
    assert text(page, "#link .text") == "device lost, reconnecting"
    assert violations(page) == []
    before = shown(page)
    with camera(bundle, video, tmp_path / "second", int(first.url.rpartition(":")[2])):
        assert until(lambda: page.is_hidden("#veil") and shown(page) > before, 20.0)
    page.close()


def test_with_a_token(program: Any, bundle: Path, video: Path, tmp_path: Path) -> None:
    with camera(bundle, video, tmp_path, 0, "--listen", "127.0.0.1") as guarded:
        with opened(program, guarded.url) as page:
            assert "token" not in page.evaluate("location.href")
            page.check("[data-switch=network]")
            assert until(lambda: text(page, "#link .text") == "live, device offline", EFFECT_S)
        stranger = program.new_context().new_page()
        stranger.goto(guarded.url.partition("#")[0])
        assert until(lambda: text(stranger, ".veil-title") == "This device asks for a token", LOST_S)
        assert violations(stranger) == []
        assert shown(stranger) == 0
