"""The page's camera in Chromium, whose camera is a file: boxes, dropped frames, its end, and refusals."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edgekit.runtime import Session
from edgekit.web.folder import write_web
from tests.native.models import colours_bundle, yolox_bundle
from tests.report.browser import DESK, PHONE
from tests.web.host import (
    WAIT_MS,
    Host,
    assert_same_boxes,
    browser_with,
    choose_photograph,
    hosted,
    opened,
    save_photograph,
    violations,
)

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
LIVE, FAILED = "body[data-state=live]", "body[data-state=failed]"
INSECURE = "--host-resolver-rules=MAP insecure.test 127.0.0.1"
FRAME = """async () => {
  const video = document.querySelector('#video'), {videoWidth: width, videoHeight: height} = video;
  const canvas = new OffscreenCanvas(width, height), context = canvas.getContext('2d');
  const {Session} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit'), found = await session.predict(video);
  context.drawImage(video, 0, 0);
  await session.close();
  const {data} = context.getImageData(0, 0, width, height);
  return {...found, data: Array.from(data), drawn: document.querySelector('#canvas').width};
}"""


def write_camera(path: Path, frame: np.ndarray[Any, np.dtype[np.uint8]]) -> Path:
    """Write one frame as YUV4MPEG2, which Chromium plays again and again as a camera's video."""
    height, width = (side // 2 * 2 for side in frame.shape[:2])
    y, cb, cr = np.moveaxis(np.array(Image.fromarray(frame[:height, :width]).convert("YCbCr"), float), 2, 0)
    luma, chroma = 16 + y * 219 / 255, [128 + (plane - 128) * 224 / 255 for plane in (cb, cr)]
    halves = [plane.reshape(height // 2, 2, width // 2, 2).mean((1, 3)) for plane in chroma]
    planes = b"".join(plane.round().astype(np.uint8).tobytes() for plane in (luma, *halves))
    path.write_bytes(f"YUV4MPEG2 W{width} H{height} F30:1 Ip A1:1 C420jpeg\nFRAME\n".encode() + planes)
    return path


def small_camera(folder: Path) -> Path:
    frame = np.random.default_rng(1).integers(0, 256, (48, 64, 3)).astype(np.uint8)
    return write_camera(folder / "camera.y4m", frame)


@pytest.mark.needs_shared
def test_boxes_over_the_live_video_are_python_s(npm_package: Path, shared: Path, tmp_path: Path) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    pictures = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
    bundle = yolox_bundle(shared)
    write_web(bundle, tmp_path / "site", [npm_package])
    photo = sorted((shared / "data" / "coco128").rglob("*.jpg"))[0]
    frame = np.ascontiguousarray(Image.open(photo).convert("RGB"))
    video = write_camera(tmp_path / "camera.y4m", frame)
    with (
        hosted(tmp_path / "site") as host,
        browser_with("camera", video) as context,
        opened(context, host.url) as (page, _),
    ):
        page.click("#camera")
        page.wait_for_selector(LIVE, timeout=WAIT_MS)
        page.wait_for_timeout(2500)
        found = page.evaluate(FRAME)
        labels = page.locator("#items bdi").all_inner_texts()
        assert " frames/s; " in page.inner_text("#rate")
        assert int(page.inner_text("#rate").split("; ")[1].split()[0]) > 5  # 30 a second arrive
        assert all(page.inner_text(f"#time-{stage}") for stage in ("read", "prepare", "run", "decode"))
        for size in (DESK, PHONE):
            page.set_viewport_size({"width": size[0], "height": size[1]})
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
            assert violations(page) == []
            page.screenshot(path=pictures / f"web-camera-{size[0]}.png", full_page=True)
        boxes = [page.locator(name).bounding_box() for name in ("#video", "#canvas")]
        assert boxes[0] == pytest.approx(boxes[1], abs=1)
    pixels = np.array(found["data"], np.uint8).reshape(found["height"], found["width"], 4)[..., :3]
    assert np.abs(pixels.astype(int) - frame[: found["height"], : found["width"]]).mean() < 12
    with Session(bundle.save(tmp_path / "y.edgekit"), threads=1) as session:
        expected, original = session.predict(np.ascontiguousarray(pixels)), session.predict(frame)
    assert found["drawn"] == found["width"]
    assert_same_boxes(found["items"], expected)
    assert labels == [item["label"] for item in found["items"]]
    sure = [one.label for one in original if one.score > 0.5]  # the file, before the camera's colours
    assert sure == [one.label for one in expected][: len(sure)]
    np.testing.assert_allclose(expected.boxes[: len(sure)], original.boxes[: len(sure)], atol=8)


TRACKS = """() => {
  const stream = document.querySelector('#video').srcObject;
  window.kept = stream?.getTracks() ?? window.kept;
  return [stream !== null, ...window.kept.map((track) => track.readyState)];
}"""
HIDE = """() => {
  Object.defineProperty(document, 'hidden', {value: true, configurable: true});
  document.dispatchEvent(new Event('visibilitychange'));
  delete document.hidden;
}"""


def test_the_camera_ends_when_it_is_left(site: Host, tmp_path: Path) -> None:
    photo = save_photograph(tmp_path / "photo.png", np.zeros((48, 64, 3), np.uint8))
    bundle = colours_bundle().save(tmp_path / "c.edgekit")
    with browser_with("camera", small_camera(tmp_path)) as context, opened(context, site.url) as (page, _):
        for leave in (
            lambda: page.click("#camera"),
            lambda: page.evaluate(HIDE),
            lambda: page.evaluate("dispatchEvent(new Event('pagehide'))"),
            lambda: choose_photograph(page, photo),
            lambda: page.set_input_files("#other", str(bundle)),
        ):
            page.locator("#camera", has_text="Use the camera").click()
            page.wait_for_selector(LIVE, timeout=WAIT_MS)
            assert page.evaluate(TRACKS) == [True, "live"]
            leave()
            page.locator("#camera", has_text="Use the camera").wait_for(timeout=WAIT_MS)
            assert page.evaluate(TRACKS) == [False, "ended"]
            assert page.is_hidden("#video")


def test_a_camera_that_is_disconnected_is_an_error(site: Host, tmp_path: Path) -> None:
    with browser_with("camera", small_camera(tmp_path)) as context, opened(context, site.url) as (page, _):
        page.click("#camera")
        page.wait_for_selector(LIVE, timeout=WAIT_MS)
        page.evaluate(
            "document.querySelector('#video').srcObject.getTracks()[0].dispatchEvent(new Event('ended'))"
        )
        page.wait_for_selector(FAILED, timeout=WAIT_MS)
        assert page.inner_text("#problem") == "The camera was disconnected."


def test_refusals_are_text(site: Host, tmp_path: Path) -> None:
    insecure = site.url.replace("127.0.0.1", "insecure.test")
    for video, url, allowed, text in (
        (None, site.url, True, "This device has no camera that the browser can use."),
        (
            small_camera(tmp_path),
            site.url,
            False,
            "The browser did not allow the camera. Allow it for this page",
        ),
        (
            small_camera(tmp_path),
            insecure,
            True,
            "The camera needs https: browsers allow it only there, and on",
        ),
    ):
        with (
            browser_with("camera", video, INSECURE, allowed=allowed) as context,
            opened(context, url) as (page, _),
        ):
            page.click("#camera")
            page.wait_for_selector(FAILED, timeout=WAIT_MS)
            assert page.inner_text("#problem").startswith(text)
            assert page.is_visible("#problem")
            assert page.is_enabled("#camera")
            assert page.inner_text("#camera") == "Use the camera"
