"""Boxes of Gst-nvinfer's arithmetic (in numpy, on ONNX Runtime) next to EdgeKit's own, of one variant.

    python -m tests.benchmarks.bench_deepstream BUNDLE VARIANT PHOTOS LABELS [--overlap 0.9]

EdgeKit's boxes are those of the same variant, prepared and decoded by the card: with its padding, and with
black as nvinfer pads. A box is found again if one of the same class overlaps it by more than that. mAP is on
the labels, in YOLO's format.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.evaluate.average_precision import box_overlaps, mean_average_precision
from edgekit.processing.card import Card, parse_card
from edgekit.processing.inputs.image import ImageInput
from edgekit.processing.predictions.detect import Detections
from edgekit.processing.processing import decode, placement, prepare
from edgekit.release.export.export import export_variant
from edgekit.release.export.export_deepstream import export_deepstream
from edgekit.tensor_spec import Array
from tests.fixtures.nvinfer import Nvinfer

SURE, CANDIDATE = 0.5, 0.01


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("variant")
    parser.add_argument("photos", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--overlap", type=float, default=0.9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, Bundle.open(options.bundle) as bundle:
        assert bundle.card is not None
        card = parse_card(bundle.card)
        export_variant(bundle, options.variant, Path(name, "raw"))
        export_deepstream(bundle, options.variant, Path(name, "deepstream"))
        (raw,) = Path(name, "raw").glob("*.onnx")
        plain = (
            onnxruntime.SessionOptions()
        )  # its int8 kernels take no float16, which the optimizer overlooks
        plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(str(raw), plain, providers=["CPUExecutionProvider"])
        nvinfer = Nvinfer(Path(name, "deepstream"))
        threshold = nvinfer.classes["pre-cluster-threshold"]
        truth: list[Detections] = []
        maps: dict[str, list[Detections]] = {"the card's padding": [], "black": [], "nvinfer": []}
        counts = {name: np.zeros(5, np.int64) for name in ("the card's padding", "black")}
        for path in sorted(options.photos.glob("*.jpg")):
            frame = np.asarray(Image.open(path).convert("RGB"))
            truth.append(labelled(options.labels / f"{path.stem}.txt", frame))
            nvinfer.classes["pre-cluster-threshold"] = threshold
            theirs = nvinfer.predict(frame)
            nvinfer.classes["pre-cluster-threshold"] = str(CANDIDATE)
            maps["nvinfer"].append(nvinfer.predict(frame))
            for padding, padded in (("the card's padding", card), ("black", with_pad(card, 0))):
                counts[padding] += compared(detect(session, padded, frame), theirs, options.overlap)
                maps[padding].append(detect(session, with_score(padded, CANDIDATE), frame))
    for padding, (found, again, sure, sure_again, number) in counts.items():
        print(
            f"{padding}: {again} of {found} boxes ({again / found:.3f}), above {SURE} {sure_again} of "
            f"{sure} ({sure_again / sure:.3f}); nvinfer has {number}"
        )
    print({name: round(mean_average_precision(truth, found) or 0.0, 4) for name, found in maps.items()})


def with_pad(card: Card, pad: int) -> Card:
    inputs = {
        name: replace(entry, pad=pad) if isinstance(entry, ImageInput) else entry
        for name, entry in card.inputs.items()
    }
    return replace(card, inputs=inputs)


def with_score(card: Card, score: float) -> Card:
    assert card.task is not None
    return replace(card, task=replace(card.task, options=replace(card.task.options, score=score)))


def detect(session: onnxruntime.InferenceSession, card: Card, frame: Array) -> Detections:
    feeds, _ = prepare(card, frame)
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(names, feeds), strict=True))
    found: Detections = decode(card, outputs, placement(card, frame.shape[1], frame.shape[0]))
    return found


def compared(ours: Detections, theirs: Detections, overlap: float) -> Array:
    overlaps = box_overlaps(ours, np.arange(len(ours)), theirs, np.arange(len(theirs)))
    same = overlaps * (ours.classes[:, None] == theirs.classes[None])
    again, sure = same.max(axis=1, initial=0) > overlap, ours.scores > SURE
    return np.array([len(ours), again.sum(), sure.sum(), (again & sure).sum(), len(theirs)])


def labelled(path: Path, frame: Array) -> Detections:
    rows = np.loadtxt(path, ndmin=2) if path.exists() and path.stat().st_size else np.zeros((0, 5))
    size = np.array([frame.shape[1], frame.shape[0]])
    centre, half = rows[:, 1:3] * size, rows[:, 3:5] * size / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1).astype(np.float32)
    return Detections(boxes, np.ones(len(rows), np.float32), rows[:, 0].astype(np.int64))


if __name__ == "__main__":
    main()
