"""A bundle and a model on labelled photographs: pixels of which the brightest value is the class."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.errors import MissingDependency, SampleError, UsageError
from tests.fixtures.cards import card
from tests.fixtures.classifiers import classifiers, write_card
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call
from tests.fixtures.graphs import Graph

pytestmark = pytest.mark.needs_ort
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
    card = write_card(tmp_path)
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
    (tmp_path / "labels.csv").write_text("file,class_index\n0.png,6\n")
    shutil.copy(photographs / "0/0.png", tmp_path / "0.png")
    with pytest.raises(SampleError, match="has a class number of 6, but the model has 6 classes"):
        edgekit.evaluate(bundle, tmp_path)


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


ELSEWHERE = pytest.mark.skipif(sys.platform == "darwin", reason="Core ML itself runs it")
EMULATED = "small-coreml-fp32.mlpackage was not run on Apple hardware, but by an emulation of it"


@pytest.mark.parametrize(
    ("target", "suffix", "notes"),
    [
        pytest.param("openvino", ".xml", [], marks=pytest.mark.needs_openvino),
        pytest.param(
            "coreml", ".mlpackage", [EMULATED],
            marks=[pytest.mark.needs_coreml, ELSEWHERE],
        ),
    ],
)  # fmt: skip
def test_an_exported_file_is_run_as_it_is(
    bundle: Path, photographs: Path, call: Call, tmp_path: Path, target: str, suffix: str, notes: list[str]
) -> None:
    card = write_card(tmp_path)
    built = edgekit.build(
        bundle.with_suffix(".onnx"), targets=[target], card=card, precision="fp32", trusted=True
    )
    built.export(f"{target}-fp32", tmp_path)
    path = tmp_path / f"small-{target}-fp32{suffix}"
    found = edgekit.evaluate(path, photographs, card=card)
    assert [(row.variant, row.status) for row in found.variants] == [(path.name, "evaluated")]
    assert found.variants[0].score == pytest.approx((10 / 12, 0.5159, 0.9791), abs=1e-4)
    assert list(found.notes) == notes
    options = ("--card", card, "--samples", photographs)
    assert call("evaluate", path, *options, "--engine", "ort").stderr == (
        f"error: {path} is a file of {target}, not of ort; leave --engine out\n"
    )


PERSON = [4, 4, 4, 4, 0.9, 3, 3, 0.9, 5, 5, 0.9]
"""A box from 2 to 6 with two keypoints."""


@pytest.mark.parametrize(
    ("task", "outputs", "labels", "metric", "expected"),
    [
        ({"kind": "pose", "decode": "yolov8", "keypoints": ["a", "b"]},
         {"predictions": [[[x] for x in PERSON]]},
         {"a.txt": "0 .5 .5 .5 .5 .375 .375 2 .625 .625 2"}, "OKS mAP", 1),
        ({"kind": "obb", "decode": "yolov8", "labels": ["ship"]},
         {"predictions": [[[x] for x in (4, 4, 4, 2, 0.9, 0)]]},
         {"a.txt": "0 .25 .375 .75 .375 .75 .625 .25 .625"}, "mAP of oriented boxes", 1),
        ({"kind": "segment-instances", "decode": "yolov8", "labels": ["ship"]},
         {"predictions": [[[x] for x in (4, 4, 4, 4, 0.9, 1)]], "prototypes": np.ones((1, 1, 8, 8))},
         {"a.txt": "0 .25 .25 .75 .25 .75 .75 .25 .75"}, "mask mAP", 1),
        ({"kind": "matting", "decode": "alpha"}, {"alpha": np.full((1, 1, 8, 8), 0.75)},
         {"a_alpha.png": np.full((8, 8), 255, np.uint8)}, "MAD of alpha", 0.25),
        ({"kind": "depth", "decode": "metric"}, {"depth": np.full((1, 8, 8), 2.2)},
         {"a_depth.png": np.full((8, 8), 2000, np.uint16)}, "abs. rel. error of depth", 0.1),
    ],
)  # fmt: skip
def test_a_model_of_each_task(
    tmp_path: Path,
    task: dict[str, Any],
    outputs: dict[str, Any],
    labels: dict[str, Any],
    metric: str,
    expected: float,
) -> None:
    image = pytest.importorskip("PIL.Image")
    graph = Graph({"image": [1, 3, 8, 8]})
    zero = graph("Mul", graph("ReduceMean", "image", keepdims=0), np.array(0, np.float32))
    names = {role: graph("Add", zero, np.array(values, np.float32)) for role, values in outputs.items()}
    path = tmp_path / "model.onnx"
    ir.save(graph.model(tmp_path, *names.values()), path)
    folder = tmp_path / "val"
    folder.mkdir()
    image.new("RGB", (8, 8)).save(folder / "a.jpg")
    for name, content in labels.items():
        if isinstance(content, str):
            (folder / name).write_text(content)
        else:
            image.fromarray(content).save(folder / name)
    evaluation = edgekit.evaluate(path, folder, card=card({**task, "outputs": names}))
    (row,) = evaluation.variants
    assert evaluation.metric == metric
    assert row.score is not None, row.status
    assert row.score.value == pytest.approx(expected, abs=1e-3)
