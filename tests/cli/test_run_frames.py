"""``run`` on a video: a window or, without a display, a video with the predictions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import edgekit
from tests.fixtures.command_line import Call, answer
from tests.fixtures.detector import detector, detector_card

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed")
pytestmark = pytest.mark.needs_ort
COUNT = 5


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A detector's bundle, and a video."""
    folder = tmp_path_factory.mktemp("frames")
    edgekit.build(detector(folder / "d.onnx"), targets="ort", card=detector_card(32)).save(
        folder / "d.edgekit"
    )
    film = cv2.VideoWriter(str(folder / "film.mp4"), cv2.VideoWriter.fourcc(*"mp4v"), 10.0, (64, 48))
    for number in range(COUNT):
        film.write(np.full((48, 64, 3), 40 * number, np.uint8))
    film.release()
    return folder / "d.edgekit", folder / "film.mp4"


def test_without_a_display_a_video_is_written(
    seeing: tuple[Path, Path], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.chdir(tmp_path)
    bundle, film = seeing
    result = call("run", bundle, "-i", film, "--show")
    assert result.exit_code == 0
    assert "the predictions are written to drawn.mp4" in result.stderr
    drawn = tmp_path / "drawn.mp4"
    assert [path.name for path in tmp_path.iterdir()] == [drawn.name]
    video = cv2.VideoCapture(str(drawn))
    assert (video.get(cv2.CAP_PROP_FRAME_COUNT), video.get(cv2.CAP_PROP_FPS)) == (COUNT, 10)
    found = answer(call("run", bundle, "-i", film, "--draw", tmp_path / "b.mp4", "--json"))
    assert (found["frames"], found["written"]) == (COUNT, str(tmp_path / "b.mp4"))


def test_what_cannot_be_shown_is_refused_and_nothing_is_written(
    seeing: tuple[Path, Path], call: Call, tmp_path: Path
) -> None:
    bundle, film = seeing
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(film.read_bytes()[:40])
    for words, message in (
        (["-i", film], "is a video or a camera: add --show, or --draw FILE.mp4 to write one"),
        (["-i", film, "--show", "--draw", tmp_path / "x.mp4"], "is the only input of a run"),
        (["-i", broken, "--draw", tmp_path / "x.mp4"], "can't be read as a video: OpenCV cannot open it"),
        (["-i", "63", "--draw", tmp_path / "x.mp4"], "camera 63 can't be opened"),
        (["-i", bundle, "--show"], "--show is for a video or a camera"),
    ):
        result = call("run", bundle, *words)
        assert result.exit_code == 2
        assert message in result.stderr
    assert list(tmp_path.iterdir()) == [broken]
