"""Answers used again: what looking costs, how often a look answers, and how often wrongly.

    python tests/benchmarks/bench_reuse.py DETECTOR.edgekit PHOTOS VIDEO [--engine ort]

The video as it is; and, for a camera that stands still, each photograph shown 16 times as a sensor and an
encoder give it: noise of 2 levels, JPEG of quality 80, anew in each frame. Goal: looking, and the exact
cache's miss and hit, take at most 5 % of a run each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edgekit.runtime import Session
from edgekit.runtime.caching.calibrate_similarity import measure
from edgekit.runtime.caching.exact import ExactCache
from edgekit.runtime.caching.frame_signature import signature_of
from tests.benchmarks.interleaved import interleaved

SHOWN, NOISE, QUALITY = 16, 2.0, 80


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("photos", type=Path, help="a folder of .jpg files")
    arguments.add_argument("video", type=Path)
    arguments.add_argument("--engine")
    arguments.add_argument("--photographs", type=int, default=64)
    given = arguments.parse_args()
    photos = sorted(given.photos.glob("*.jpg"))[: given.photographs]
    with Session(given.bundle, engine=given.engine, threads=1) as session:
        costs(session, cv2.imread(str(photos[0])))
        for references in (1, 16):
            for name, frames in (("video", video(given.video)), ("still", still(photos))):
                permit = measure(session, frames, order="bgr", references=references)
                print(f"{name}, {references} kept: {permit}")


def costs(session: Session, frame: Any) -> None:
    """Milliseconds of CPU, and the part of a run."""
    feeds, _ = session.prepare(frame, "bgr")
    others = [{name: array + np.float32(1 + n) for name, array in feeds.items()} for n in range(64)]
    hit = ExactCache(session)
    hit.run(feeds)
    answers = session.run(feeds)
    miss = ExactCache(_Answered(session, answers), 1 << 30)  # type: ignore[arg-type]
    turn = iter(range(1 << 30))
    small = cv2.resize(frame, (640, 480))
    large = cv2.resize(frame, (1920, 1080))
    times = interleaved(
        {
            "run": lambda: session.run(feeds),
            "exact hit": lambda: hit.run(feeds),
            "exact miss": lambda: miss.run(others[next(turn) % 64]),
            "look, 640 x 480": lambda: signature_of(small),
            "look, 1920 x 1080": lambda: signature_of(large),
        },
        seconds=6.0,
        clock=time.thread_time,
    )
    for name, timing in times.items():
        print(f"{name:18} {1000 * timing.min_s:8.3f} ms  {timing.min_s / times['run'].min_s:7.2%}")


class _Answered:
    """A session that needs no time."""

    active = "anything"

    def __init__(self, session: Session, answers: Any) -> None:
        self._answers = answers

    def run(self, feeds: Any) -> Any:
        return self._answers


def video(path: Path) -> Iterator[Any]:
    capture = cv2.VideoCapture(str(path))
    while (read := capture.read())[0]:
        yield read[1]


def still(photos: list[Path]) -> Iterator[Any]:
    random = np.random.default_rng(0)
    for path in photos:
        photo: Any = cv2.imread(str(path))
        for _ in range(SHOWN):
            noisy = np.clip(np.rint(photo + random.normal(0, NOISE, photo.shape)), 0, 255).astype(np.uint8)
            yield cv2.imdecode(cv2.imencode(".jpg", noisy, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1], 1)


if __name__ == "__main__":
    main()
