"""The page of ``edgekit export --web`` in Firefox and WebKitGTK: checks, predictions, and no network."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.runtime import Session
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from edgekit.web.folder import write_web
from tests.fixtures.keys import KINDS, key_files
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import COLOUR_CARD, COLOURS, SWAPPED, colours_bundle, model_bundle, yolox_bundle
from tests.native.sound_models import tones_bundle
from tests.web.drivers import Page, firefox, webkit
from tests.web.host import WAIT_MS, assert_same_boxes, first_photograph, hosted, save_photograph
from tests.web.microphones import HEAR, SCORE_LIMIT, compare

pytestmark = [pytest.mark.needs_other_browsers, pytest.mark.needs_npm, pytest.mark.needs_ort]
BROWSERS = {"firefox": firefox, "webkit": webkit}
SIGNED = """
  const said = [];
  const {Session} = await import('./edgekit.js');
  const read = async (name) => (await fetch(name)).text();
  for (const keys of [[await read('own.pub')], [await read('other.pub')]]) {
    const session = await Session.open('model.edgekit', {keys}).catch((problem) => problem);
    said.push(session.variant ?? session.message);
  }
  return said;
"""
PREDICTION = """
  const {Session} = await import('./edgekit.js');
  const session = await Session.open('model.edgekit');
  const prediction = await session.predict(await (await fetch('photo.png')).blob());
  await session.close();
  return {...prediction, golden: session.golden};
"""


@pytest.fixture(scope="module", params=BROWSERS)
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    with BROWSERS[request.param]() as running:
        yield running


def state(page: Page, attribute: str, wanted: tuple[str, ...]) -> str:
    """Wait until a data attribute of the body has one of these values; return the value."""
    deadline = time.monotonic() + WAIT_MS / 1000
    while (value := page.evaluate(f"return document.body.dataset.{attribute} ?? ''")) not in wanted:
        assert time.monotonic() < deadline, value
        time.sleep(0.1)
    return str(value)


def shown(page: Page, selector: str) -> str:
    return str(page.evaluate(f"return document.querySelector('{selector}').innerText"))


@pytest.mark.needs_shared
def test_a_detector_finds_what_python_finds(
    page: Page, npm_package: Path, shared: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    bundle = yolox_bundle(shared)
    write_web(bundle, tmp_path / "site", [npm_package])
    frame = first_photograph(shared)
    save_photograph(tmp_path / "site" / "photo.png", frame)
    with Session(bundle.save(tmp_path / "y.edgekit"), threads=1) as session:
        expected = session.predict(frame)
    with hosted(tmp_path / "site") as host:
        page.goto(host.url)
        assert state(page, "state", ("ready", "refused")) == "ready"
        answer: dict[str, Any] = page.evaluate(PREDICTION)
        folder = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
        page.screenshot(folder / f"web-{request.node.callspec.id}.png")
        agent = page.evaluate("return navigator.userAgent")
    (golden,) = answer["golden"]
    print(f"{agent}: {golden['snr_db']:.1f} dB; ms {answer['times_ms']}")
    assert golden["snr_db"] > 90
    assert_same_boxes(answer["items"], expected)


def test_a_wrong_engine_is_left_and_the_second_load_needs_no_network(
    page: Page, npm_package: Path, tmp_path: Path
) -> None:
    right = onnx_bytes(COLOURS)
    bundle = model_bundle({"wrong": onnx_bytes(SWAPPED), "right": right}, right, COLOUR_CARD)
    write_web(bundle, tmp_path / "site", [npm_package])
    with hosted(tmp_path / "site") as host:
        page.goto(host.url)
        assert state(page, "state", ("ready", "refused")) == "ready"
        assert "right on onnxruntime-web" in shown(page, "#summary")
        rows = shown(page, "#checks")
        assert re.search(
            r"wrong: output scores of a golden vector: SNR -6\.0 dB; the limit is 40\.0 dB", rows
        )
        assert state(page, "offline", ("ready",)) == "ready"
    page.goto(host.url)  # nothing listens there
    assert state(page, "state", ("ready", "refused")) == "ready"
    assert "right on onnxruntime-web" in shown(page, "#summary")


def test_a_bundle_without_a_right_variant_is_refused(page: Page, npm_package: Path, tmp_path: Path) -> None:
    bundle = model_bundle({"wrong": onnx_bytes(SWAPPED)}, onnx_bytes(COLOURS), COLOUR_CARD)
    write_web(bundle, tmp_path / "site", [npm_package])
    with hosted(tmp_path / "site") as host:
        page.goto(host.url)
        assert state(page, "state", ("ready", "refused")) == "refused"
        assert "SNR -6.0 dB; the limit is 40.0 dB" in shown(page, "#problem")


@pytest.mark.parametrize("kind", ["Ed25519", "P-256"])
def test_a_bundle_opens_with_the_key_that_signed_it(
    page: Page, npm_package: Path, tmp_path: Path, kind: str
) -> None:
    write_web(colours_bundle(), tmp_path / "site", [npm_package])
    bundle = tmp_path / "site" / "model.edgekit"
    private, _ = key_files(tmp_path / "site", "own", KINDS[kind]())
    key_files(tmp_path / "site", "other", KINDS["P-384"]())
    bundle.with_name("model.edgekit.sig").write_bytes(sign_file(bundle, load_private_key(private)))
    with hosted(tmp_path / "site") as host:
        page.goto(host.url)
        opened, refused = page.evaluate(SIGNED)
    assert opened == "colours"
    assert refused == "model.edgekit.sig does not hold: no trusted key made it, or it was changed"


def test_the_microphone_in_webkit(npm_package: Path, tmp_path: Path) -> None:
    """WebKitGTK has a mock of a microphone. So has Firefox (media.navigator.streams.fake), but its sound
    stays suspended on a machine without a device for output."""
    write_web(tones_bundle(), tmp_path / "site", [npm_package])
    mock = ("--enable-media-stream=true", "--enable-mock-capture-devices=true")
    with hosted(tmp_path / "site") as host, webkit(*mock) as page:
        page.goto(host.url)
        heard = page.evaluate(f"const hear = {HEAR}; return hear(3);")
    expected = compare(heard, tones_bundle(), tmp_path / "t.edgekit")
    assert len(expected) > 10
    for window, one in zip(heard["windows"], expected, strict=True):
        scores = {item["label"]: item["score"] for item in window["items"]}
        assert scores == pytest.approx({item.label: item.score for item in one.prediction}, abs=SCORE_LIMIT)
