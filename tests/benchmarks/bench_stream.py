"""Session.stream on a camera's pipeline: JPEG decode, letterbox, detector, NMS. Goal: 1.85x the loop.

    python tests/benchmarks/bench_stream.py DETECTOR.edgekit PHOTOS [--frames 32] [--rounds 5]

The loop runs one frame after the other on one thread, the stream has as many workers as there are cores;
``stages`` is the other way, three threads and the engine on all cores; ``loops apart`` is what the machine
has to give: as many loops as cores, each on its share of the frames, which nothing orders or bounds. They
take turns, in shuffled order. Shown are medians of the rounds, of the ratios within a round, and of the
processor's time a frame: where that is equal, what is missing of the ratio was taken by other processes.
Loading is not counted.
"""

from __future__ import annotations

import argparse
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from edgekit.bundle import Bundle
from edgekit.runtime import Session
from edgekit.system.cpu import default_threads

GOAL = 1.85
ENGINES = ("ort", "openvino", "tflite")

Timed = tuple[list[Any], float, float]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("bundle", type=Path)
    arguments.add_argument("photos", type=Path, help="a folder of .jpg files")
    arguments.add_argument("--frames", type=int, default=32)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--engine", choices=ENGINES, action="append", help="only this one; repeatable")
    given = arguments.parse_args()
    cv2.setNumThreads(1)
    photos = sorted(given.photos.glob("*.jpg"))
    jpegs = [photos[n % len(photos)].read_bytes() for n in range(given.frames)]
    with Bundle.open(given.bundle) as bundle:
        engines = [engine for engine in ENGINES if any(v.target == engine for v in bundle.variants)]
    for engine in given.engine or engines:
        measure(given.bundle, engine, jpegs, given.rounds)


class Clock:
    """The time, and what this process computed, since it was made."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def read(self) -> tuple[float, float]:
        return time.perf_counter() - self.began[0], time.process_time() - self.began[1]


def read(jpeg: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)


def measure(bundle: Path, engine: str, jpegs: list[bytes], rounds: int) -> None:
    cores = default_threads()
    with ExitStack() as stack:
        threads = [cores, *[1] * cores]
        session, *singles = [
            stack.enter_context(Session(bundle, engine=engine, strict=True, threads=count))
            for count in threads
        ]
        for each in (session, *singles):
            each.predict(read(jpegs[0]), "bgr")

        def loop() -> Timed:
            clock = Clock()
            answers = [singles[0].predict(read(jpeg), "bgr") for jpeg in jpegs]
            return answers, *clock.read()

        def streamed(workers: int) -> Timed:
            ready = threading.Event()

            def source() -> Iterator[bytes]:
                yield from jpegs[:cores]  # its first runs are slower than all others
                ready.wait()
                yield from jpegs

            with session.stream(source(), decode=read, order="bgr", workers=workers) as stream:
                for _ in range(cores):
                    next(stream)
                clock = Clock()
                ready.set()
                answers = [next(stream).answer for _ in jpegs]
                return answers, *clock.read()

        def apart() -> Timed:
            def share(place: int) -> list[Any]:
                return [singles[place].predict(read(jpeg), "bgr") for jpeg in jpegs[place::cores]]

            with ThreadPoolExecutor(cores) as pool:
                clock = Clock()
                answers = list(pool.map(share, range(cores)))
                return answers, *clock.read()

        calls: dict[str, Callable[[], Timed]] = {
            "loop, 1 thread": loop,
            "stream, workers": lambda: streamed(cores),
            "stream, stages": lambda: streamed(1),
            "loops apart": apart,
        }
        same(calls["loop, 1 thread"]()[0], calls["stream, workers"]()[0])
        wall: dict[str, list[float]] = {name: [] for name in calls}
        busy: dict[str, list[float]] = {name: [] for name in calls}
        order, shuffled = list(calls), random.Random(0)
        for _ in range(rounds):
            shuffled.shuffle(order)
            for name in order:
                _, took_s, computed_s = calls[name]()
                wall[name].append(took_s / len(jpegs))
                busy[name].append(computed_s / len(jpegs))
        stream = session.stream(jpegs[:2], decode=read, order="bgr")
        list(stream)
        print(f"\n{bundle.stem} on {session.active.engine}, {cores} cores        ms a frame   CPU ms   ratio")
        for name in calls:
            ratios = [a / b for a, b in zip(wall["loop, 1 thread"], wall[name], strict=True)]
            times = [1000 * statistics.median(samples[name]) for samples in (wall, busy)]
            goal = f"  goal {GOAL}" if name == "stream, workers" else ""
            print(f"    {name:40} {times[0]:12.1f} {times[1]:8.1f} {statistics.median(ratios):7.2f}{goal}")
        assert stream.plan is not None
        print(f"    chosen here: {stream.plan.workers} workers of {stream.plan.threads} threads")


def same(one: list[Any], other: list[Any]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.boxes, b.boxes)
        np.testing.assert_array_equal(a.scores, b.scores)


if __name__ == "__main__":
    main()
