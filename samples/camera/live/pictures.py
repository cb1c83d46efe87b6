"""JPEGs for the viewers, off the path of the answers: one thread, the newest frame wins, one encode for all.

Nothing is encoded while nobody watches. Where blur is on, it is done in the pixels first: what is encoded
holds no face, or no person, that was found.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import cv2

from live.tracks import Box

QUALITY = 80
BLURRED = ("face", "person")
"""Labels to blur: faces where the detector finds them, else whole persons."""
MARGIN, TILES = 0.15, 8
"""A blurred box is larger by this share on each side; it keeps so many tiles along its longer side."""

MARK = (40, 40, 210)
"""Colour of the box in an alert's picture, BGR."""


@dataclass(frozen=True)
class Shown:
    """A frame with its answer.

    Attributes:
        number: Of the frame, growing.
        time: When it was taken, Unix time.
        frame: uint8 [rows, columns, 3] in BGR; not written to.
        boxes: Of the answer, those of lost tracks too (``seen`` is False).
        motion: Whether it was worth a run, or shows the boxes of the frame before.
    """

    number: int
    time: float
    frame: Any
    boxes: tuple[Box, ...]
    motion: bool


def blurred(frame: Any, boxes: Iterable[Box], labels: Iterable[str]) -> Any:
    """A copy of a frame in which the boxes of these labels are a few tiles."""
    kinds = set(labels)
    copy = frame.copy()
    rows, columns = frame.shape[:2]
    for box in boxes:
        if box.label not in kinds:
            continue
        x1, y1, x2, y2 = box.box
        wide, high = MARGIN * (x2 - x1), MARGIN * (y2 - y1)
        left, top = max(0, int(x1 - wide)), max(0, int(y1 - high))
        right, bottom = min(columns, int(x2 + wide) + 1), min(rows, int(y2 + high) + 1)
        if right <= left or bottom <= top:
            continue
        part = copy[top:bottom, left:right]
        scale = TILES / max(part.shape[:2])
        small = (max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale)))
        tiles = cv2.resize(part, small, interpolation=cv2.INTER_AREA)
        size = (part.shape[1], part.shape[0])
        copy[top:bottom, left:right] = cv2.resize(tiles, size, interpolation=cv2.INTER_NEAREST)
    return copy


def marked(frame: Any, box: Box) -> Any:
    """A copy of a frame with a box in it, and its label above."""
    copy = frame.copy()
    unit = max(1, round(min(frame.shape[:2]) / 300))
    x1, y1, x2, y2 = (round(value) for value in box.box)
    cv2.rectangle(copy, (x1, y1), (x2, y2), MARK, 1 + unit, cv2.LINE_AA)
    text, scale = f"{box.label} {box.score:.2f}", 0.45 * unit
    (wide, high), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, unit)
    left, top = max(0, x1), y1 - high - base - 2
    top = top if top >= 0 else max(0, y1)  # no room above: inside the box
    cv2.rectangle(copy, (left, top), (left + wide + 4, top + high + base + 2), MARK, -1)
    place = (left + 2, top + high + 1)
    cv2.putText(copy, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 255, 255), unit, cv2.LINE_AA)
    return copy


def encoded(frame: Any) -> bytes:
    """As JPEG."""
    there, content = cv2.imencode(".jpg", frame, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    if not there:
        raise ValueError("OpenCV could not encode a JPEG")
    return bytes(content)


def message(shown: Shown, frame: Any) -> bytes:
    """What a viewer gets: the length of the JSON (uint32, little endian), the JSON, the JPEG."""
    rows, columns = frame.shape[:2]
    boxes = [box.as_json() for box in shown.boxes if box.seen]
    head = {
        "frame": shown.number, "time": shown.time, "width": columns, "height": rows,
        "boxes": boxes, "motion": shown.motion,
    }  # fmt: skip
    text = json.dumps(head, separators=(",", ":")).encode("utf-8")
    return struct.pack("<I", len(text)) + text + encoded(frame)


class Encoder:
    """The thread that encodes the newest frame whenever some viewer waits for one.

    Args:
        newest: The newest frame, or None.
        hide: Labels to blur at present.
        give: Called in the thread with each frame's number and message.

    Attributes:
        count: Frames encoded so far.
    """

    def __init__(
        self,
        newest: Callable[[], Shown | None],
        hide: Callable[[], tuple[str, ...]],
        give: Callable[[int, bytes], None],
    ) -> None:
        self.count = 0
        self._newest, self._hide, self._give = newest, hide, give
        self._wanted, self._ending = threading.Event(), False
        self._last = -1
        self._thread = threading.Thread(target=self._work, name="camera-encoder", daemon=True)
        self._thread.start()

    def want(self) -> None:
        """Some viewer waits, or there is a new frame."""
        self._wanted.set()

    def close(self) -> None:
        """End the thread."""
        self._ending = True
        self._wanted.set()
        self._thread.join(1.0)

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._ending:
                return
            shown = self._newest()
            if shown is None or shown.number == self._last:
                continue
            self._last = shown.number
            hide = self._hide()
            frame = blurred(shown.frame, shown.boxes, hide) if hide else shown.frame
            self.count += 1
            self._give(shown.number, message(shown, frame))
