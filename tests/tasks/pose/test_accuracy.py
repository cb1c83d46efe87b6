"""mAP of keypoints, against COCO's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.errors import SampleError
from edgekit.processing.predictions.pose import Keypoints
from edgekit.tasks.pose import accuracy
from tests.fixtures.cards import card
from tests.fixtures.coco_evaluation import by_coco_evaluation

Image = pytest.importorskip("PIL.Image")
CARD = card({"kind": "pose", "decode": "yolov8", "outputs": {"predictions": "y"}})
PICTURES, POINTS = 25, 17


def photographs(folder: Path, count: int, size: int = 8) -> None:
    for index in range(count):
        Image.new("RGB", (size, size)).save(folder / f"{index:02}.png")


def drawn(seed: int) -> tuple[list[dict[str, Any]], list[Keypoints]]:
    """Persons of all sizes, some of them without keypoints or crowds, and poses near most of them."""
    rng = np.random.default_rng(seed)
    annotations: list[dict[str, Any]] = []
    predictions = []
    for index in range(PICTURES):
        poses = []
        for _ in range(int(rng.integers(0, 6))):
            corner, side = rng.uniform(0, 300, 2), np.exp(rng.uniform(np.log(20), np.log(300)))
            points = corner + rng.uniform(0, side, (POINTS, 2))
            visible = rng.integers(0, 3, POINTS) * (rng.random() > 0.15)
            crowd = not visible.any() and rng.random() < 0.5
            annotations.append({
                "image_id": index, "category_id": 1, "bbox": [*corner.tolist(), side, side],
                "area": side * side * rng.uniform(0.3, 0.9), "iscrowd": int(crowd),
                "num_keypoints": int((visible > 0).sum()),
                "keypoints": np.column_stack([points, visible]).ravel().tolist(),
            })  # fmt: skip
            for _ in range(int(rng.integers(0, 4))):
                poses.append(points + rng.normal(0, side * rng.uniform(0.01, 0.1), (POINTS, 2)))
        poses += [rng.uniform(0, 400, (POINTS, 2)) for _ in range(int(rng.integers(0, 22)))]
        array = np.array(poses, np.float32).reshape(-1, POINTS, 2)
        predictions.append(Keypoints(array, rng.random(len(array)).round(2).astype(np.float32)))
    return annotations, predictions


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_coco(tmp_path: Path, seed: int) -> None:
    annotations, predictions = drawn(seed)
    photographs(tmp_path, PICTURES)
    table = {
        "annotations": annotations, "categories": [{"id": 1, "name": "person"}],
        "images": [{"id": index, "file_name": f"{index:02}.png"} for index in range(PICTURES)],
    }  # fmt: skip
    (tmp_path / "person_keypoints.json").write_text(json.dumps(table))
    samples = accuracy.read_keypoints(tmp_path, CARD).samples
    pairs = [(one.label, predictions[int(Path(one.name).stem)]) for one in samples]
    scores = accuracy.score([accuracy.measure(*pair, CARD) for pair in pairs], CARD)
    results = [
        {"image_id": index, "category_id": 1, "score": float(score),
         "keypoints": np.column_stack([points, np.ones(POINTS)]).ravel().tolist()}
        for index, poses in enumerate(predictions)
        for points, score in zip(poses.points.astype(np.float64), poses.scores, strict=True)
    ]  # fmt: skip
    sizes = scores.groups["size"]
    ours = [scores.value(np.ones(PICTURES, np.int64)), *(one.value for one in scores.groups["IoU"].values())]
    ours += [sizes["medium"].value, sizes["large"].value]
    assert ours == pytest.approx(by_coco_evaluation(annotations, results, "keypoints")[:5], abs=1e-9)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 .5 .5 .5 1 .25 .5 2 .75 1 0", [2, 4, 2, 6, 8, 0]),
        ("0 .5 .5 .5 1 .25 .5 0 0", [2, 4, 2, 0, 0, 0]),
        ("0 .5 .5 .5 1", []),
    ],
)
def test_yolo_keypoints(tmp_path: Path, line: str, expected: list[float]) -> None:
    photographs(tmp_path, 2)
    (tmp_path / "00.txt").write_text(line)
    (tmp_path / "01.txt").write_text("0 .5 .5 .5 .5 .5 .5 1 .5 .5 1")
    label = accuracy.read_keypoints(tmp_path, CARD).samples[0].label
    assert label.keypoints[0] == expected
    assert label.objects.boxes.tolist() == [[2, 0, 6, 8]]
    assert label.areas.tolist() == [pytest.approx(32 * (0.53 if expected else 1))]


def test_labels_that_do_not_fit(tmp_path: Path) -> None:
    photographs(tmp_path, 1)
    labels = tmp_path / "00.txt"
    labels.write_text("0 .5 .5 .5 .5")
    with pytest.raises(SampleError) as error:
        accuracy.read_keypoints(tmp_path, CARD)
    assert str(error.value) == (
        f"{tmp_path}: the YOLO text files have no keypoints; use COCO's person_keypoints JSON, or YOLO text "
        "files of lines 'class cx cy w h x y v ...'"
    )
    labels.write_text("0 .5 .5 .5 .5 .5 .5 1 .5 .5 1 1")
    with pytest.raises(SampleError, match=r"does not have the form 'class cx cy w h x y v \.\.\.'"):
        accuracy.read_keypoints(tmp_path, CARD)
    labels.write_text("0 .5 .5 .5 .5 .5 .5 1")
    (sample,) = accuracy.read_keypoints(tmp_path, CARD).samples
    with pytest.raises(SampleError) as error:
        accuracy.measure(
            sample.label, Keypoints(np.zeros((0, 17, 2), np.float32), np.zeros(0, np.float32)), CARD
        )
    assert str(error.value) == (
        "an object has 1 labelled keypoints, but the model has 17; use labels with the keypoints of the card"
    )
