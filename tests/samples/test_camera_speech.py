"""Speech beside the camera: a recording as a page sends it, and in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.runtime import Session, Transcriber
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write
from tests.fixtures.sounds import wav
from tests.fixtures.whisper_folders import speech, write_whisper
from tests.report.browser import browser
from tests.samples.live_camera import LiveCamera, write_video

pytestmark = [pytest.mark.needs_ort]
pytest.importorskip("cv2")
aiohttp = pytest.importorskip("aiohttp")

BLOCK = 1600


@pytest.fixture(scope="module")
def recording() -> Any:
    """int16: two sounds and a pause."""
    parts = [speech(1.2), np.zeros(16000), speech(0.9), np.zeros(8000)]
    return np.rint(np.concatenate(parts) * 30000).astype("<i2")


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("talk")
    bundle = edgekit.build(write_whisper(folder / "whisper"), targets=["ort"], precision="fp32")
    bundle.save(folder / "talk.edgekit")
    return folder / "talk.edgekit"


@pytest.fixture(scope="module")
def text(talk: Path, recording: Any) -> str:
    with Session(talk, threads=1) as session:
        blocks = (recording[start : start + BLOCK] for start in range(0, len(recording), BLOCK))
        found = "".join(update.text for update in Transcriber(session).listen(blocks))
    assert len(found.split()) > 5
    return found


@pytest.fixture(scope="module")
def street(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("street")
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    model = write(folder, COLOUR_FINDER)
    edgekit.build(model, targets=["ort"], card=folder / "card.toml").save(folder / "blue.edgekit")
    return folder / "blue.edgekit", write_video(folder / "street.avi")


@pytest.fixture(scope="module")
def camera(
    street: tuple[Path, Path], talk: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveCamera]:
    home = tmp_path_factory.mktemp("home") / "camera"
    with LiveCamera(*street, home, "--speech", str(talk)) as running:
        yield running


def test_a_sound_comes_back_as_text_while_it_is_sent(camera: LiveCamera, recording: Any, text: str) -> None:
    async def speak(session: Any) -> list[dict[str, Any]]:
        replies = []
        async with session.ws_connect(f"{camera.url}/sound") as socket:
            for start in range(0, len(recording), BLOCK):
                await socket.send_bytes(recording[start : start + BLOCK].tobytes())
                replies.append(await socket.receive_json())
            await socket.send_str("end")
            return [*replies, await socket.receive_json()]

    replies = camera.in_session(speak)
    assert "".join(each["text"] for reply in replies for each in reply["updates"]) == text
    assert any(reply["updates"] for reply in replies[: len(replies) // 2])
    assert {(reply["variant"], reply["error"]) for reply in replies} == {("ort-fp32", "")}
    assert camera.state()["speech"] is True


def test_a_third_sound_waits_and_what_is_not_a_sound_ends_it(camera: LiveCamera, recording: Any) -> None:
    async def speak(session: Any) -> list[Any]:
        block = recording[:BLOCK].tobytes()
        found = []
        async with (
            session.ws_connect(f"{camera.url}/sound") as first,
            session.ws_connect(f"{camera.url}/sound") as second,
        ):
            for socket in (first, second):
                await socket.send_bytes(block)
                found.append((await socket.receive()).type)
            async with session.ws_connect(f"{camera.url}/sound") as third:
                found.append((await third.receive()).type)
            await second.send_bytes(b"odd")
            found.append((await second.receive()).type)
        async with session.ws_connect(f"{camera.url}/sound") as again:
            await again.send_bytes(block)
            found.append((await again.receive()).type)
        return found

    kinds = aiohttp.WSMsgType
    assert camera.in_session(speak) == [kinds.TEXT, kinds.TEXT, kinds.CLOSE, kinds.CLOSE, kinds.TEXT]


def test_a_closed_tab_logs_nothing(camera: LiveCamera, recording: Any) -> None:
    """The page is gone while its blocks are transcribed."""

    async def leave(session: Any) -> None:
        socket = await session.ws_connect(f"{camera.url}/sound")
        for start in range(0, len(recording), BLOCK):
            await socket.send_bytes(recording[start : start + BLOCK].tobytes())
        await socket.receive()
        socket._response.connection.transport.abort()

    async def speak(session: Any) -> Any:
        async with session.ws_connect(f"{camera.url}/sound") as first:
            await first.send_bytes(recording[:BLOCK].tobytes())
            async with session.ws_connect(f"{camera.url}/sound") as second:
                await second.send_bytes(recording[:BLOCK].tobytes())
                return (await second.receive()).type

    for _ in range(3):
        camera.in_session(leave)
    while camera.in_session(speak) != aiohttp.WSMsgType.TEXT:  # those that left have not ended yet
        time.sleep(0.05)
    assert camera.log.read_text("utf-8") == ""


def test_a_camera_without_a_speech_model_says_so(
    street: tuple[Path, Path], talk: Path, tmp_path: Path
) -> None:
    with LiveCamera(*street, tmp_path / "camera") as running:
        status, answer = running.ask("GET", "/sound")
        assert (status, answer["error"]) == (
            404,
            "this camera has no speech model; start it with --speech",
        )
        assert running.state()["speech"] is False
    with pytest.raises(AssertionError, match="does not transcribe speech"):
        LiveCamera(*street, tmp_path / "other", "--speech", str(street[0]))


def violations(page: Any) -> list[str]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]


def until(happened: Callable[[], bool]) -> None:
    """Wait at most 90 s. The page's policy forbids scripts of the test."""
    end_s = time.monotonic() + 90
    while not happened():
        assert time.monotonic() < end_s
        time.sleep(0.05)


@pytest.mark.needs_browser
def test_the_page_reads_a_recording(camera: LiveCamera, recording: Any, text: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(recording.tobytes()))
    with browser() as program:
        page = program.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(camera.url)
        page.click("text=Speech")
        page.set_input_files("#file", path)
        until(lambda: page.text_content("#heard") == "3.6 s" and page.text_content("#link .text") == "ready")
        shown = page.text_content("#final")
        assert shown.split() == text.split()
        assert "\n" in shown.strip()
        assert page.text_content("#variant") == "ort-fp32"
        assert page.text_content("#provisional") == ""
        assert violations(page) == []
        assert said == []
