"""How many boxes of a detector survive int8: a YOLOv8 of which no card says what it is, or any with its card.

    python tests/benchmarks/bench_boxes_kept.py 320n.onnx PHOTOS [MORE ...] [--card CARD] [-t ort -t openvino]
        [--seconds 60]

64 of PHOTOS are calibration samples, unlabelled; the boxes are counted on the others, and on the photographs
of the other folders. A box of the float model (score above .25, with a card above .3) is kept where the
variant has one of the same class with an IoU of .5 or more and a score above .2. 320n.onnx is in the package
nudenet 3.4.2 of PyPI.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Variant
from edgekit.compiler.evaluate.fidelity import whole_input
from edgekit.compiler.evaluate.picture_files import read_picture
from edgekit.processing import Card, load_card, processing
from edgekit.processing.nms import suppress
from edgekit.target import registry
from edgekit.tensor_spec import Array

CALIBRATION = 64
SCORE, CARD_SCORE, VARIANT_SCORE, IOU = 0.25, 0.3, 0.2, 0.5


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("model", type=Path)
    arguments.add_argument("photographs", type=Path, nargs="+")
    arguments.add_argument("--card", type=Path)
    arguments.add_argument("-t", "--target", action="append")
    arguments.add_argument("--precision", default="int8")
    arguments.add_argument("--seconds", type=float)
    arguments.add_argument("--side", type=int, default=320)
    asked = arguments.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    card = load_card(asked.card) if asked.card else None
    folders = [sorted(folder.glob("*.jpg")) for folder in asked.photographs]
    if card is None:
        feeds = [[{"images": prepared(path, asked.side)} for path in files] for files in folders]
    else:
        feeds = [[processing.prepare(card, read_picture(path))[0] for path in files] for files in folders]
    calibration = feeds[0][::2][:CALIBRATION]
    tests = [feeds[0][1::2], *feeds[1:]]
    targets = asked.target or ["ort", "openvino", "tflite"]
    bundle = edgekit.build(
        asked.model,
        targets=targets,
        precision=asked.precision,
        samples=calibration,
        card=card,
        shapes=None if card else {"images": (1, 3, asked.side, asked.side)},
        time_budget=asked.seconds,
    )
    print(bundle.report)
    for target in targets:
        for folder, test in zip(asked.photographs, tests, strict=True):
            print(f"{len(test)} of {folder}")
            count(bundle, target, test, card)


def count(bundle: Bundle, target: str, test: list[dict[str, Array]], card: Card | None) -> None:
    """Print how many boxes of fp32 each quantized variant of a target keeps."""
    variants = [v for v in bundle.variants if v.target == target and v.usable]
    parent = next(v for v in variants if v.precision == "fp32")
    score = SCORE if card is None else CARD_SCORE
    reference = [boxes(outputs, score, card) for outputs in run(bundle, parent, test)]
    total = sum(len(found[1]) for found in reference)
    for variant in variants:
        if variant is not parent:
            found = [boxes(outputs, VARIANT_SCORE, card) for outputs in run(bundle, variant, test)]
            kept = sum(matched(a, b) for a, b in zip(reference, found, strict=True))
            print(f"{variant.name}: {kept} of {total} boxes kept ({kept / total:.1%})")


def run(bundle: Bundle, variant: Variant, test: list[dict[str, Array]]) -> list[dict[str, Array]]:
    """The outputs of one variant, without fallbacks."""
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, entry in variant.files.items():
            files[name] = Path(folder) / name
            files[name].parent.mkdir(parents=True, exist_ok=True)
            files[name].write_bytes(bundle.read(entry))
        engine = registry.engine(variant.target)
        with closing(engine.open_runner(files, bundle.inputs, bundle.outputs, variant.options, 1)) as runner:
            return [runner.run(feed) for feed in test]


def prepared(path: Path, side: int) -> Array:
    """Letterboxed to the top left, 0 to 1, RGB, as the package does."""
    import cv2

    picture = read_picture(path)
    longest = max(picture.shape[:2])
    square = np.zeros((longest, longest, 3), np.uint8)
    square[: picture.shape[0], : picture.shape[1]] = picture
    small = cv2.resize(square, (side, side))
    return np.ascontiguousarray(small.transpose(2, 0, 1)[None].astype(np.float32) / 255)


def boxes(outputs: dict[str, Array], score: float, card: Card | None) -> tuple[Array, Array, Array]:
    """Boxes as corners, classes and scores above a threshold, after non-maximum suppression."""
    if card is not None:
        found = processing.decode(card, outputs, whole_input(card), score=score)
        return found.boxes, found.classes, found.scores
    (output,) = outputs.values()
    rows = output[0].T
    best, classes = rows[:, 4:].max(axis=1), rows[:, 4:].argmax(axis=1)
    likely = best > score
    rows, best, classes = rows[likely], best[likely], classes[likely]
    corners = np.concatenate([rows[:, :2] - rows[:, 2:4] / 2, rows[:, :2] + rows[:, 2:4] / 2], axis=1)
    kept = suppress(corners, best, classes, 0.45, 100)
    return corners[kept], classes[kept], best[kept]


def matched(reference: tuple[Array, Array, Array], found: tuple[Array, Array, Array]) -> int:
    """How many boxes of the reference have one of the same class that overlaps them."""
    kept = 0
    for box, index in zip(*reference[:2], strict=True):
        others = found[0][found[1] == index]
        low, high = np.maximum(others[:, :2], box[:2]), np.minimum(others[:, 2:], box[2:])
        shared = np.maximum(high - low, 0).prod(axis=1)
        union = (others[:, 2:] - others[:, :2]).prod(axis=1) + (box[2:] - box[:2]).prod() - shared
        kept += bool((shared >= IOU * union).any())
    return kept


if __name__ == "__main__":
    main()
