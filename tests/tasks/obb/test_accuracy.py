"""mAP of oriented boxes, and the smallest rectangle against OpenCV's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.errors import SampleError
from edgekit.processing.predictions.obb import OrientedDetections
from edgekit.tasks.obb import accuracy
from edgekit.tasks.obb.yolo import probabilistic_iou
from edgekit.tensor_spec import Array
from tests.fixtures.cards import card

Image = pytest.importorskip("PIL.Image")
CARD = card({"kind": "obb", "decode": "yolov8", "outputs": {"predictions": "y"}, "labels": ["ship", "plane"]})


def detections(boxes: Array, scores: Array, classes: Array) -> OrientedDetections:
    return OrientedDetections(boxes.astype(np.float32), scores.astype(np.float32), classes)


def test_smallest_rectangle_is_that_of_opencv() -> None:
    cv2 = pytest.importorskip("cv2")
    rng = np.random.default_rng(0)
    for _ in range(50):
        turns = np.sort(rng.uniform(0, 2 * np.pi, 4))
        corners = 50 + np.stack([40 * np.cos(turns), 20 * np.sin(turns)], axis=1)  # convex
        ours = accuracy.smallest_rectangle([corners.ravel().tolist()])
        (x, y), (width, height), degrees = cv2.minAreaRect(corners.astype(np.float32))
        assert ours[2] * ours[3] == pytest.approx(width * height, rel=1e-4)
        theirs = np.array([[x, y, width, height, np.deg2rad(degrees)]])
        assert probabilistic_iou(ours[None], theirs)[0, 0] > 0.99


def test_turned_boxes_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    boxes = np.column_stack([rng.uniform(20, 80, (6, 2)), rng.uniform(10, 30, (6, 2)), rng.uniform(0, 3, 6)])
    classes = rng.integers(0, 2, 6)
    drawn = detections(boxes, np.ones(6), classes)
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    lines = [
        f"{kind} {' '.join(f'{value / 100:.6f}' for value in corners.ravel())}"
        for kind, corners in zip(classes, drawn.corners, strict=True)
    ]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (sample,) = accuracy.read_oriented(tmp_path, CARD).samples

    def value(found: OrientedDetections) -> float | None:
        scores = accuracy.score([accuracy.measure(sample.label, found, CARD)], CARD)
        return scores.value(np.ones(1, np.int64))

    quarter = np.array([0, 0, 0, 0, np.pi / 2])
    assert value(drawn) == pytest.approx(1)
    assert value(detections(boxes + quarter, np.ones(6), classes)) != pytest.approx(1)
    turned = boxes[:, [0, 1, 3, 2, 4]] + quarter  # the same corners
    assert value(detections(turned, np.ones(6), classes)) == pytest.approx(1)
    assert value(detections(boxes, np.ones(6), 1 - classes)) == 0


def test_upright_boxes_do_not_have_corners(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("0 .5 .5 .5 .5")
    with pytest.raises(SampleError) as error:
        accuracy.read_oriented(tmp_path, CARD)
    assert str(error.value) == (
        "a.png: an object of the YOLO text files does not have four corners; use YOLO text files of lines "
        "'class x1 y1 x2 y2 x3 y3 x4 y4', or such polygons in COCO JSON"
    )
