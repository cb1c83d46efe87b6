"""Predictions for the frames of a camera or a video, shown in a window or written as a video.

The window is Tk's, which comes with Python: OpenCV without windows (``opencv-python-headless``) will do.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.run_bundle import ran_text
from edgekit.compiler.evaluate.video_files import VIDEOS, opened_video
from edgekit.errors import SampleError, UsageError, need_package
from edgekit.processing.card import parse_card
from edgekit.processing.picture_files import PIXELS_LIMIT
from edgekit.runtime import Session
from edgekit.system.progress import step
from edgekit.tensor_spec import Array

TITLE = "EdgeKit: q ends"
WRITTEN = ".mp4"
FPS = 25.0
"""Frame rate of the written video if the source has none."""


@dataclass(frozen=True)
class ShownFrames:
    """Frames that ran.

    Attributes:
        p50_ms: Median time of a prediction, with its pre- and post-processing, in ms.
        written: Video with the predictions, or None if they were shown in a window.
    """

    frames: int
    p50_ms: float
    written: Path | None
    active: dict[str, Any]
    fallbacks: tuple[dict[str, Any], ...]

    def as_json(self) -> dict[str, Any]:
        written = None if self.written is None else str(self.written)
        return {**vars(self), "written": written, "fallbacks": list(self.fallbacks)}

    def text(self) -> str:
        lines = [f"  frames    {self.frames}, {self.p50_ms:.1f} ms each (median of predict)"]
        lines += [f"  video     {self.written}"] if self.written else []
        return "\n".join([ran_text(self.active, self.fallbacks), *lines])


def is_live(path: Path) -> bool:
    """Return whether an input is the number of a camera or a video."""
    return _is_camera(path) or path.suffix.lower() in VIDEOS


def _is_camera(path: Path) -> bool:
    return str(path).isdecimal() and not path.exists()


def run_frames(
    bundle: Bundle,
    source: Path,
    output: Path | None,
    notify: Callable[[str], None],
    **options: Any,
) -> ShownFrames:
    """Predict each frame, and show it in a window or write it to a video. Ctrl-C ends it as its end does.

    Args:
        source: Number of a camera, or a video file.
        output: Video to write. None means a window or, without a display, ``drawn.mp4`` in the current
            folder.
        notify: Called with what to know before the first frame.
        options: Arguments of a Session.

    Raises:
        UsageError: the bundle has no card with a task for images, or the video cannot be written.
        SampleError: the camera or the video cannot be read.
        MissingDependency: OpenCV is not installed.
    """
    if bundle.card is None or parse_card(bundle.card).task is None:
        raise UsageError(
            f"{bundle.name} has no card with a task, so frames have no prediction to show; build it with "
            "--card"
        )
    parse_card(bundle.card).image_input()
    with need_package("opencv-python-headless", "reading a camera or a video", extra="samples"):
        import cv2
    capture = _camera(cv2, source) if _is_camera(source) else opened_video(source)
    times: list[float] = []
    screen: _Window | _Video | None = None
    try:
        fps = capture.get(cv2.CAP_PROP_FPS)
        if output is None:
            screen = _window()
            if screen is None:
                output = Path(f"drawn{WRITTEN}")
                notify(f"no window can be opened here; the predictions are written to {output}, Ctrl-C ends")
        if screen is None:
            assert output is not None
            screen = _Video(cv2, output, fps if 1 <= fps <= 240 else FPS)
        with Session(bundle, **options) as session, step("running") as update:
            for frame in _frames(cv2, capture, source):
                started = time.perf_counter()
                prediction = session.predict(frame)
                times.append(time.perf_counter() - started)
                update(f"{1000 * times[-1]:.1f} ms", len(times), 0, "frames")
                if not screen.show(prediction.draw(frame)):
                    break
            active, fallbacks = session.active._asdict(), tuple(f._asdict() for f in session.fallbacks)
        if not times:
            raise SampleError(f"{source} has no frame that can be decoded")
        screen.finish()
    finally:
        capture.release()
        if screen is not None:
            screen.close()
    return ShownFrames(len(times), round(1000 * statistics.median(times), 3), output, active, fallbacks)


def _frames(cv2: Any, capture: Any, source: Path) -> Iterator[Array]:
    """Yield frames, uint8 [height, width, 3] in RGB, until there are no more, or until Ctrl-C."""
    try:
        while True:
            is_read, frame = capture.read()
            if not is_read:
                return
            if frame.shape[0] * frame.shape[1] > PIXELS_LIMIT:
                raise SampleError(f"{source} has frames of more than {PIXELS_LIMIT // 10**6} million pixels")
            yield np.ascontiguousarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB))
    except KeyboardInterrupt:
        return


def _camera(cv2: Any, source: Path) -> Any:
    level = cv2.utils.logging.getLogLevel()
    cv2.utils.logging.setLogLevel(0)  # the error says it once
    capture = cv2.VideoCapture(int(str(source)))
    cv2.utils.logging.setLogLevel(level)
    if not capture.isOpened():
        raise SampleError(f"camera {source} can't be opened; is it connected, and free of other programs?")
    return capture


class _Window:
    def __init__(self, tkinter: Any) -> None:
        self._root = tkinter.Tk()
        self._root.title(TITLE)
        self._label = tkinter.Label(self._root)
        self._label.pack()
        self._is_open = True
        self._root.protocol("WM_DELETE_WINDOW", self._end)
        for key in ("q", "<Escape>"):
            self._root.bind(key, lambda event: self._end())

    def _end(self) -> None:
        self._is_open = False

    def show(self, image: Any) -> bool:
        """Return whether the window is still open."""
        from PIL import ImageTk

        photo = ImageTk.PhotoImage(image, master=self._root)
        self._label.configure(image=photo)
        self._label.image = photo  # Tk keeps no reference
        self._root.update()
        return self._is_open

    def finish(self) -> None:
        pass

    def close(self) -> None:
        self._root.destroy()


def _window() -> _Window | None:
    """Return a window, or None without a display or without Tk."""
    try:
        import tkinter

        return _Window(tkinter)
    except (ImportError, RuntimeError):
        return None
    except Exception as problem:  # tkinter.TclError, whose name needs the import that may fail
        if type(problem).__name__ != "TclError":
            raise
        return None


class _Video:
    """An MP4 file, which gets its name when it is whole."""

    def __init__(self, cv2: Any, path: Path, fps: float) -> None:
        self._cv2, self._path, self._fps = cv2, path, fps
        self._part = path.with_name(f".{path.stem}.part{WRITTEN}")
        self._writer: Any = None

    def show(self, image: Any) -> bool:
        pixels = self._cv2.cvtColor(np.asarray(image), self._cv2.COLOR_RGB2BGR)
        if self._writer is None:
            code = self._cv2.VideoWriter.fourcc(*"mp4v")
            size = (pixels.shape[1], pixels.shape[0])
            self._writer = self._cv2.VideoWriter(str(self._part), code, self._fps, size)
            if not self._writer.isOpened():
                raise UsageError(f"can't write a video to {self._path}; choose another path")
        self._writer.write(pixels)
        return True

    def finish(self) -> None:
        self._writer.release()
        os.replace(self._part, self._path)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.release()
        self._part.unlink(missing_ok=True)
