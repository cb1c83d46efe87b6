"""The whole way on labelled photographs: card, engine, decoding; against the figures of the shared models."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import edgekit
from edgekit.card import load_card
from edgekit.model_file import open_model
from edgekit.reference import Reference
from edgekit.runtime import Session, tasks
from edgekit.target import Array

pytestmark = [
    pytest.mark.needs_shared,
    pytest.mark.needs_ort,
    pytest.mark.needs_openvino,
    pytest.mark.needs_tflite,
    pytest.mark.slow,
]
CARDS = Path(__file__).resolve().parents[2] / "samples" / "cards"
ENGINES = ("ort", "openvino", "tflite")
YOLOX_MAP = 0.338
"""mAP 0.5:0.95 on coco128/val of the source model. The shared models' README has 0.336, for boxes that may
reach out of the photograph; a card's answer keeps within it."""
LITE0_TOP1 = 0.876
"""Top-1 on imagenet500, likewise."""


def _runs(model: Path, card_name: str, folder: Path) -> dict[str, Any]:
    """Every engine's run function and the reference's, by name."""
    card = load_card(CARDS / f"{card_name}.toml")
    bundle = edgekit.build(model, targets=ENGINES, card=card)
    bundle.save(folder / "m.edgekit")
    runs: dict[str, Any] = {"reference": Reference(open_model(model, card.shapes())).run}
    for engine in ENGINES:
        runs[engine] = Session(folder / "m.edgekit", engine=engine, strict=True).run
    return runs


def test_yolox_nano_detects_as_the_source_model_does(shared: Path, tmp_path: Path) -> None:
    runs = _runs(shared / "models" / "yolox_nano.onnx", "yolox_nano", tmp_path)
    card = load_card(CARDS / "yolox_nano.toml")
    photographs = sorted((shared / "data" / "coco128" / "val" / "images").glob("*.jpg"))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    sizes = {}
    for path in photographs:
        picture = _read(path)
        sizes[path.stem] = picture.shape[:2]
        feeds, placed = tasks.prepare(card, picture, order="bgr")
        for name, run in runs.items():
            answer = tasks.decode(card, run(feeds), placed, score=0.01, iou=0.6, top=300)
            found[name] += [_coco(path.stem, detection) for detection in answer]
    figures = {name: _mean_average_precision(photographs, sizes, rows) for name, rows in found.items()}
    assert figures["reference"] == pytest.approx(
        YOLOX_MAP, abs=0.005
    )  # another JPEG decoder than the figure's
    for engine in ENGINES:
        assert figures[engine] == pytest.approx(figures["reference"], abs=0.001), figures


def test_efficientnet_lite0_classifies_as_the_source_model_does(shared: Path, tmp_path: Path) -> None:
    runs = _runs(shared / "models" / "efficientnet_lite0.onnx", "efficientnet_lite0", tmp_path)
    card = load_card(CARDS / "efficientnet_lite0.toml")
    folder = shared / "data" / "imagenet500"
    with (folder / "labels.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    right = dict.fromkeys(runs, 0)
    for row in rows:
        feeds, placed = tasks.prepare(card, _read(folder / row["file"]), order="bgr")
        for name, run in runs.items():
            answer = tasks.decode(card, run(feeds), placed)
            right[name] += answer[0].index == int(row["class_index"])
    assert len(rows) == 500
    for name, count in right.items():
        assert abs(count - round(LITE0_TOP1 * len(rows))) <= 1, (name, right)


def _read(path: Path) -> Array:
    picture: Array | None = cv2.imread(str(path))
    assert picture is not None, path
    return picture


def _coco(image: str, detection: Any) -> dict[str, Any]:
    x1, y1, x2, y2 = detection.box
    box = [x1, y1, x2 - x1, y2 - y1]
    return {"image_id": int(image), "category_id": detection.index, "bbox": box, "score": detection.score}


def _mean_average_precision(
    photographs: list[Path], sizes: Mapping[str, tuple[int, int]], found: list[dict[str, Any]]
) -> float:
    """COCO's mAP 0.5:0.95 by pycocotools, on labels in YOLO's text form."""
    coco_api = pytest.importorskip("pycocotools.coco")
    coco_eval = pytest.importorskip("pycocotools.cocoeval")
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for path in photographs:
        height, width = sizes[path.stem]
        images.append({"id": int(path.stem), "width": width, "height": height})
        labels = path.parents[1] / "labels" / f"{path.stem}.txt"
        for line in labels.read_text("utf-8").splitlines():
            kind, centre_x, centre_y, wide, high = map(float, line.split()[:5])
            box = [(centre_x - wide / 2) * width, (centre_y - high / 2) * height, wide * width, high * height]
            # COCO's area is that of the outline; 0.6 of the box is its usual share.
            area = box[2] * box[3] * 0.6
            entry = {"id": len(annotations) + 1, "image_id": int(path.stem), "category_id": int(kind)}
            annotations.append({**entry, "bbox": box, "area": area, "iscrowd": 0})
    categories = [{"id": i, "name": str(i)} for i in range(80)]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = coco_api.COCO()
        truth.dataset = {"images": images, "annotations": annotations, "categories": categories}
        truth.createIndex()
        judge = coco_eval.COCOeval(truth, truth.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    stats: Array = np.asarray(judge.stats)
    return float(stats[0])
