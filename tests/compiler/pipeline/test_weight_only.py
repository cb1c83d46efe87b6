from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import edgekit
from edgekit.bundle.evidence import Evidence
from edgekit.bundle.variant import Status
from edgekit.compiler.pipeline.build_options import BuildOptions
from edgekit.compiler.pipeline.select_variants import select_forms
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.target import Artifact
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort

ORT = resolve(find_profile("ort"))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return models.dense_network(tmp_path)


def samples(count: int) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(0, 1, (1, 8, 8, 8)).astype(np.float32)} for _ in range(count)]


def build(model: Path, precision: str, **options: Any) -> edgekit.Bundle:
    return edgekit.build(model, **{"targets": ["ort"], "precision": precision, **options})


def test_weights_are_stored_without_samples_and_without_the_parent(model: Path) -> None:
    (made,) = build(model, "int8-weights", force=True).variants  # whatever a busy machine says of its time
    (parent,) = build(model, "fp32").variants
    assert made.name == "ort-int8-weights"
    assert made.evidence["size_bytes"] < 0.4 * parent.evidence["size_bytes"]
    assert made.evidence["executed"]["precision"] == "fp32"
    stored = made.evidence["stored_weights"]
    assert (stored["nodes"], stored["rounding"]) == (4, "nearest")
    assert made.evidence["agreement"]["value"] > 25


def test_samples_are_fitted_on_and_held_out(model: Path) -> None:
    (made,) = build(model, "int8-weights", samples=samples(12), force=True).variants
    assert made.evidence["stored_weights"]["rounding"] == "fitted"
    assert made.evidence["agreement"]["samples"] == 4
    assert made.evidence["accuracy"]["y"]["limit_db"] > 20  # what a device is held to


def test_what_is_not_good_enough_leaves_the_parent_and_the_figure(model: Path) -> None:
    parent, made = build(model, "int8-weights", max_drop="90dB").variants
    assert parent.usable
    snr_db = made.evidence["agreement"]["value"]
    assert made.status == f"rejected: SNR {snr_db:.1f} dB; 90 dB is required"


