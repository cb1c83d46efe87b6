"""int8 with no choice of the user's, on labelled photographs of other data than it was calibrated on."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

import edgekit
from edgekit.compiler.evaluate.fidelity import worst_snr_db
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.processing import load_card, processing
from edgekit.processing.picture_files import read_picture
from edgekit.processing.predictions.classify import Classes
from edgekit.processing.predictions.detect import Detections
from edgekit.runtime import Session
from tests.accuracy.coco import mean_average_precision, read_photographs

CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
ENGINES = ("ort", "openvino")

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.needs_ort,
    pytest.mark.needs_openvino,
    pytest.mark.slow,
]


def built(model: Path, card: Path, shared: Path, engines: Sequence[str] = ENGINES) -> edgekit.Bundle:
    """A bundle with one int8 variant for each engine, whatever is said of its time: on a busy machine that is
    little, and TFLite's kernels gain nothing where the processor has no dot products of bytes."""
    return edgekit.build(
        model,
        targets=engines,
        precision="int8",
        card=card,
        samples=str(shared / "data" / "coco128" / "train" / "images" / "*[02468].jpg"),
        time_budget=60,
        force=True,
        fallback=False,
    )


@pytest.mark.needs_tflite
def test_efficientnet_lite0_on_imagenet(shared: Path) -> None:
    """The float model has 438 of 500 right (0.876). Calibrated on photographs of COCO."""
    folder = shared / "data" / "imagenet500"
    path = shared / "models" / "efficientnet_lite0.onnx"
    card = load_card(CARDS / "efficientnet_lite0.toml")
    with (folder / "labels.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    prepared = [
        (processing.prepare(card, read_picture(folder / r["file"])), int(r["class_index"])) for r in rows
    ]
    reference = Reference(open_model(path, card.shapes()))
    some = [feeds for (feeds, _), _ in prepared[::10]]
    expected = [reference.run(feeds) for feeds in some]
    engines = (*ENGINES, "tflite")
    bundle = built(path, CARDS / "efficientnet_lite0.toml", shared, engines)
    figures = {}
    for engine in engines:
        right = 0
        with Session(bundle, engine=engine, strict=True) as session:
            for (feeds, placed), index in prepared:
                answer = processing.decode(card, session.run(feeds), placed)
                assert isinstance(answer, Classes)
                right += answer[0].index == index
            snr_db = worst_snr_db(expected, [session.run(feeds) for feeds in some])
        figures[engine] = (right, snr_db)
    print(figures)  # pytest -rP shows them
    # With a card the search needs right classes; its fastest candidate, and so the SNR, depends on times.
    assert all(right >= 433 and snr_db >= 18 for right, snr_db in figures.values()), figures


def test_yolox_nano_on_coco(shared: Path) -> None:
    """The float model has mAP 0.3383 here; another calibration moves an int8 model's by 0.005."""
    pytest.importorskip("pycocotools")
    folder = shared / "data" / "coco128" / "val"
    card = load_card(CARDS / "yolox_nano.toml")
    pictures = read_photographs(folder)
    bundle = built(shared / "models" / "yolox_nano.onnx", CARDS / "yolox_nano.toml", shared)
    figures = {}
    for engine in ENGINES:
        found: dict[int, Detections] = {}
        with Session(bundle, engine=engine, strict=True) as session:
            for image_id, picture in pictures.items():
                feeds, placed = processing.prepare(card, picture)
                answer = processing.decode(card, session.run(feeds), placed, score=0.01, top=300)
                assert isinstance(answer, Detections)
                found[image_id] = answer
        figures[engine] = mean_average_precision(folder, pictures, found)
    print(figures)
    assert all(value >= 0.31 for value in figures.values()), figures
