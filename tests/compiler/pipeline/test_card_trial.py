"""A card is tried on labelled samples before anything is compiled: docs/cards.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import edgekit
from edgekit.bundle.report import model_notes
from edgekit.compiler.card_inference.draft import draft_card
from edgekit.compiler.pipeline import card_trial
from edgekit.compiler.pipeline.build_bundle import Stage
from edgekit.errors import CardError, UsageError
from edgekit.processing.card import Card, parse_card
from edgekit.report.page import page_of
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort


def photographs(folder: Path, shift: int = 0, count: int = 24) -> Path:
    """Write red and blue pictures with their labels; a swap of colours makes every answer wrong."""
    pil = pytest.importorskip("PIL.Image")
    folder.mkdir()
    rows = ["file,class_index"]
    for number in range(count):
        pixels = np.random.default_rng(number).integers(0, 99, (8, 8, 3), dtype=np.uint8)
        pixels[..., 2 * (number % 2)] += 150
        pil.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{2 * (number % 2) + shift}")
    (folder / "labels.csv").write_text("\n".join(rows))
    return folder


def card(colour: str = "RGB", **task: Any) -> Card:
    image = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": colour, "resize": "stretch"}
    outputs = {"kind": "classify", "decode": "logits", "outputs": {"scores": "scores"}}
    table = {
        "title": "colours",
        "inputs": {"image": {**image, "std": [255] * 3}},
        "task": {**outputs, **task},
    }
    return parse_card(table)


def test_a_float_build_says_what_the_model_is_worth(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.COLOUR_CLASSIFIER)
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=photographs(tmp_path / "photographs"))
    assert bundle.manifest["samples"]["labels"] == {
        "metric": "top-1",
        "value": 1.0,
        "upper": 1.0,
        "samples": 24,
        "right": 24,
        "labelled": 24,
        "numbering": "",
    }
    note = (
        "the float model with its card: top-1 1.000 (at most 1.000), 24 of 24 right, on 24 labelled samples"
    )
    assert note in bundle.report
    assert note in list(model_notes(bundle.manifest))
    assert note in page_of(bundle)


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_card_that_finds_nothing_stops_the_build_before_anything_is_compiled(
    tmp_path: Path, precision: str
) -> None:
    model, stages = models.write(tmp_path, models.COLOUR_CLASSIFIER), list[Stage]()
    samples = photographs(tmp_path / "photographs")
    options: dict[str, Any] = {"targets": ["ort"], "precision": precision, "samples": samples}
    with pytest.raises(CardError) as refused:
        edgekit.build(model, **options, card=card("BGR"), progress=stages.append)
    assert str(refused.value).splitlines() == [
        "colours: with this card the model is worth nothing: top-1 0.000 (at most 0.117), 0 of 24 right, on "
        "24 labelled samples",
        '  most likely wrong: inputs.image.colour is "BGR", not "RGB": top-1 is 1.000 with that on 16 '
        "samples",
        "  correct the card or the labels, or use force=True to build anyway",
    ]
    assert refused.value.exit_code == 2
    assert not {"compiled", "calibrated", "searched"} & {stage.name for stage in stages}
    forced = edgekit.build(model, **options, card=card("BGR"), force=True)
    assert forced.manifest["samples"]["labels"]["right"] == 0
    assert "top-1 0.000 (at most 0.117), 0 of 24 right" in forced.report


def test_a_half_right_card_is_told_of_a_better_one(tmp_path: Path) -> None:
    """Green is right in either order of colours, red and blue are not."""
    pil = pytest.importorskip("PIL.Image")
    model, folder = models.write(tmp_path, models.COLOUR_CLASSIFIER), tmp_path / "photographs"
    folder.mkdir()
    rows = ["file,class_index"]
    for number in range(40):
        colour = (0, 1, 2, 1)[number % 4]
        pixels = np.random.default_rng(number).integers(0, 99, (8, 8, 3), dtype=np.uint8)
        pixels[..., colour] += 150
        pil.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{colour}")
    (folder / "labels.csv").write_text("\n".join(rows))
    bundle = edgekit.build(model, targets=["ort"], card=card("BGR"), samples=folder)
    better = (
        'inputs.image: colour = "RGB": top-1 is 1.000 instead of 0.500 on the same samples (sign test '
        "on 40, p = 5.7e-06)"
    )
    assert bundle.manifest["samples"]["labels"]["better"] == better
    assert f"another card is better: {better}" in bundle.report
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=folder)
    assert "better" not in bundle.manifest["samples"]["labels"]


def test_a_better_card_is_looked_for_on_128_labels(tmp_path: Path) -> None:
    """The first photographs are all of one class, and their folder is then no folder of classes."""
    pil = pytest.importorskip("PIL.Image")
    model, folder = models.write(tmp_path, models.COLOUR_CLASSIFIER), tmp_path / "photographs"
    for number in range(128):
        name = "red" if number >= 112 else "green"
        pixels = np.random.default_rng(number).integers(0, 99, (8, 8, 3), dtype=np.uint8)
        pixels[..., ("red", "green").index(name)] += 150
        (folder / name).mkdir(parents=True, exist_ok=True)
        pil.fromarray(pixels).save(folder / name / f"{number:03}.png")
    wrong = card("BGR", labels=["red", "green", "blue"])
    bundle = edgekit.build(model, targets=["ort"], card=wrong, samples=folder / "**")
    assert bundle.manifest["samples"]["labels"]["better"] == (
        'inputs.image: colour = "RGB": top-1 is 1.000 instead of 0.875 on the same samples (sign test on '
        "128, p = 9.2e-05)"
    )


def test_eight_samples_do_not_stop_a_card_that_is_half_right(tmp_path: Path) -> None:
    model, folder = (
        models.write(tmp_path, models.COLOUR_CLASSIFIER),
        photographs(tmp_path / "photographs", count=8),
    )
    lines = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text(
        "\n".join([*lines[:4], *(re.sub(",.*", ",1", line) for line in lines[4:])])
    )
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=folder)
    assert bundle.manifest["samples"]["labels"]["right"] == 3


def test_labels_of_another_numbering_or_model_do_not_blame_the_card(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.COLOUR_CLASSIFIER)
    shifted = photographs(tmp_path / "shifted")
    text = (shifted / "labels.csv").read_text()
    (shifted / "labels.csv").write_text(
        re.sub(r",([02])$", lambda one: f",{(int(one[1]) + 1) % 3}", text, flags=re.M)
    )
    only_red = [line for line in (shifted / "labels.csv").read_text().splitlines() if not line.endswith(",0")]
    for path in shifted.glob("*.png"):
        if not any(line.startswith(f"{path.name},") for line in only_red):
            path.unlink()
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=shifted)
    assert (
        "the labels may number the classes in another way: 12 are right with class numbers shifted by -1"
        in (bundle.report)
    )
    other = photographs(tmp_path / "other", shift=5)
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=other)
    unused = "they have a class number of 7, but the model has 3 classes"
    assert bundle.manifest["samples"]["labels"] == {"unused": unused}
    assert f"labels of the samples were not used: {unused}" in bundle.report


def test_no_variant_is_scored_on_labels_of_another_model(tmp_path: Path) -> None:
    model, folder = models.write(tmp_path, models.COLOUR_CLASSIFIER), photographs(tmp_path / "photographs", 5)
    bundle = edgekit.build(model, targets=["ort"], precision="int8", force=True, card=card(), samples=folder)
    assert "unused" in bundle.manifest["samples"]["labels"]
    assert any("agreement" in variant.evidence for variant in bundle.variants)
    assert not any("task" in variant.evidence for variant in bundle.variants)
    assert "top-1 0" not in bundle.report


def test_labels_that_are_malformed_do_not_end_a_float_build(tmp_path: Path) -> None:
    model, folder = models.write(tmp_path, models.COLOUR_CLASSIFIER), photographs(tmp_path / "photographs")
    (folder / "labels.csv").write_text("file,class_index\n0.png,0\n")
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=folder)
    assert "23 of 24 samples have no label" in bundle.manifest["samples"]["labels"]["unused"]


def test_force_without_photographs_is_refused(tmp_path: Path) -> None:
    model, samples = (
        models.write(tmp_path, models.COLOUR_CLASSIFIER),
        [{"image": np.zeros((1, 3, 8, 8), "f4")}],
    )
    refusal = "force=True applies to int8 and to a card with photographs or labels; leave it out"
    with pytest.raises(UsageError, match=re.escape(refusal)):
        edgekit.build(model, targets=["ort"], card=card(), samples=samples, force=True)


@pytest.mark.needs_shared
@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (
            (r"^std = .*", "std = [255, 255, 255]"),
            "inputs.images.std is [255.0, 255.0, 255.0], not [1.0, 1.0, 1.0] as edgekit model card drafts it",
        ),
        (
            ('decode = "yolox"', 'decode = "yolov5"'),
            'task.decode is "yolov5", not "yolox" as edgekit model card drafts it',
        ),
    ],
)
def test_the_line_of_a_detectors_card_that_is_wrong_is_named(
    tmp_path: Path, shared: Path, pattern: tuple[str, str], line: str
) -> None:
    model = shared / "models/yolox_nano.onnx"
    changed = re.sub(*pattern, str(draft_card(model)), flags=re.M)
    (tmp_path / "card.toml").write_text(changed)
    samples = shared / "data/coco128/val/images/00000000[01]*.jpg"
    with pytest.raises(CardError) as refused:
        edgekit.build(model, targets=["ort"], card=tmp_path / "card.toml", samples=samples, trusted=True)
    assert f"most likely wrong: {line}: mAP is 0." in str(refused.value)


def test_a_colour_that_labels_do_not_decide_is_checked_by_certainty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_trial, "check_colour", Mock(return_value="the model is surer of 30 photographs"))
    model, folder = models.write(tmp_path, models.COLOUR_CLASSIFIER), photographs(tmp_path / "photographs")
    bundle = edgekit.build(model, targets=["ort"], card=card(), samples=folder, trusted=True)
    assert bundle.manifest["samples"]["labels"]["better"] == "the model is surer of 30 photographs"
