"""Samples side by side: the float model's answer and the variants', the worst disagreements first."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import edgekit
from edgekit.bundle import Bundle
from edgekit.errors import SampleError, UsageError
from edgekit.processing.card import parse_card
from edgekit.report.answers import answers_of
from edgekit.report.page import page_of
from tests.fixtures import models

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_tflite]

IMAGE = {"kind": "image", "shape": [1, 3, 16, 16], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
TASK = {
    "kind": "classify",
    "decode": "probabilities",
    "outputs": {"scores": "scores"},
    "labels": ["<b>cat</b>", "dog", "bird", "fish"],
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    model = models.write(tmp_path_factory.mktemp("model"), models.SMALL_CNN)
    card = parse_card({"title": "small", "inputs": {"image": IMAGE}, "task": TASK})
    return edgekit.build(model, targets=["ort", "tflite"], card=card)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 60, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


def test_every_sample_has_the_answers_of_the_float_model_and_of_the_others(
    bundle: Bundle, pictures: Path
) -> None:
    answers = answers_of(bundle, str(pictures))
    assert sorted(sample.name for sample in answers.samples) == ["0.png", "1.png", "2.png"]
    for sample in answers.samples:
        assert sample.disagreement == "worst top-1 agreement 1.000"
        first, second = sample.answers
        assert {first.variant, second.variant} == {"ort-fp32", "tflite-fp32"}
        assert (first.summary, second.summary) == ("the float model", "top-1 agreement 1.000")
        shown = Image.open(io.BytesIO(base64.b64decode(first.picture)))
        assert (shown.format, shown.size) == ("WEBP", (first.width, first.height)) == ("WEBP", (60, 40))
    assert answers.missing == ()


def test_the_worst_disagreement_comes_first(
    bundle: Bundle, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgekit.report import answers as module

    run = module._run

    def spoiled(bundle: Bundle, variant: edgekit.Variant, frames: list[np.ndarray]) -> object:
        outputs, placed = run(bundle, variant, frames)
        if variant.name == "tflite-fp32":  # it answers the second picture wrongly
            outputs[1] = {name: array[..., ::-1].copy() for name, array in outputs[1].items()}
        return outputs, placed

    monkeypatch.setattr(module, "_run", spoiled)
    reference = run(bundle, bundle.variants[0], [])
    assert reference == ([], [])
    assert answers_of(bundle, str(pictures)).samples[0].name == "1.png"


@pytest.mark.needs_report
def test_labels_are_escaped_on_the_page(bundle: Bundle, pictures: Path) -> None:
    page = page_of(bundle, answers=answers_of(bundle, str(pictures)))
    assert "<b>cat</b>" not in page
    assert page.count('src="data:image/webp;base64,') == 6


def test_where_there_are_no_answers_it_is_said(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"^no samples at "):
        answers_of(bundle, str(tmp_path))
    model = models.write(tmp_path, models.SMALL_CNN)
    with pytest.raises(UsageError, match=r"has no card"):
        answers_of(edgekit.build(model, targets=["ort"]), str(tmp_path))
    card = parse_card({"title": "small", "inputs": {"image": IMAGE}})
    with pytest.raises(UsageError, match=r"^--samples: the card of .* has no task, so it has no answers"):
        answers_of(edgekit.build(model, targets=["ort"], card=card), str(tmp_path))
