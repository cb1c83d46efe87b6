"""Labelled photographs and mean average precision, by COCO's own code."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.processing.picture_files import read_picture
from edgekit.processing.predictions.detect import Detections
from edgekit.tensor_spec import Array

Pictures = Mapping[int, Array]  # by COCO's image id


def read_photographs(folder: Path) -> Pictures:
    """The photographs of ``folder/images``, uint8 RGB."""
    return {int(path.stem): read_picture(path) for path in sorted((folder / "images").glob("*.jpg"))}


def mean_average_precision(folder: Path, pictures: Pictures, found: Mapping[int, Detections]) -> float:
    """mAP over IoU 0.5 to 0.95 of ``found`` against the labels in ``folder/labels``.

    A label is a line ``class cx cy w h`` in parts of the picture. Areas of outlines are not known, so an area
    is 0.6 of its box's; it decides only which size a box counts as.
    """
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth, results = COCO(), []
    categories = [{"id": index, "name": str(index)} for index in range(80)]
    truth.dataset = {"images": [], "annotations": [], "categories": categories}
    for image_id, picture in pictures.items():
        height, width = picture.shape[:2]
        truth.dataset["images"].append({"id": image_id, "width": width, "height": height})
        for line in (folder / "labels" / f"{image_id:012}.txt").read_text("utf-8").splitlines():
            index, cx, cy, w, h = (float(part) for part in line.split()[:5])
            label = _box(
                image_id, int(index), (cx - w / 2) * width, (cy - h / 2) * height, w * width, h * height
            )
            number = len(truth.dataset["annotations"]) + 1
            truth.dataset["annotations"].append({**label, "id": number, "iscrowd": 0})
        for one in found[image_id]:
            x1, y1, x2, y2 = one.box
            results.append({**_box(image_id, one.index, x1, y1, x2 - x1, y2 - y1), "score": one.score})
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        run = COCOeval(truth, truth.loadRes(results), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
    return float(run.stats[0])


def _box(image_id: int, index: int, x: float, y: float, w: float, h: float) -> dict[str, Any]:
    return {"image_id": image_id, "category_id": index, "bbox": [x, y, w, h], "area": w * h * 0.6}
