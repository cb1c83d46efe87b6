"""Accuracy on labelled photographs, the whole way: card, bundle, session, answer; on every engine.

Each network is one test over all engines, so that photographs are read and prepared once.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import edgekit
from edgekit.processing import load_card, processing
from edgekit.processing.picture_files import read_picture
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from tests.accuracy.coco import mean_average_precision, read_photographs

CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
ENGINES = ("ort", "openvino", "tflite")

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.needs_ort,
    pytest.mark.needs_openvino,
    pytest.mark.needs_tflite,
    pytest.mark.slow,
]


def built(model: Path, card: Path) -> edgekit.Bundle:
    """A bundle with one verified fp32 variant for each engine."""
    bundle = edgekit.build(model, targets=ENGINES, card=card)
    assert {v.name: v.status.split()[0] for v in bundle.variants} == {
        f"{e}-fp32": "verified" for e in ENGINES
    }
    return bundle


def test_yolox_nano_on_coco(shared: Path) -> None:
    """The source model has mAP 0.3383 here, on ONNX Runtime.

    It has 0.336 where boxes are left to reach beyond the picture; ours end at its edge, as the labels do.
    """
    pytest.importorskip("pycocotools")
    folder = shared / "data" / "coco128" / "val"
    card = load_card(CARDS / "yolox_nano.toml")
    pictures = read_photographs(folder)
    assert len(pictures) == 128
    prepared = {image_id: processing.prepare(card, picture) for image_id, picture in pictures.items()}
    figures = {}
    with built(shared / "models" / "yolox_nano.onnx", CARDS / "yolox_nano.toml") as bundle:
        for engine in ENGINES:
            found: dict[int, Detections] = {}
            with Session(bundle, engine=engine, strict=True) as session:
                for image_id, (feeds, placed) in prepared.items():
                    answer = processing.decode(card, session.run(feeds), placed, score=0.01, top=300)
                    assert isinstance(answer, Detections)
                    found[image_id] = answer
            figures[engine] = mean_average_precision(folder, pictures, found)
    assert figures == dict.fromkeys(ENGINES, pytest.approx(0.3383, abs=0.001))


def test_efficientnet_lite0_on_imagenet(shared: Path) -> None:
    """The source model has 438 of 500 right (0.876), on ONNX Runtime."""
    folder = shared / "data" / "imagenet500"
    card = load_card(CARDS / "efficientnet_lite0.toml")
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 500
    prepared = [
        (processing.prepare(card, read_picture(folder / r["file"])), int(r["class_index"])) for r in rows
    ]
    figures = {}
    with built(shared / "models" / "efficientnet_lite0.onnx", CARDS / "efficientnet_lite0.toml") as bundle:
        for engine in ENGINES:
            right = 0
            with Session(bundle, engine=engine, strict=True) as session:
                for (feeds, placed), expected in prepared:
                    answer = processing.decode(card, session.run(feeds), placed)
                    assert isinstance(answer, Classes)
                    right += answer[0].index == expected
            figures[engine] = right
    assert figures == dict.fromkeys(ENGINES, pytest.approx(438, abs=1))
