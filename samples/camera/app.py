"""Device side: find things in a picture, a video, a webcam or a stream. Imports edgekit.runtime and OpenCV.

python app.py detector.edgekit street.jpg -o found.jpg
python app.py detector.edgekit bikes.mp4 -o found.mp4
python app.py detector.edgekit 0                       # a webcam, in a window
python app.py detector.edgekit rtsp://camera/stream --engine tflite --frames 500
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edgekit.runtime import Session

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")
STAGES = ("decode", "prepare", "infer", "answer", "draw")
RATE = 25.0  # frames a second, of a source that does not say
COLOURS = ((80, 175, 76), (54, 67, 244), (243, 150, 33), (0, 152, 255), (176, 39, 156), (136, 150, 0))  # BGR


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the detector on every frame of the source."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("source", help="an image, a video, a webcam's number or an RTSP address")
    parser.add_argument(
        "-o", "--output", type=Path, help="an image or a video (.mp4) to write; default: a window, or out/"
    )
    parser.add_argument("--engine", help="ort, openvino or tflite; default: the best one available")
    parser.add_argument("--strict", action="store_true", help="fail instead of falling back")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--frames", type=int, help="stop after this many frames")
    options = parser.parse_args(arguments)
    clock = Clock()
    output = output_file(options.output, options.source)
    frames, rate = open_source(options.source, options.frames)
    with (
        Session(
            options.bundle, engine=options.engine, strict=options.strict, threads=options.threads
        ) as session,
        open_sink(output, options.source, rate) as sink,
    ):
        found = 0
        workers = 1 if is_picture(options.source) else None  # None: as many as pay, which is measured once
        read = clock.each("decode", frames)
        stream = session.stream(read, order="bgr", newest=is_live(options.source), workers=workers)
        for result in stream:
            clock.add(result.seconds)
            found += len(result.answer)
            with clock.stage("draw"):
                draw(result.frame, result.answer)
            if not sink(result.frame):
                break
        stream.close()  # also where the loop was left
        print(f"  ran        {session.active.variant} on {session.active.engine}, {session.threads} threads")
        for hop in session.fallbacks:
            print(f"  fallback   {hop.from_} -> {hop.to}: {hop.reason}")
        for note in (*stream.notes, *([f"{stream.dropped} frames were dropped"] if stream.dropped else [])):
            print(f"  note       {note}")
    print(f"  frames     {clock.count}, {found} found")
    print(clock.table())
    if output is not None:
        print(f"  written    {output}")


class Clock:
    """Time of each stage of each frame."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}

    @property
    def count(self) -> int:
        return len(self.seconds["infer"])

    def add(self, seconds: Mapping[str, float]) -> None:
        """What a stream measured."""
        for name, stage in (("prepare", "prepare"), ("infer", "infer"), ("answer", "decode_outputs")):
            self.seconds[name].append(seconds[stage])

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - started)

    def each(self, name: str, items: Iterator[Any]) -> Iterator[Any]:
        """The items, the time of getting each one counted."""
        while True:
            started = time.perf_counter()
            item = next(items, None)
            if item is None:
                return
            self.seconds[name].append(time.perf_counter() - started)
            yield item

    def table(self) -> str:
        lines = ["  stage      p50        p95"]
        for stage, seconds in self.seconds.items():
            if seconds:
                p50, p95 = 1000 * np.quantile(seconds, [0.5, 0.95])
                lines.append(f"  {stage:<9}  {p50:6.2f} ms  {p95:6.2f} ms")
        return "\n".join(lines)


def is_picture(source: str) -> bool:
    return source.lower().endswith(PICTURES)


def is_live(source: str) -> bool:
    """Whether it goes on while a frame is worked on: then only its newest frame matters."""
    return source.isdecimal() or "://" in source


def output_file(output: Path | None, source: str) -> Path | None:
    """Where the drawn frames go: the file asked for, None for a window, or a file where there is none.

    Raises:
        SystemExit: a live source, no window and no file.
    """
    if output is not None or has_windows():
        return output
    why = "no window can be opened here (opencv-python-headless has none, and others need a display)"
    if is_live(source):
        raise SystemExit(f"error: {why}; give a file: -o found.mp4, and --frames for its length")
    name = Path(source).name if is_picture(source) else f"{Path(source).stem}.mp4"
    instead = Path("out", name)
    if instead.resolve() == Path(source).resolve():
        instead = Path("out", f"found-{name}")
    print(f"  note       {why}: the frames are written to {instead}", file=sys.stderr)
    return instead


