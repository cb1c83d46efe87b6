"""Samples from video files: evenly spread frames, decoded by OpenCV.

The path of a frame is that of a file in the video: ``street.mp4/frame-000120``. OpenCV decodes with FFmpeg,
which also reads playlists of other files and addresses. So only files that begin like FORMATS are opened.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.errors import SampleError, need_package
from edgekit.processing.picture_files import PIXELS_LIMIT
from edgekit.tensor_spec import Array

VIDEOS = (".mp4", ".m4v", ".mov", ".avi", ".mkv", ".webm")
FORMATS = ((4, b"ftyp"), (0, b"RIFF"), (0, b"\x1a\x45\xdf\xa3"))
"""(Offset, bytes there): ISO media (MP4, MOV), AVI, Matroska (MKV, WebM)."""
FRAMES = 128
"""Frames of one video, if no number is asked for."""
FRAMES_LIMIT = 100_000_000
"""Most frames that a file may claim: a month at 30 a second."""
FRAME = re.compile(r"frame-(\d{6,9})", re.ASCII)


def is_frame(path: Path) -> bool:
    """Return whether a path names a frame of a video."""
    return path.parent.suffix.lower() in VIDEOS and FRAME.fullmatch(path.name) is not None


def video_frames(path: Path, limit: int | None) -> list[Path]:
    """Return at most ``limit`` frames of a video (None: FRAMES), evenly spread, the first included.

    Raises:
        MissingDependency: OpenCV is not installed.
        SampleError: the file is not a video, or its number of frames is unknown.
    """
    capture = opened_video(path)
    try:
        import cv2

        count = capture.get(cv2.CAP_PROP_FRAME_COUNT)
    finally:
        capture.release()
    if not 1 <= count <= FRAMES_LIMIT:
        raise SampleError(f"{path} does not store its number of frames; save its frames as pictures instead")
    total, frame_count = int(count), FRAMES if limit is None else limit
    frame_count = min(total, frame_count)
    return [path / f"frame-{index * total // frame_count:06d}" for index in range(frame_count)]


def read_frame(path: Path) -> Array:
    """Read one frame as [height, width, 3] uint8 RGB, upright.

    Args:
        path: A path from :func:`video_frames`.
    """
    match = FRAME.fullmatch(path.name)
    assert match is not None
    capture = opened_video(path.parent)
    try:
        import cv2

        width, height = capture.get(cv2.CAP_PROP_FRAME_WIDTH), capture.get(cv2.CAP_PROP_FRAME_HEIGHT)
        if not 0 < width * height <= PIXELS_LIMIT:
            allowed = f"{PIXELS_LIMIT // 10**6} million pixels are the limit"
            raise SampleError(f"{path.parent} has frames of {width:g} x {height:g}; {allowed}")
        # From a fresh start each time: two reads of one frame are the same however the file can be searched.
        capture.set(cv2.CAP_PROP_POS_FRAMES, int(match[1]))
        is_read, frame = capture.read()
        if not is_read:
            raise SampleError(f"{path} cannot be decoded; the video may be truncated")
        return np.ascontiguousarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    finally:
        capture.release()


def opened_video(path: Path) -> Any:
    """Return OpenCV's capture of a video file. Raises MissingDependency or SampleError."""
    # FFmpeg writes to stderr what it does not like of a file; the error says it once.
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    with need_package("opencv-python-headless", "reading a video", extra="samples"):
        import cv2
    if not path.is_file():  # a pipe would block
        raise SampleError(f"{path}: {'is not a file' if path.exists() else 'file not found'}")
    try:
        with path.open("rb") as file:
            head = file.read(16)
    except OSError as problem:
        raise SampleError(f"{path} can't be read as a video: {problem.strerror}") from None
    if not any(head[offset : offset + len(magic)] == magic for offset, magic in FORMATS):
        raise SampleError(f"{path} can't be read as a video: it is not one of MP4, MOV, AVI, MKV, WebM")
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(0)
    capture = cv2.VideoCapture(str(path.resolve()), cv2.CAP_FFMPEG)
    cv2.utils.logging.setLogLevel(level)
    if not capture.isOpened():
        raise SampleError(f"{path} can't be read as a video: OpenCV cannot open it")
    return capture
