"""Videos as samples: frames evenly spread, right, the same at every reading; and files that are none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate import samples as samples_module
from edgekit.compiler.evaluate import video_files
from edgekit.compiler.evaluate.samples import load_samples, read_sample
from edgekit.compiler.evaluate.video_files import is_frame, read_frame, video_frames
from edgekit.errors import MissingDependency, SampleError
from edgekit.processing.card import parse_card
from edgekit.tensor_spec import TensorSpec

cv2 = pytest.importorskip("cv2")
ROOT = Path(__file__).resolve().parents[3]
COUNT = 40
IMAGE = {"kind": "image", "shape": [1, 3, 24, 32], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
CARD = parse_card({"title": "c", "inputs": {"x": IMAGE}})
INPUT = TensorSpec("x", "float32", (1, 3, 24, 32))


def written(path: Path, codec: str = "mp4v") -> Path:
    """A video whose frame n is a grey of 6 n, with red 100 more in the left half."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*codec), 25, (32, 24))
    for number in range(COUNT):
        frame = np.full((24, 32, 3), 3 * number, np.uint8)
        frame[:, :16, 2] += 100
        writer.write(frame)
    writer.release()
    return path


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "mp4v"), ("a.avi", "MJPG"), ("A.MOV", "mp4v")])
def test_frames_are_evenly_spread_and_are_what_was_filmed(tmp_path: Path, name: str, codec: str) -> None:
    path = written(tmp_path / name, codec)
    frames = video_frames(path, 4)
    assert [frame.name for frame in frames] == [f"frame-0000{number}" for number in ("00", "10", "20", "30")]
    assert all(is_frame(frame) for frame in frames)
    for number, frame in zip((0, 10, 20, 30), frames, strict=True):
        picture = read_frame(frame).astype(int)
        assert picture.shape == (24, 32, 3)
        np.testing.assert_allclose(picture[:, 20:].mean(axis=(0, 1)), 3 * number, atol=8)
        np.testing.assert_allclose(picture[:, :12, 0].mean(), 3 * number + 100, atol=12)  # RGB


def test_no_more_frames_than_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.mp4")
    assert len(video_frames(path, 1000)) == COUNT
    monkeypatch.setattr(video_files, "FRAMES", 7)
    assert len(video_frames(path, None)) == 7


def test_a_video_is_samples_like_pictures_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples_module, "CACHED_BYTES", 0)  # every frame is read twice, and must be the same
    written(tmp_path / "a.mp4")
    cv2.imwrite(str(tmp_path / "0.png"), np.full((24, 32, 3), 7, np.uint8))
    samples = load_samples(tmp_path, [INPUT], CARD, limit=8)
    assert samples.origin == "7 frames and 1 file"
    arrays = [sample["x"] for sample in samples.arrays]
    assert arrays[0].shape == (1, 3, 24, 32)
    assert arrays[0].mean() < arrays[5].mean()
    one = load_samples(tmp_path / "a.mp4", [INPUT], CARD, limit=5)
    assert one.origin == "5 frames"
    with pytest.raises(
        SampleError, match=r"a.mp4 is a video, but one picture is needed; only build --samples"
    ):
        read_sample(tmp_path / "a.mp4", [INPUT], CARD)
    assert [path.name for path in one.arrays.paths][-1] == "frame-000032"  # type: ignore[attr-defined]


def test_without_a_card(tmp_path: Path) -> None:
    written(tmp_path / "a.mp4")
    with pytest.raises(SampleError, match="frame-000000 is a picture, which needs a card to become an input"):
        load_samples(tmp_path, [INPUT])


def refused(path: Path) -> str:
    with pytest.raises(SampleError) as error:
        video_frames(path, 3)
    return str(error.value).replace(str(path), "PATH")


def test_a_playlist_is_not_opened(tmp_path: Path) -> None:
    """FFmpeg would read the files and addresses in it."""
    path = tmp_path / "a.mp4"
    path.write_text("#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/secret.ts\n", "ascii")
    assert refused(path) == "PATH can't be read as a video: it is not one of MP4, MOV, AVI, MKV, WebM"
    path.write_bytes(b"")
    assert refused(path) == "PATH can't be read as a video: it is not one of MP4, MOV, AVI, MKV, WebM"


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs Linux's /proc")
def test_a_video_that_cannot_be_read() -> None:
    assert refused(Path("/proc/self/mem")) == "PATH can't be read as a video: Input/output error"


def test_a_damaged_video(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"\0\0\0\x18ftypisom" + bytes(500))
    assert refused(path) == "PATH can't be read as a video: OpenCV cannot open it"
    assert refused(tmp_path / "absent.mp4") == "PATH: file not found"
    os.mkfifo(tmp_path / "pipe.mp4")
    assert refused(tmp_path / "pipe.mp4") == "PATH: is not a file"
    code = (
        "import sys, pathlib, edgekit.compiler.evaluate.video_files as v; "
        "v.video_frames(pathlib.Path(sys.argv[1]), 3)"
    )
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "OpenCV cannot open it" in done.stderr
    assert "moov" not in done.stderr  # what FFmpeg says of it
    assert "WARN" not in done.stderr


def test_a_frame_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "a.mp4")
    with pytest.raises(SampleError) as error:
        read_frame(path / "frame-009999")
    assert str(error.value) == f"{path / 'frame-009999'} cannot be decoded; the video may be truncated"


def test_frames_of_too_many_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.mp4")
    monkeypatch.setattr(video_files, "PIXELS_LIMIT", 700)
    with pytest.raises(SampleError, match="has frames of 32 x 24; 0 million pixels are the limit"):
        read_frame(path / "frame-000000")


def test_opencv_is_asked_for_where_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "a.mp4")
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(MissingDependency, match=r"^opencv-python-headless is not installed, and reading"):
        video_frames(path, 3)


@pytest.mark.parametrize("name", ["a.mp4/frame-1", "a.jpg/frame-000001", "frame-000001", "a.mp4"])
def test_what_names_no_frame(name: str) -> None:
    assert not is_frame(Path(name))
