"""mAP of masks, against COCO's own code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.compiler.evaluate.label_files.outlines import mask_of
from edgekit.errors import SampleError
from edgekit.processing.predictions.segment_instances import Instances, rle_counts, rle_text
from edgekit.tasks.segment_instances import accuracy
from edgekit.tensor_spec import Array
from tests.fixtures.cards import card
from tests.fixtures.coco_evaluation import by_coco_evaluation

Image = pytest.importorskip("PIL.Image")
mask = pytest.importorskip("pycocotools.mask")
TASK = {"kind": "segment-instances", "decode": "yolov8", "outputs": {"predictions": "y", "prototypes": "p"}}
CARD = card({**TASK, "labels": ["cat", "dog"]})
PICTURES, HEIGHT, WIDTH = 16, 120, 160


def polygon(rng: np.random.Generator) -> Array:
    """A star-shaped outline: float64 [corners * 2]."""
    corners = int(rng.integers(3, 12))
    turns, radius = np.sort(rng.uniform(0, 2 * np.pi, corners)), rng.uniform(3, 60)
    lengths = radius * rng.uniform(0.5, 1, corners)
    centre = rng.uniform([0, 0], [WIDTH, HEIGHT])
    points = centre + np.stack([np.cos(turns), np.sin(turns)], axis=1) * lengths[:, None]
    return np.clip(points, 0, [WIDTH, HEIGHT]).ravel()


def drawn(seed: int) -> tuple[list[dict[str, Any]], list[Instances]]:
    """Outlines of all kinds, some of them crowds, and masks near most of them."""
    rng = np.random.default_rng(seed)
    annotations: list[dict[str, Any]] = []
    predictions = []
    for index in range(PICTURES):
        masks, classes = [], []
        for _ in range(int(rng.integers(0, 7))):
            outline: Any = [polygon(rng).tolist() for _ in range(int(rng.integers(1, 3)))]
            whole = mask_of(outline, HEIGHT, WIDTH)
            crowd, kind = rng.random() < 0.2, int(rng.integers(0, 2))
            if crowd or rng.random() < 0.3:
                counts: Any = rle_counts(whole)
                outline = {
                    "counts": rle_text(counts) if rng.random() < 0.5 else counts,
                    "size": [HEIGHT, WIDTH],
                }
            annotations.append({
                "image_id": index, "category_id": kind + 1, "bbox": [0, 0, 9, 9], "iscrowd": int(crowd),
                "area": float(whole.sum()), "segmentation": outline,
            })  # fmt: skip
            for _ in range(int(rng.integers(0, 3))):
                masks.append(np.roll(whole, rng.integers(-4, 5, 2), (0, 1)))
                classes.append(kind if rng.random() < 0.9 else 1 - kind)
        scores = rng.random(len(masks)).round(1).astype(np.float32)
        places, boxes = np.zeros((len(masks), 2), np.int64), np.zeros((len(masks), 4), np.float32)
        predictions.append(
            Instances(boxes, scores, np.array(classes, np.int64), masks, places, WIDTH, HEIGHT)
        )
    return annotations, predictions


@pytest.mark.parametrize("seed", range(3))
def test_figures_are_those_of_coco(tmp_path: Path, seed: int) -> None:
    annotations, predictions = drawn(seed)
    for index in range(PICTURES):
        Image.new("RGB", (WIDTH, HEIGHT)).save(tmp_path / f"{index:02}.png")
    table = {
        "annotations": annotations, "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "images": [{"id": index, "file_name": f"{index:02}.png"} for index in range(PICTURES)],
    }  # fmt: skip
    (tmp_path / "instances.json").write_text(json.dumps(table))
    samples = accuracy.read_outlines(tmp_path, CARD).samples
    pairs = [(one.label, predictions[int(Path(one.name).stem)]) for one in samples]
    scores = accuracy.score([accuracy.measure(*pair, CARD) for pair in pairs], CARD)
    results = [
        {"image_id": index, "category_id": int(kind) + 1, "score": float(score),
         "segmentation": mask.encode(np.asfortranarray(crop.astype(np.uint8)))}
        for index, found in enumerate(predictions)
        for crop, kind, score in zip(found.crops, found.classes, found.scores, strict=True)
    ]  # fmt: skip
    ours = [scores.value(np.ones(PICTURES, np.int64)), *(one.value for one in scores.groups["IoU"].values())]
    ours += [one.value for one in scores.groups["size"].values()]
    theirs = by_coco_evaluation(annotations, results, "segm", width=WIDTH, height=HEIGHT)
    assert ours == pytest.approx(theirs[: len(ours)], abs=1e-9)


@pytest.mark.parametrize("counts", [[3, 2, 1, 6], "3215"])
def test_run_lengths(counts: Any) -> None:
    expected = np.repeat([False, True, False, True], [3, 2, 1, 6]).reshape(4, 3).T
    assert rle_text([3, 2, 1, 6]) == "3214"
    text = rle_text([3, 2, 1, 6]) if isinstance(counts, str) else counts
    np.testing.assert_array_equal(mask_of({"counts": text, "size": [3, 4]}, 3, 4), expected)


@pytest.mark.parametrize(
    ("outline", "reason"),
    [
        ([[1, 2, 3, 4]], "a polygon has less than three corners, or is far outside the photograph"),
        ([[1, 2, 3, 4, 5, 1e9]], "a polygon has less than three corners, or is far outside the photograph"),
        ({"counts": [3], "size": [3, 4]}, "its run lengths add up to 3, not to 12"),
        ({"counts": [-3, 15], "size": [3, 4]}, "its run lengths are not those of the photograph"),
        ({"counts": [12], "size": [4, 3]}, "its size is [4, 3], but the photograph's is [3, 4]"),
        ({"counts": "\x7f", "size": [3, 4]}, "its run lengths are not compressed as COCO does"),
        ({"counts": [12]}, "'size'"),
        (5, "'int' object is not iterable"),
    ],
)  # fmt: skip
def test_malformed_outlines(outline: Any, reason: str) -> None:
    with pytest.raises(SampleError) as error:
        mask_of(outline, 3, 4)
    assert str(error.value) == f"an outline is malformed: {reason}; correct it, or leave it out"


def test_boxes_have_no_outlines(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    (tmp_path / "0.txt").write_text("0 .5 .5 .5 .5")
    with pytest.raises(SampleError) as error:
        accuracy.read_outlines(tmp_path, CARD)
    assert str(error.value) == (
        "0.png: an object of the YOLO text files has no outline; use COCO JSON with segmentation, or YOLO "
        "text files of lines 'class x1 y1 x2 y2 ...'"
    )
