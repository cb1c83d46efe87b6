"""Where the camera's frames come from: a folder, a webcam that is not there, a network camera that fails."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import edgekit
from tests.fixtures.models import COLOUR_CARD, COLOUR_FINDER, write
from tests.fixtures.ports import unused_port
from tests.samples.live_camera import SAMPLE, LiveCamera

cv2 = pytest.importorskip("cv2")

from tests.samples.rtsp_server import RtspServer  # noqa: E402 - it needs OpenCV

PATIENCE_S = 60.0
"""The end of a wait for what comes within a second or two."""
ABSENT = "97"
"""A webcam's number that no machine has."""


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The sample's module; a lost stream is found lost soon, and tried again soon."""
    monkeypatch.syspath_prepend(str(SAMPLE))
    module = importlib.import_module("live.sources")
    monkeypatch.setattr(module, "RETRY_S", 0.05)
    monkeypatch.setattr(module, "SILENT_MS", 1000)
    return module


class Reader:
    """Reads a source in a thread, as the device does."""

    def __init__(self, sources: ModuleType, source: str) -> None:
        self.seen: list[Any] = []
        self.told: list[str] = []
        self.source = sources.open_source(source, self.told.append)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        self.seen.extend(self.source.frames(self._stop))

    def until(self, shows: Any) -> None:
        end = time.monotonic() + PATIENCE_S
        while not shows():
            assert time.monotonic() < end, (len(self.seen), self.told)
            time.sleep(0.02)

    def more(self, count: int = 3) -> None:
        """Wait for so many more frames."""
        before = len(self.seen)
        self.until(lambda: len(self.seen) >= before + count)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self.source.close()


def coloured(number: int) -> Any:
    """Its green says which frame it is."""
    return np.full((96, 128, 3), (250, 10 + 40 * (number % 2), 20), np.uint8)


def numbered(number: int) -> Any:
    """Its grey says its number, modulo 10."""
    return np.full((96, 128, 3), 15 + 25 * (number % 10), np.uint8)


def numbers(frames: list[Any]) -> list[int]:
    return [round((float(frame.mean()) - 15) / 25) for frame in frames]


def filmed(path: Path, frames: int) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 200.0, (128, 96))
    for number in range(frames):
        writer.write(numbered(number))
    writer.release()
    return path


# --- files -------------------------------------------------------------------------------------------------


def test_a_folder_shows_its_pictures_by_name_again_and_again(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "PICTURES_RATE", 100.0)
    for name, side in (("b.png", 20), ("a.JPG", 10), ("c.bmp", 30)):
        cv2.imwrite(str(tmp_path / name), np.full((side, 2 * side, 3), side, np.uint8))
    (tmp_path / "aa.jpg").write_bytes(b"\xff\xd8\xff no picture")
    (tmp_path / "notes.txt").write_text("not shown", "utf-8")
    with Reader(sources, str(tmp_path)) as reader:
        reader.until(lambda: len(reader.seen) >= 6)
    assert [frame.shape for frame in reader.seen[:6]] == 2 * [(10, 20, 3), (20, 40, 3), (30, 60, 3)]
    assert (reader.source.name, reader.source.rate, reader.source.live) == (tmp_path.name, 100.0, False)
    assert reader.told == []


