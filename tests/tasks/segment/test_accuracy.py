"""mIoU on masks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.evaluate.label_files.masks import read_masks
from edgekit.errors import SampleError
from edgekit.processing.predictions.segment import ClassMap
from edgekit.tasks.segment.accuracy import measure, score
from edgekit.tensor_spec import Array
from tests.fixtures.cards import card

Image = pytest.importorskip("PIL.Image")
TASK = {"kind": "segment", "decode": "classes", "outputs": {"classes": "y"}, "labels": ["sky", "road", "car"]}
CARD = card(TASK)


def save(path: Path, values: Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint8)).save(path)
    return path


def test_iou_is_that_of_all_photographs_together(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(0, 3, (2, 4, 6, 5))
    truth[rng.random(truth.shape) < 0.2] = 255
    measures = [
        measure(save(tmp_path / f"{index}.png", truth[index]), ClassMap(predicted[index]), CARD)
        for index in range(4)
    ]
    scores = score(measures, CARD)
    counts = truth != 255
    expected = [
        ((truth == c) & (predicted == c)).sum() / ((truth == c) | ((predicted == c) & counts)).sum()
        for c in range(3)
    ]
    assert scores.value(np.ones(4, np.int64)) == pytest.approx(np.mean(expected))
    assert [group.value for group in scores.groups["class"].values()] == pytest.approx(expected)
    assert list(scores.groups["class"]) == ["sky", "road", "car"]
    wrong = (truth[0] != predicted[0])[counts[0]].mean()
    assert scores.errors[0] == pytest.approx(wrong)
    assert scores.faults[0] == f"{wrong:.1%} of the pixels wrong"


def test_a_mask_of_two_classes_may_be_black_and_white(tmp_path: Path) -> None:
    path = save(tmp_path / "a.png", np.array([[0, 255]]))
    assert CARD.task is not None
    two = replace(CARD, task=replace(CARD.task, labels=("background", "person")))
    prediction = ClassMap(np.array([[0, 1]], np.uint8))
    assert score([measure(path, prediction, two)], two).value(np.ones(1, np.int64)) == 1
    assert measure(path, prediction, CARD).labelled.tolist() == [1]


def test_masks_of_two_classes_may_have_pixels_that_do_not_count(tmp_path: Path) -> None:
    """As in Pascal VOC, also in the masks without a person."""
    assert CARD.task is not None
    two = replace(CARD, task=replace(CARD.task, labels=("background", "person")))
    path = save(tmp_path / "a.png", np.array([[0, 255]]))
    save(tmp_path / "b.png", np.array([[1, 255]]))
    assert measure(path, ClassMap(np.array([[0, 1]], np.uint8)), two).labelled.tolist() == [1]


def test_masks_may_change_between_two_evaluations(tmp_path: Path) -> None:
    assert CARD.task is not None
    two = replace(CARD, task=replace(CARD.task, labels=("background", "person")))
    save(tmp_path / "images/a.jpg", np.zeros((1, 2)))
    prediction, labelled = ClassMap(np.array([[0, 1]], np.uint8)), []
    for other in ([[0, 0]], [[1, 0]]):
        save(tmp_path / "masks/b.png", np.array(other))
        save(tmp_path / "masks/a.png", np.array([[0, 255]]))
        (sample,) = read_masks(tmp_path, two).samples
        labelled.append(measure(sample.label, prediction, two).labelled.tolist())
    assert labelled == [[1, 1], [1]]


def test_masks_are_found_by_name(tmp_path: Path) -> None:
    pixels = np.zeros((2, 2))
    for name in ("images/a.jpg", "masks/a.png", "b.png", "b_mask.png", "images/c.jpg"):
        save(tmp_path / name, pixels)
    samples = read_masks(tmp_path, CARD)
    assert [(one.name, one.label.name) for one in samples.samples] == [
        ("b.png", "b_mask.png"), ("images/a.jpg", "a.png"),
    ]  # fmt: skip
    assert list(samples.notes) == ["1 of 3 photographs have no mask and were left out"]


def test_what_is_no_mask(tmp_path: Path) -> None:
    prediction = ClassMap(np.zeros((2, 2), np.uint8))
    coloured = save(tmp_path / "a.png", np.zeros((2, 2, 3)))
    with pytest.raises(SampleError) as error:
        measure(coloured, prediction, CARD)
    reason = "it has colours; save the labels as the values of one channel"
    assert str(error.value) == f"{coloured} can't be read as a picture: {reason}"
    small = save(tmp_path / "b.png", np.zeros((1, 2)))
    with pytest.raises(SampleError) as error:
        measure(small, prediction, CARD)
    assert str(error.value) == f"{small} has 2x1 pixels, but its photograph 2x2"
    with pytest.raises(SampleError) as error:
        read_masks(small.parent, CARD)
    assert str(error.value) == (
        f"{tmp_path} has no photographs with masks. Put the mask of images/NAME.jpg into masks/NAME.png, "
        "with the class numbers as its values"
    )
