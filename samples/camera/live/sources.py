"""Where frames come from: a video in a loop, a webcam, an RTSP stream, a folder of pictures.

source = open_source("bikes.mp4")
for frame in source.frames(stop):     # uint8 [rows, columns, 3] in BGR, at the source's own rate
    ...
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import cv2

os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")  # none: a lost stream is told once, by us
PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
RATE = 25.0
"""Frames a second of a video that does not say."""
PICTURES_RATE = 2.0
RETRY_S = 2.0
"""Between two attempts to open a camera or a stream that is gone."""
SILENT_MS = 5000
"""A stream that sends nothing for so long is gone."""


class SourceError(Exception):
    """The source cannot be opened."""


class Source:
    """Frames of one source.

    Args:
        name: For people: a file's name, ``webcam 0``, an address without its password.
        opened: Opens it; None if it can't be opened.
        rate: Frames a second; None: it sets the pace itself.
        live: It goes on while nobody reads.
        tell: Called with a sentence when it is lost and when it is back.
        capture: It, where it is open already.

    Attributes:
        lost: It gives no frames at present.
    """

    def __init__(
        self,
        name: str,
        opened: Callable[[], Any],
        rate: float | None,
        live: bool,
        tell: Callable[[str], None] = lambda text: None,
        capture: Any = None,
    ) -> None:
        self.name, self.rate, self.live, self.tell = name, rate, live, tell
        self.lost = False
        self._open = opened
        self._capture = capture
        self._fresh = True  # it has given no frame since it was opened

    def frames(self, stop: Event) -> Iterator[Any]:
        """Frames until ``stop``: a file begins again at its end, a lost camera is opened again."""
        due = time.monotonic()
        while not stop.is_set():
            frame = self._read()
            if frame is None:
                if self.lost:
                    stop.wait(RETRY_S)
                continue
            if self.rate is not None:  # a file is read as fast as it was filmed
                due = max(due + 1 / self.rate, time.monotonic() - 1.0)
                if stop.wait(max(0.0, due - time.monotonic())):
                    return
            yield frame

    def _read(self) -> Any:
        """The next frame; None where there is none just now."""
        if self._capture is None:
            self._capture = self._open()
            self._fresh = True
            if self._capture is None:
                self._set_lost(True)
                return None
        there, frame = self._capture.read()
        if there:
            self._fresh = False
            self._set_lost(False)
            return frame
        self.close()  # the end of a file, one that holds nothing any more, or a camera that went away
        self._set_lost(self.live or self._fresh)
        return None

    def _set_lost(self, lost: bool) -> None:
        if lost != self.lost:
            self.lost = lost
            self.tell(f"{self.name} gives no frames; trying again every {RETRY_S:g} s" if lost else
                      f"{self.name} gives frames again")  # fmt: skip

    def close(self) -> None:
        """Release the camera or the file."""
        capture, self._capture = self._capture, None
        if capture is not None:
            capture.release()


class _Folder:
    """The pictures of a folder, as OpenCV reads a video."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = iter(paths)

    def read(self) -> tuple[bool, Any]:
        for path in self._paths:
            with _silence():
                picture = cv2.imread(str(path))
            if picture is not None:
                return True, picture
        return False, None

    def release(self) -> None:
        self._paths = iter(())


def open_source(source: str, tell: Callable[[str], None] = lambda text: None) -> Source:
    """A source by what the user wrote: a file, a folder, a webcam's number or an address.

    Raises:
        SourceError: a file or a folder that can't be read, or a webcam that is not there. A network camera
            may come later.
    """
    if source.isdecimal():
        webcam = _captured(int(source))
        if webcam is None:
            raise SourceError(f"there is no webcam {source}, or another program has it; the first one is 0")
        return Source(f"webcam {source}", lambda: _captured(int(source)), None, True, tell, webcam)
    if "://" in source:
        return Source(_without_password(source), lambda: _captured(source), None, True, tell)
    path = Path(source)
    if path.is_dir():
        pictures = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURES)
        if not any(cv2.haveImageReader(str(picture)) for picture in pictures):
            raise SourceError(f"{source} has no pictures; known are {', '.join(PICTURES)}")
        return Source(path.name, lambda: _Folder(pictures), PICTURES_RATE, False, tell)
    if path.suffix.lower() in PICTURES and cv2.haveImageReader(source):
        return Source(path.name, lambda: _Folder([path]), PICTURES_RATE, False, tell)
    first = _captured(source)
    if first is None or not first.read()[0]:
        raise SourceError(f"{source} can't be read as a video, a picture or a folder of pictures")
    rate = first.get(cv2.CAP_PROP_FPS)
    first.release()
    return Source(path.name, lambda: _captured(source), rate if 1 <= rate <= 240 else RATE, False, tell)


def _captured(source: str | int) -> Any:
    with _silence():
        if isinstance(source, str) and "://" in source:
            limits = [cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, SILENT_MS, cv2.CAP_PROP_READ_TIMEOUT_MSEC, SILENT_MS]
            capture = cv2.VideoCapture(source, cv2.CAP_ANY, limits)
        else:
            capture = cv2.VideoCapture(source)
    return capture if capture.isOpened() else None


@contextmanager
def _silence() -> Iterator[None]:
    """OpenCV logs nothing: no line for each way in which it did not open a source."""
    logging = cv2.utils.logging
    level = logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        logging.setLogLevel(level)


def _without_password(address: str) -> str:
    """An address as it may be shown.

    >>> _without_password("rtsp://me:secret@camera/stream")
    'rtsp://camera/stream'
    """
    scheme, _, rest = address.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