def test_pictures_that_are_gone_are_passed_over(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is emptied meanwhile neither spins nor ends the loop."""
    monkeypatch.setattr(sources, "PICTURES_RATE", 100.0)
    picture = tmp_path / "a.png"
    cv2.imwrite(str(picture), coloured(0))
    with Reader(sources, str(tmp_path)) as reader:
        reader.more()
        picture.unlink()
        reader.until(lambda: reader.source.lost)
        cv2.imwrite(str(picture), coloured(0))
        reader.more()
    assert [line.partition(" ")[2] for line in reader.told] == [
        "gives no frames; trying again every 0.05 s",
        "gives frames again",
    ]


@pytest.mark.parametrize("content", [None, "text"])
def test_a_folder_without_pictures(sources: ModuleType, tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "a.png").write_text(content, "utf-8")
    with pytest.raises(sources.SourceError) as error:
        sources.open_source(str(tmp_path))
    assert str(error.value) == f"{tmp_path} has no pictures; known are .jpg, .jpeg, .png, .bmp, .webp"


def test_a_video_begins_again_at_its_end(sources: ModuleType, tmp_path: Path) -> None:
    with Reader(sources, str(filmed(tmp_path / "street.avi", 4))) as reader:
        reader.until(lambda: len(reader.seen) >= 10)
    assert numbers(reader.seen[:10]) == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1]
    assert (reader.source.name, reader.source.rate, reader.source.live) == ("street.avi", 200.0, False)
    assert reader.told == []


def test_a_file_that_is_no_video(sources: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "street.mp4").write_bytes(b"no video")
    with pytest.raises(sources.SourceError, match="can't be read as a video, a picture or a folder"):
        sources.open_source(str(tmp_path / "street.mp4"))


# --- a webcam ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "card.toml").write_text(COLOUR_CARD, "utf-8")
    built = edgekit.build(write(folder, COLOUR_FINDER), targets=("ort",), card=folder / "card.toml")
    built.save(folder / "blue.edgekit")
    return folder / "blue.edgekit"


@pytest.mark.needs_ort
def test_a_webcam_that_is_not_there_is_one_error(bundle: Path, tmp_path: Path) -> None:
    """Not OpenCV's warnings, and not a page that waits for ever."""
    pytest.importorskip("aiohttp")
    command = [
        sys.executable,
        str(SAMPLE / "watch.py"),
        str(bundle),
        ABSENT,
        "--home",
        str(tmp_path / "home"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == (
        f"error: there is no webcam {ABSENT}, or another program has it; the first one is 0\n"
    )
    assert done.stdout == ""
    assert not (tmp_path / "home").exists()


def test_a_webcam_that_is_unplugged_is_opened_again(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The webcam is a file of three frames, each time it is opened: it ends as one that is unplugged."""
    video, opened = filmed(tmp_path / "three.avi", 3), 0
    capture = cv2.VideoCapture

    def webcam(number: int) -> Any:
        nonlocal opened
        assert number == int(ABSENT)
        opened += 1
        return capture(str(video) if opened != 2 else str(tmp_path / "unplugged.avi"))

    monkeypatch.setattr(cv2, "VideoCapture", webcam)
    with Reader(sources, ABSENT) as reader:
        reader.until(lambda: len(reader.seen) >= 6)
    assert numbers(reader.seen[:6]) == [0, 1, 2, 0, 1, 2]
    assert (reader.source.live, reader.source.rate) == (True, None)  # it sets the pace itself
    assert reader.told[:2] == [
        f"webcam {ABSENT} gives no frames; trying again every 0.05 s",
        f"webcam {ABSENT} gives frames again",
    ]


# --- a network camera --------------------------------------------------------------------------------------


def test_a_network_camera(sources: ModuleType) -> None:
    with RtspServer(coloured) as server, Reader(sources, server.url) as reader:
        reader.more(10)
    assert {frame.shape for frame in reader.seen} == {(96, 128, 3)}
    greens = [float(frame[..., 1].mean()) for frame in reader.seen]
    assert {round(green, -1) for green in greens} == {10.0, 50.0}  # the frames themselves, not one of them
    np.testing.assert_allclose(reader.seen[-1][..., (0, 2)].mean(axis=(0, 1)), (250, 20), atol=3)
    assert (reader.source.live, reader.source.rate, reader.told) == (True, None, [])


def test_a_network_cameras_frames_come_in_order(sources: ModuleType) -> None:
    with RtspServer(numbered) as server, Reader(sources, server.url) as reader:
        reader.more(25)
    seen = numbers(reader.seen)
    assert [number % 10 for number in range(seen[0], seen[0] + len(seen))] == seen


def test_a_network_camera_comes_goes_and_comes_again(sources: ModuleType) -> None:
    port = unused_port()
    name = f"rtsp://127.0.0.1:{port}/street"
    with Reader(sources, name) as reader:
        reader.until(lambda: reader.source.lost)
        for _ in range(2):
            with RtspServer(coloured, port):
                reader.more()
                assert not reader.source.lost
            reader.until(lambda: reader.source.lost)
    lost, back = f"{name} gives no frames; trying again every 0.05 s", f"{name} gives frames again"
    assert reader.told == [lost, back, lost, back, lost]


def test_a_network_camera_that_stalls_is_lost_and_found(sources: ModuleType) -> None:
    """Its connection stays open; nothing comes."""
    with RtspServer(coloured) as server:
        with Reader(sources, server.url) as reader:
            reader.more()
            server.stalled.set()
            reader.until(lambda: reader.source.lost)
            server.stalled.clear()
            reader.more()
        assert not reader.source.lost


NONSENSE = {
    "silence": b"",
    "another protocol": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "no protocol": 4000 * b"\x00\xff$",
    "a refusal": b"RTSP/1.0 401 Unauthorized\r\nCSeq: 1\r\n\r\n",
    "a size that lies": b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nContent-Length: 99999999999\r\n\r\n",
    "an endless header": b"RTSP/1.0 200 OK\r\nCSeq: 1\r\nX: " + 200_000 * b"a",
}


@pytest.fixture
def nonsense(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers everything with the same bytes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            held = []
            while True:
                try:
                    held.append(listener.accept()[0])
                    held[-1].recv(1000)
                    held[-1].sendall(request.param)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield f"rtsp://127.0.0.1:{listener.getsockname()[1]}/street"


@pytest.mark.parametrize("nonsense", list(NONSENSE.values()), ids=list(NONSENSE), indirect=True)
def test_a_network_camera_that_talks_nonsense(sources: ModuleType, nonsense: str) -> None:
    with Reader(sources, nonsense) as reader:
        reader.until(lambda: reader.told)
    assert reader.told == [f"{nonsense} gives no frames; trying again every 0.05 s"]
    assert reader.seen == []


@pytest.mark.needs_ort
def test_the_page_on_a_network_camera(bundle: Path, tmp_path: Path) -> None:
    """The whole of it; the password in the address is shown nowhere."""
    pytest.importorskip("aiohttp")
    with RtspServer(coloured) as server:
        address = server.url.replace("//", "//me:secret@")
        with LiveCamera(bundle, address, tmp_path / "home") as camera:
            state = camera.wait(lambda state: state["frames"] > 5, PATIENCE_S)
            assert state["source"] == {"name": server.url, "rate": None, "live": True, "ended": False}
            head, picture = camera.frames(3)[-1]
            assert [box["label"] for box in head["boxes"]] == ["blue"]
            assert picture.shape == (96, 128, 3)
            server.close()
            state = camera.wait(lambda state: state["source"]["ended"], PATIENCE_S)
            assert any("gives no frames; trying again" in event["text"] for event in state["events"])
            assert "secret" not in str(state)
            camera.stop()
            assert camera.process.returncode == 0
        log = camera.log.read_text("utf-8")
        assert "secret" not in log
        assert "Traceback" not in log