def has_windows() -> bool:
    """Whether OpenCV can show a picture: its headless package can't, nor can a Linux without a display."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return bool(cv2.currentUIFramework()) and bool(display or not sys.platform.startswith("linux"))


def open_source(source: str, most: int | None) -> tuple[Iterator[Any], float]:
    """Frames of a source, uint8 [rows, columns, 3] in BGR, and how many there are a second.

    Raises:
        SystemExit: the source cannot be opened.
    """
    if is_picture(source):
        return pictured(source), RATE
    capture = cv2.VideoCapture(int(source) if source.isdecimal() else source)
    if not capture.isOpened():
        raise SystemExit(f"error: {source} can't be opened as a video, a webcam or a stream")
    rate = capture.get(cv2.CAP_PROP_FPS)
    return captured(capture, most), rate if 1 <= rate <= 240 else RATE


def pictured(source: str) -> Iterator[Any]:
    """The one frame of a picture; read when it is asked for, so that the reading is timed."""
    picture = cv2.imread(source)
    if picture is None:
        raise SystemExit(f"error: {source} can't be read as an image")
    yield picture


def captured(capture: Any, most: int | None) -> Iterator[Any]:
    """At most so many frames, until the source ends."""
    try:
        count = 0
        while most is None or count < most:
            there, frame = capture.read()
            if not there:
                return
            count += 1
            yield frame
    finally:
        capture.release()


@contextmanager
def open_sink(output: Path | None, source: str, rate: float) -> Iterator[Any]:
    """A function that takes a drawn frame and says whether to go on."""
    if output is None:

        def show(frame: Any) -> bool:
            cv2.imshow("EdgeKit", frame)
            return bool(cv2.waitKey(0 if is_picture(source) else 1) != 27)  # Escape ends it

        yield show
        cv2.destroyAllWindows()
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    if output.suffix.lower() in PICTURES:
        yield lambda frame: cv2.imwrite(str(output), frame)
        return
    writers: list[Any] = []

    def write(frame: Any) -> bool:
        if not writers:
            size = (frame.shape[1], frame.shape[0])
            writers.append(cv2.VideoWriter(str(output), cv2.VideoWriter.fourcc(*"mp4v"), rate, size))
            if not writers[0].isOpened():
                raise SystemExit(f"error: {output} can't be written as a video")
        writers[0].write(frame)
        return True

    yield write
    for writer in writers:
        writer.release()


def draw(frame: Any, answer: Any) -> None:
    """Draw boxes, names, scores and landmarks into the frame; sizes follow the frame's."""
    unit = max(1, round(min(frame.shape[:2]) / 300))
    for found in answer:
        colour = COLOURS[found.index % len(COLOURS)]
        x1, y1, x2, y2 = (round(value) for value in found.box)
        cv2.rectangle(frame, (x1, y1), (x2, y2), colour, 1 + unit, cv2.LINE_AA)
        for x, y in found.landmarks:
            cv2.circle(frame, (round(x), round(y)), 1 + unit, colour, -1, cv2.LINE_AA)
        text, scale = f"{found.label} {found.score:.2f}", 0.4 * unit
        (wide, high), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, scale, unit)
        top = y1 - high - base - 2
        top = top if top >= 0 else y1  # no room above: inside the box
        cv2.rectangle(frame, (x1, top), (x1 + wide + 4, top + high + base + 2), colour, -1)
        place = (x1 + 2, top + high + 1)
        cv2.putText(frame, text, place, cv2.FONT_HERSHEY_SIMPLEX, scale, (255, 255, 255), unit, cv2.LINE_AA)


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output, e.g. head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the interpreter's last flush
        sys.exit(1)
    except Exception as error:
        if type(error).__module__ != "edgekit.errors":
            raise
        sys.exit(f"error: {error}")
