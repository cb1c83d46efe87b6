"""What a model does on photographs contradicts a wrong card, and never a right one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.card_rules import UNCHECKED, CardFinding, check_without_labels
from edgekit.compiler.model.onnx_file import open_model
from edgekit.errors import CardError
from edgekit.processing.card import Card, load_card
from tests.fixtures.cards import BOXES, CLASSES
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort
CARDS = Path(__file__).parents[3] / "samples" / "cards"
DIVIDED = (255.0, 255.0, 255.0)


def photographs(folder: Path, count: int = 24) -> list[Path]:
    """Write reddish noise."""
    pil = pytest.importorskip("PIL.Image")
    paths = [folder / f"{number}.png" for number in range(count)]
    for number, path in enumerate(paths):
        pixels = np.random.default_rng(number).integers(0, 99, (8, 8, 3), dtype=np.uint8)
        pixels[..., 0] += 150
        pil.fromarray(pixels).save(path)
    return paths


def with_image(card: Card, **changes: Any) -> Card:
    image = replace(card.image_input(), **changes)
    return replace(card, inputs={**card.inputs, image.name: image})


def classifier(folder: Path, variance: float | None = None) -> Path:
    """Write a classifier of pixels from 0 to 1: class 0 is red. With a variance, that of its first layer's
    batch normalization."""
    graph = Graph({"image": (1, 3, 8, 8)})
    weights = np.zeros((2, 3, 1, 1), np.float32)
    weights[0, 0] = weights[1, 1] = 4
    x = graph("Conv", "image", weights)
    if variance is not None:
        scale, mean, stored = np.full(2, variance**0.5), np.zeros(2), np.full(2, variance)
        x = graph("BatchNormalization", x, *(a.astype(np.float32) for a in (scale, mean * 0, mean, stored)))
    pooled = graph("Flatten", graph("GlobalAveragePool", x))
    graph("Identity", pooled)
    graph._nodes[-1].output[0] = "y"
    graph.model(folder, "y")
    return folder / "small.onnx"


def check(model: Path, card: Card, paths: list[Path]) -> list[CardFinding]:
    return check_without_labels(open_model(model), card, paths)


def test_pixels_of_another_range_are_an_error(tmp_path: Path) -> None:
    model, paths = classifier(tmp_path), photographs(tmp_path)
    assert check(model, with_image(CLASSES, std=DIVIDED), paths) == []
    (found,) = check(model, CLASSES, paths)
    assert found.is_error
    assert found.text.startswith("the first layer's channels have a standard deviation of 11")
    assert found.text.endswith(
        "outside 0.05 to 20: mean and std of inputs.image are not those of the training"
    )
    (found,) = check(model, with_image(CLASSES, std=(255.0**2,) * 3), paths)
    assert found.is_error


def test_a_stored_variance_tells_ranges_of_the_same_size_apart(tmp_path: Path) -> None:
    paths, card = photographs(tmp_path), with_image(CLASSES, std=DIVIDED)
    seen = 16 * 99**2 / 12 / 255**2
    assert check(classifier(tmp_path, seen), card, paths) == []
    (found,) = check(classifier(tmp_path, seen), with_image(CLASSES, std=(127.5,) * 3), paths)
    assert not found.is_error
    assert re.search(r"has (4|4\.[01]|3\.9) times the variance of the training", found.text)


def test_the_other_order_of_colours_is_surer(tmp_path: Path) -> None:
    model, paths = classifier(tmp_path), photographs(tmp_path)
    (found,) = check(model, with_image(CLASSES, std=DIVIDED, colour="BGR"), paths)
    assert found == CardFinding(
        'the model is surer of 24 photographs with inputs.image.colour = "RGB", and of 0 with "BGR" (sign '
        "test, p = 6e-08)",
        False,
    )
    assert check(model, with_image(CLASSES, std=DIVIDED, colour="BGR"), paths[:6]) == []  # p = 0.016


def test_objects_that_do_not_follow_the_photograph_are_an_error(tmp_path: Path) -> None:
    """The boxes are the same, whatever is in the photograph: they are not found again in the mirrored one."""
    graph, paths = Graph({"image": (1, 3, 8, 8)}), photographs(tmp_path)
    nothing = graph("Mul", graph("ReduceMean", "image", keepdims=0), np.zeros((), np.float32))
    for name, values in (("b", [[[0.1, 0.1, 0.5, 0.4]]]), ("s", [[[0.9]]])):
        graph("Add", np.array(values, np.float32), nothing)
        graph._nodes[-1].output[0] = name
    graph.model(tmp_path, "b", "s")
    (found,) = check(tmp_path / "small.onnx", BOXES, paths)
    assert found == CardFinding(
        "0 of 16 boxes are found again in the mirrored photographs: task.decode or its options are not the "
        "model's",
        True,
    )
    assert BOXES.task is not None
    high = replace(BOXES, task=replace(BOXES.task, options=replace(BOXES.task.options, score=0.95)))
    (found,) = check(tmp_path / "small.onnx", high, paths)
    assert not found.is_error
    assert found.text.startswith(
        "0 of 16 photographs show an object with the card's score; the best score is 0.9:"
    )


def test_a_build_stops_at_an_error_unless_it_is_forced(tmp_path: Path) -> None:
    model, paths = classifier(tmp_path), photographs(tmp_path)
    options: dict[str, Any] = {"targets": ["ort"], "samples": str(tmp_path / "*.png")}
    with pytest.raises(CardError, match="this card does not fit the model") as refused:
        edgekit.build(model, **options, card=CLASSES)
    assert str(refused.value).endswith("correct the card, or use force=True to build anyway")
    forced = edgekit.build(model, **options, card=CLASSES, force=True)
    assert forced.manifest["samples"]["card"][1:] == [UNCHECKED]
    assert "note      the first layer's channels have a standard deviation of 11" in forced.report
    right = edgekit.build(model, **options, card=with_image(CLASSES, std=DIVIDED))
    assert right.manifest["samples"]["card"] == [UNCHECKED]
    assert right.report.count(UNCHECKED) == 1
    assert paths


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    "name", ["yolox_nano", "coco_ssd_mbv2_300", "efficientnet_lite0", "resnet8_cifar10_fp32", "vww_96_float"]
)
def test_a_right_card_is_never_blamed(name: str, shared: Path) -> None:
    card = load_card(CARDS / f"{name}.toml")
    paths = sorted((shared / "data/coco128/val/images").iterdir())[::16]
    assert check(shared / "models" / f"{name}.onnx", card, paths) == []


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("image", "options", "text"),
    [
        ({"std": DIVIDED}, {}, "the first layer's channels have a standard deviation of 0.0"),
        ({}, {"strides": (32, 16, 8)}, "boxes are flat: task.decode is not the model's"),
    ],
)
def test_a_wrong_card_of_a_detector_is_an_error(
    image: dict[str, Any], options: dict[str, Any], text: str, shared: Path
) -> None:
    card = load_card(CARDS / "yolox_nano.toml")
    assert card.task is not None
    task = replace(card.task, options=replace(card.task.options, **options))
    paths = sorted((shared / "data/coco128/val/images").iterdir())[::16]
    (found,) = check(shared / "models/yolox_nano.onnx", with_image(replace(card, task=task), **image), paths)
    assert (found.is_error, text in found.text) == (True, True)
