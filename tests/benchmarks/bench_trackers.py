"""Trackers on a video's detections: ids kept on the persons of tests/samples/bikes_tracks.toml, and CPU time.

PYTHONPATH=. python tests/benchmarks/bench_trackers.py detect yolox_nano.onnx bikes.mp4 -o found.json
PYTHONPATH=. python tests/benchmarks/bench_trackers.py track found.json    # in an environment for each

``track`` needs numpy, and beside the sample's own tracker norfair-enough, trackers or motpy. Each has its
defaults, but for the frames that a lost track lives on (25, a second) and those after which a new one has an
id (1).
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parents[1]
SAMPLE = HERE.parent / "samples" / "camera"
Found = list[tuple[str, float, Any]]
"""Of a frame: label, score, and x1, y1, x2, y2 in pixels."""
Update = Callable[[Found], list[tuple[Any, Any]]]
"""A frame's detections -> id and box of each tracked one."""
RATE, COAST, OVERLAP, ROUNDS = 25.0, 25, 0.3, 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("detect", "track"))
    parser.add_argument("inputs", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("found.json"))
    options = parser.parse_args()
    if options.part == "detect":
        model, video = options.inputs
        detect(model, video, options.output)
    else:
        track(options.inputs[0])


def detect(model: Path, video: Path, output: Path) -> None:
    import cv2

    import edgekit
    from edgekit.runtime import Session

    card, frames, capture = SAMPLE.parent / "cards" / "yolox_nano.toml", [], cv2.VideoCapture(str(video))
    with edgekit.build(model, targets=("ort",), card=card) as made, Session(made) as session:
        while (read := capture.read())[0]:
            answer = session.predict(read[1], order="bgr")
            frames.append([[each.label, float(each.score), list(map(float, each.box))] for each in answer])
    output.write_text(json.dumps(frames), "utf-8")


def track(found: Path) -> None:
    frames: list[Found] = [
        [(label, score, np.array(box)) for label, score, box in each]
        for each in json.loads(found.read_text("utf-8"))
    ]
    crowd = [each + [(n, s, b + 700.0 * k) for k in range(1, 10) for n, s, b in each] for each in frames]
    print(
        "tracker      person: share of frames with its most frequent id, ids    ms a frame, with 10x   loaded"
    )
    for name, made in TRACKERS.items():
        before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        began = time.process_time()
        try:
            made()
        except ModuleNotFoundError:
            continue
        loaded = f"{time.process_time() - began:.2f} s"
        loaded += f", {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before_mb:.0f} MB"
        update = made()
        kept = survival([update([each for each in frame if each[0] == "person"]) for frame in frames])
        ms = [1000 * least_s(made, some) for some in (frames, crowd)]
        print(f"{name:12} {kept}   {ms[0]:.3f} {ms[1]:.3f}   {loaded}")


def least_s(made: Callable[[], Update], frames: list[Found]) -> float:
    """CPU time a frame, the least of some rounds."""
    times = []
    for _ in range(ROUNDS if len(frames[0]) < 20 else ROUNDS // 5):
        update, began = made(), time.process_time()
        for frame in frames:
            update(frame)
        times.append((time.process_time() - began) / len(frames))
    return min(times)


def survival(tracked: list[list[tuple[Any, Any]]]) -> str:
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    texts = []
    for person in tomllib.loads((HERE / "samples" / "bikes_tracks.toml").read_text("utf-8"))["person"]:
        numbers = [n for first, last in person["frames"] for n in range(first, last + 1)]
        known = {int(frame): np.array(box, float) for frame, box in person["boxes"].items()}
        ids: Counter[Any] = Counter()
        for number in numbers:
            a, b = next((a, b) for a, b in pairwise(sorted(known)) if a <= number <= b)
            box = known[a] + (known[b] - known[a]) * (number - a) / (b - a)
            ids.update({track for track, other in tracked[number] if iou(box, other) > OVERLAP})
        share = max(ids.values(), default=0) / len(numbers)
        texts.append(f"{person['name'].partition(',')[0]}: {share:.3f}, {len(ids)}")
    return "; ".join(texts)


def iou(one: Any, other: Any) -> float:
    sides = np.maximum(np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2]), 0.0)
    areas = [np.prod(np.maximum(box[2:] - box[:2], 0.0)) for box in (one, other)]
    return float(np.prod(sides) / max(sum(areas) - np.prod(sides), 1e-9))


def sample(coast: bool) -> Update:
    """The sample's own; with the places where lost tracks are expected, or without."""
    from types import SimpleNamespace

    sys.path.insert(0, str(SAMPLE))
    from live.tracks import Tracks

    tracks = Tracks()

    def update(found: Found) -> list[tuple[Any, Any]]:
        answer = [SimpleNamespace(label=label, score=score, box=box) for label, score, box in found]
        return [
            (box.id, np.array(box.box))
            for box in tracks.update(answer)
            if box.id is not None and (coast or box.seen)
        ]

    return update


def norfair() -> Update:
    module: Any = importlib.import_module("norfair")
    tracker = module.Tracker("iou", 0.85, hit_counter_max=COAST, initialization_delay=1)

    def update(found: Found) -> list[tuple[Any, Any]]:
        given = [module.Detection(box.reshape(2, 2), label=label) for label, _, box in found]
        return [(each.id, each.estimate.ravel()) for each in tracker.update(given)]

    return update


def of_trackers(kind: str) -> Callable[[], Update]:
    def made() -> Update:
        module: Any = importlib.import_module("trackers")
        supervision: Any = importlib.import_module("supervision")
        options: dict[str, Any] = {"frame_rate": RATE, "lost_track_buffer": 30 * COAST / RATE}
        tracker = getattr(module, kind)(minimum_consecutive_frames=1, **options)

        def update(found: Found) -> list[tuple[Any, Any]]:
            given = supervision.Detections.empty()
            if found:
                boxes, scores = (
                    np.array([box for *_, box in found]),
                    np.array([score for _, score, _ in found]),
                )
                given = supervision.Detections(boxes, confidence=scores, class_id=np.zeros(len(found), int))
            done = tracker.update(given)
            ids = [] if done.tracker_id is None else done.tracker_id
            return [(int(n), box) for n, box in zip(ids, done.xyxy, strict=True) if n >= 0]

        return update

    return made


def motpy() -> Update:
    module: Any = importlib.import_module("motpy")
    tracker = module.MultiObjectTracker(
        dt=1 / RATE, tracker_kwargs={"max_staleness": COAST}, active_tracks_kwargs={"min_steps_alive": 1}
    )

    def update(found: Found) -> list[tuple[Any, Any]]:
        given = [module.Detection(box=box, score=score, class_id=0) for _, score, box in found]
        return [(each.id, each.box) for each in tracker.step(detections=given)]

    return update


TRACKERS: dict[str, Callable[[], Update]] = {
    "sample": partial(sample, True),
    "sample seen": partial(sample, False),
    "norfair": norfair,
    "SORT": of_trackers("SORTTracker"),
    "ByteTrack": of_trackers("ByteTrackTracker"),
    "OC-SORT": of_trackers("OCSORTTracker"),
    "motpy": motpy,
}

if __name__ == "__main__":
    main()