@pytest.mark.needs_tflite
def test_what_is_no_faster_is_not_fitted(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded to nearest it takes as long to run: where that is too long, no sample is looked at."""
    for ratio, rounding, agreed in ((1.01, "nearest", False), (0.5, "fitted", True)):
        monkeypatch.setattr(
            "edgekit.compiler.pipeline.weight_only.ratio_to_parent", lambda *_, ratio=ratio: ratio
        )
        monkeypatch.setattr(
            "edgekit.compiler.pipeline.select_variants.ratio_to_parent", lambda *_, ratio=ratio: ratio
        )
        found = build(model, "int8-dynamic", samples=samples(12)).variants
        made = next(v for v in found if v.name == "ort-int8-dynamic")
        assert made.evidence["stored_weights"]["rounding"] == rounding
        assert ("agreement" in made.evidence) is agreed
        assert made.usable is agreed
    assert found[0].name == "ort-fp32"


def test_of_two_ways_the_faster_one_is_left(model: Path) -> None:
    parent, made = build(model, "int8-dynamic", targets=["tflite"], force=True).variants
    assert (parent.name, made.name) == ("tflite-fp32", "tflite-int8-dynamic")
    assert made.evidence["executed"]["precision"] == "int8"
    (other,) = made.evidence["stored_weights"]["lost"]
    assert other["lost"].endswith("x the time of fp32")
    assert other["ops"] != made.evidence["stored_weights"]["ops"]


def test_nothing_large_enough(tmp_path: Path) -> None:
    parent, made = build(models.write(tmp_path, models.SMALL_CNN), "int8-dynamic").variants
    assert parent.usable
    assert made.status == "rejected: no Gemm or MatMul has 4,096 weights or more"


def test_an_engine_that_is_not_here(model: Path, no_engine: None) -> None:
    made, parent = build(
        model, "int8-dynamic"
    ).variants  # nobody can time them: what was asked for goes first
    assert (made.name, parent.name) == ("ort-int8-dynamic", "ort-fp32")
    assert made.status.startswith("not run: ")
    assert made.evidence["agreement"]["value"] > 25  # of the graph, by the reference
    assert [v.precision for v in build(model, "auto").variants] == ["fp32", "fp16"]


def test_the_same_inputs_give_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        build(model, "auto").save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def trial(
    precision: str, milliseconds: float, parent: VariantBuild | None = None, **evidence: Any
) -> VariantBuild:
    found = cast(Evidence, {"size_bytes": 1_000_000, "timing": {"min_ms": milliseconds}, **evidence})
    variant = VariantBuild(ORT, precision, parent, evidence=found)
    variant.outcome, variant.reason = Status.VERIFIED, "on ONNX Runtime"
    return variant


def outcome(precision: str, *trials: VariantBuild) -> list[tuple[str, str]]:
    return [(t.name, t.status.partition(": ")[2]) for t in select_forms(trials, BuildOptions(precision))]


def form(precision: str, milliseconds: float, parent: VariantBuild, snr_db: float = 30.0) -> VariantBuild:
    agreement = {"metric": "SNR", "value": snr_db, "unit": "dB"}
    return trial(precision, milliseconds, parent, stored_weights={"ops": ["Gemm"]}, agreement=agreement)


def test_what_brings_nothing_is_rejected() -> None:
    parent = trial("fp32", 10.0)
    parent.evidence["size_bytes"] = 4_000_000
    made = [form("int8-weights", 10.0, parent), form("int8-dynamic", 9.9, parent)]
    assert outcome("auto", parent, *made) == [
        ("ort-fp32", ""),
        (
            "ort-int8-weights",
            "1.00x the time of ort-fp32; to save space (1.0 MB instead of 4.0 MB), build it with "
            "--precision int8-weights",
        ),
        ("ort-int8-dynamic", "0.99x the time of ort-fp32"),
    ]


def test_by_name_the_size_is_what_it_is_for() -> None:
    parent = trial("fp32", 10.0)
    assert outcome("int8-weights", parent, form("int8-weights", 10.1, parent)) == [("ort-int8-weights", "")]
    slow = form("int8-weights", 10.1, parent)
    slow.reject("1.36x the time of ort-fp32")
    assert [name for name, _ in outcome("int8-weights", parent, slow)] == ["ort-fp32", "ort-int8-weights"]


def test_what_saves_nothing_is_rejected() -> None:
    parent = trial("fp32", 10.0)
    made = form("int8-weights", 10.0, parent)
    made.artifact = Artifact({"model.onnx": b"more"})
    made.evidence["size_bytes"] = 1_200_000
    assert outcome("int8-weights", parent, made) == [
        ("ort-fp32", ""),
        ("ort-int8-weights", "it saves no space: 1.2 MB, while fp32 has 1.0 MB"),
    ]


@pytest.mark.parametrize(
    ("int8_ms", "int8_db", "status"),
    [(6.0, 31.0, "ort-int8 is faster and as accurate"), (6.0, 29.0, ""), (8.5, 31.0, "")],
)
def test_int8_that_is_faster_and_no_worse_is_enough(int8_ms: float, int8_db: float, status: str) -> None:
    parent = trial("fp32", 10.0)
    score = {"metric": "SNR", "value": int8_db, "unit": "dB"}
    int8 = trial("int8", int8_ms, parent, quantization={}, agreement=score)
    assert outcome("auto", parent, int8, form("int8-dynamic", 8.0, parent))[-1] == (
        "ort-int8-dynamic",
        status,
    )


def test_another_kind_of_processor_tells_nothing_of_time() -> None:
    parent = trial("fp32", 10.0)
    parent.target = resolve(find_profile("rpi5"))
    made = form("int8-dynamic", 12.0, parent)
    made.target = parent.target
    assert outcome("int8-dynamic", parent, made)[-1] == ("rpi5-int8-dynamic", "")
