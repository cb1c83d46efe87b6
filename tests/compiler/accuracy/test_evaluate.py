"""A bundle and a model on labelled photographs: pixels of which the brightest value is the class."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import edgekit
from edgekit.errors import MissingDependency, SampleError, UsageError
from tests.fixtures.classifiers import CARD, classifiers
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call

pytestmark = pytest.mark.needs_ort
INPUT: Any = CARD["inputs"]["x"]  # type: ignore[index]
WRONG = 2
"""Number of photographs with a wrong label, of 12."""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return classifiers(tmp_path_factory.mktemp("models"))[0]


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    image = pytest.importorskip("PIL.Image")
    folder = tmp_path_factory.mktemp("val")
    for index in range(12):
        pixels = np.full(6, 100, np.uint8)
        pixels[index % 6] = 200
        label = (index + (index >= 12 - WRONG)) % 6
        (folder / str(label)).mkdir(exist_ok=True)
        image.fromarray(pixels.reshape(3, 1, 2).transpose(1, 2, 0).copy()).save(
            folder / f"{label}/{index}.png"
        )
    return folder


def test_a_bundle_with_its_source(bundle: Path, photographs: Path) -> None:
    found = edgekit.evaluate(bundle, photographs, source=bundle.with_suffix(".onnx"))
    source, variant = found.variants
    assert (found.metric, found.samples, found.labelled, found.reference) == ("top-1", 12, 12, "small.onnx")
    assert [row.variant for row in found.variants] == ["small.onnx", "ort-fp32"]
    assert source.score is not None
    assert source.score == variant.score
    assert source.score == pytest.approx((10 / 12, 0.5159, 0.9791), abs=1e-4)
    assert source.loss is None
    assert variant.loss is not None
    assert variant.loss == pytest.approx((0, -0.2646, 0.2646), abs=1e-4)  # 12 samples do not say more
    assert [name for name, _ in source.worst] == ["0/11.png", "5/10.png"]
    assert list(variant.worst) == []
    assert source.groups["answers"]["top-5"] == (11 / 12, 12)


def test_the_verb_takes_a_model_with_a_card(
    bundle: Path, photographs: Path, call: Call, tmp_path: Path
) -> None:
    source = bundle.with_suffix(".onnx")
    card = tmp_path / "card.toml"
    inputs = "\n".join(f"{key} = {json.dumps(value)}" for key, value in INPUT.items())
    card.write_text(
        f'title = "a classifier"\n[inputs.x]\n{inputs}\n[task]\nkind = "classify"\ndecode = "logits"\n'
        'outputs = { scores = "scores" }\ntop = 1\n'
    )
    result = call("evaluate", source, "--card", card, "--samples", photographs)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "  labels    12 samples, a folder for each class"
    assert lines[3].split() == ["small.onnx", "0.833", "0.516", "to", "0.979"]
    by_class = "  class  samples  small.onnx"
    assert by_class not in lines  # each has two samples
    assert by_class in call("evaluate", source, "--card", card, "--samples", photographs, "-v").stdout
    document = answer(call("evaluate", source, "--card", card, "--samples", photographs, "--json"))
    assert document["variants"][0]["score"] == {"value": 0.83333, "low": 0.51586, "high": 0.97914}
    without = call("evaluate", source, "--samples", photographs)
    assert without.exit_code == 2
    assert without.stderr == (
        f"error: {source} is a model, so it needs a card: add --card card.toml (edgekit model card {source} "
        "-o card.toml drafts one)\n"
    )


def test_what_can_not_be_evaluated(bundle: Path, photographs: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no variant tflite-int8; available: ort-fp32"):
        edgekit.evaluate(bundle, photographs, variant="tflite-int8")
    with pytest.raises(UsageError, match="card goes with a model; a bundle has its own card"):
        edgekit.evaluate(bundle, photographs, card="card.toml")
    with pytest.raises(SampleError, match="is not a folder; pass the folder that holds the samples"):
        edgekit.evaluate(bundle, tmp_path / "none")


@pytest.mark.needs_report
def test_the_report_has_the_tables(bundle: Path, photographs: Path, call: Call, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert call("report", bundle, "-o", page, "--labelled", photographs).exit_code == 0
    written = page.read_text("utf-8")
    assert "<h2>Accuracy on labels</h2>" in written
    assert "0.516 to 0.979" in written


def test_variants_without_an_engine_are_listed(
    bundle: Path, photographs: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = MissingDependency("onnxruntime", "running this", "pip install onnxruntime")
    monkeypatch.setattr("edgekit.compiler.accuracy.evaluate.Session", Mock(side_effect=missing))
    result = call("evaluate", bundle, "--samples", photographs)
    assert result.exit_code == 3
    assert "not run: onnxruntime is not installed, and running this needs it" in result.stdout
