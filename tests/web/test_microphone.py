"""The page's microphone in Chromium, whose microphone is a file: classes over time, its end, and refusals."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.web.folder import write_web
from tests.fixtures.whisper_folders import speech
from tests.native.models import colours_bundle
from tests.native.sound_models import tones_bundle
from tests.report.browser import DESK, PHONE
from tests.web.host import OFFLINE, WAIT_MS, Host, browser_with, choose_bundle, hosted, opened, violations
from tests.web.microphones import HEAR, SCORE_LIMIT, compare, write_wav

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
LIVE, FAILED = "body[data-state=live]", "body[data-state=failed]"
INSECURE = "--host-resolver-rules=MAP insecure.test 127.0.0.1"


def three_tones(folder: Path) -> Path:
    """A low, a middle and a high tone, one second each."""
    time = np.arange(48_000) / 48_000
    tones = [0.5 * np.sin(2 * np.pi * hertz * time) for hertz in (200, 1000, 3000)]
    return write_wav(folder / "tones.wav", np.concatenate(tones), 48_000)


@pytest.fixture(scope="module")
def site(npm_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("host") / "site"
    made = write_web(tones_bundle(), folder, [npm_package])
    assert made.notes == []
    with hosted(folder) as host:
        yield host


def test_classes_over_time_are_python_s(site: Host, tmp_path: Path) -> None:
    with browser_with("microphone", three_tones(tmp_path)) as context, opened(context, site.url) as (page, _):
        heard = page.evaluate(HEAR, 4)
    expected = compare(heard, tones_bundle(), tmp_path / "t.edgekit")
    assert len(expected) > 20
    for window, one in zip(heard["windows"], expected, strict=True):
        assert window["kind"] == "classify"
        scores = {item["label"]: item["score"] for item in window["items"]}
        wanted = {item.label: item.score for item in one.prediction}
        assert scores == pytest.approx(wanted, abs=SCORE_LIMIT)
        assert sum(window["times_ms"].values()) > 0
    assert {window["items"][0]["label"] for window in heard["windows"]} == {"low", "middle", "high"}


@pytest.mark.needs_shared
def test_speech_by_a_model_with_states_is_python_s(npm_package: Path, shared: Path, tmp_path: Path) -> None:
    """Silero VAD: its state and the last samples of a window go on to the next one."""
    model = shared / "models" / "silero_vad.onnx"
    bundle = edgekit.build(model, targets=["ort"], precision="fp32", card=CARDS / "silero_vad.toml")
    sound = write_wav(tmp_path / "speech.wav", np.concatenate([np.zeros(8000), speech(2.0)]), 16_000)
    write_web(bundle, tmp_path / "site", [npm_package])
    with (
        hosted(tmp_path / "site") as host,
        browser_with("microphone", sound) as context,
        opened(context, host.url) as (page, _),
    ):
        heard = page.evaluate(HEAR, 4)
    expected = compare(heard, bundle, tmp_path / "v.edgekit")
    assert len(expected) > 60
    found = [window["items"][0]["score"] for window in heard["windows"]]
    assert found == pytest.approx([one.prediction.probability for one in expected], abs=SCORE_LIMIT)
    labels = ["speech" if one.prediction.is_speech else "no speech" for one in expected]
    assert [window["items"][0]["label"] for window in heard["windows"]] == labels
    assert max(found) - min(found) > 0.01


def test_the_page_shows_it_live_and_without_a_network(npm_package: Path, tmp_path: Path) -> None:
    """EDGEKIT_SCREENSHOTS: the folder that screenshots stay in."""
    pictures = Path(os.environ.get("EDGEKIT_SCREENSHOTS") or tmp_path)
    write_web(tones_bundle(), tmp_path / "site", [npm_package])
    with browser_with("microphone", three_tones(tmp_path)) as context:
        with hosted(tmp_path / "site") as host, opened(context, host.url) as (page, _):
            page.wait_for_selector(OFFLINE, timeout=WAIT_MS)
        with opened(context, host.url) as (page, _):  # nothing listens there
            assert page.is_hidden("#camera")
            assert page.is_hidden("#choose")
            page.click("#microphone")
            page.wait_for_selector(LIVE, timeout=WAIT_MS)
            page.wait_for_timeout(4000)
            assert set(page.locator("#items bdi").all_inner_texts()) == {"low", "middle", "high"}
            assert page.inner_text("#rate").endswith("; 0.0 s of sound dropped")
            assert page.get_attribute("#canvas", "aria-label").startswith("The microphone. Heard last: ")
            for size in (DESK, PHONE):
                page.set_viewport_size({"width": size[0], "height": size[1]})
                page.wait_for_timeout(500)
                assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
                assert violations(page) == []
                page.screenshot(path=pictures / f"web-microphone-{size[0]}.png", full_page=True)
            page.click("#microphone")
            assert page.inner_text("#microphone") == "Use the microphone"
            assert page.is_hidden("#canvas")


def test_controls_follow_the_bundle_and_it_ends_when_it_is_left(site: Host, tmp_path: Path) -> None:
    tones, colours = (
        tones_bundle().save(tmp_path / "t.edgekit"),
        colours_bundle().save(tmp_path / "c.edgekit"),
    )
    with browser_with("microphone", three_tones(tmp_path)) as context, opened(context, site.url) as (page, _):
        page.evaluate(
            "() => { const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
            "navigator.mediaDevices.getUserMedia = async (wanted) => (window.stream = await ask(wanted)); }"
        )
        page.click("#microphone")
        page.wait_for_selector(LIVE, timeout=WAIT_MS)
        state = "window.stream.getTracks().map((track) => track.readyState)"
        assert page.evaluate(state) == ["live"]
        choose_bundle(page, colours)
        assert page.evaluate(state) == ["ended"]
        assert [page.is_visible(name) for name in ("#microphone", "#camera", "#choose")] == [
            False,
            True,
            True,
        ]
        choose_bundle(page, tones)
        assert [page.is_visible(name) for name in ("#microphone", "#camera", "#choose")] == [
            True,
            False,
            False,
        ]
        page.click("#microphone")
        page.wait_for_selector(LIVE, timeout=WAIT_MS)
        page.evaluate("window.stream.getTracks()[0].dispatchEvent(new Event('ended'))")
        page.wait_for_selector(FAILED, timeout=WAIT_MS)
        assert page.inner_text("#problem") == "The microphone was disconnected."


def test_refusals_are_text(site: Host, tmp_path: Path) -> None:
    insecure, sound = site.url.replace("127.0.0.1", "insecure.test"), three_tones(tmp_path)
    for file, url, allowed, text in (
        (None, site.url, True, "This device has no microphone that the browser can use."),
        (sound, site.url, False, "The browser did not allow the microphone. Allow it for this page in the "
         "browser's settings, then try again."),
        (sound, insecure, True, "The microphone needs https: browsers allow it only there, and on "
         "localhost."),
    ):  # fmt: skip
        with (
            browser_with("microphone", file, INSECURE, allowed=allowed) as context,
            opened(context, url) as (page, _),
        ):
            page.click("#microphone")
            page.wait_for_selector(FAILED, timeout=WAIT_MS)
            assert page.inner_text("#problem") == text
            assert page.is_enabled("#microphone")
            assert page.inner_text("#microphone") == "Use the microphone"
