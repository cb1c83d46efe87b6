from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import edgekit
from edgekit.compiler.pipeline.build_bundle import Stage
from edgekit.errors import SampleError, UnsupportedError, UsageError
from edgekit.runtime import Session
from edgekit.system.python_calls import in_python
from edgekit.target import Artifact, TargetInfo, registry
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from tests.fixtures import models

pytestmark = pytest.mark.needs_ort
THREE = ["ort", "openvino", "tflite"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
def test_three_targets_verified_and_run(model: Path, tmp_path: Path) -> None:
    bundle = edgekit.build(model, targets=THREE)
    assert [v.name for v in bundle.variants] == ["ort-fp32", "openvino-fp32", "tflite-fp32"]
    assert [v.status.split(" on ")[0] for v in bundle.variants] == ["verified"] * 3
    bundle.save(tmp_path / "m.edgekit")
    feeds, expected = bundle.golden[0]
    for engine in THREE:
        with Session(tmp_path / "m.edgekit", engine=engine, strict=True) as session:
            outputs = session.run(feeds)
            assert session.active.engine.split()[0] in bundle.variants[THREE.index(engine)].evidence["engine"]
            assert list(outputs) == ["scores", "features"]
            for name, array in expected.items():
                np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
def test_the_same_inputs_give_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        edgekit.build(model, targets=THREE, precision="auto").save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_another_option_gives_another_bundle(model: Path) -> None:
    given = [{"image": np.ones((1, 3, 16, 16), np.float32)}]
    bundles = [edgekit.build(model, targets=["ort"], samples=samples) for samples in (None, given)]
    assert bundles[0].digest != bundles[1].digest
    assert bundles[1].manifest["samples"]["origin"] == "1 samples given"


def test_auto_holds_both_precisions_or_says_why_not(model: Path) -> None:
    bundle = edgekit.build(model, targets=["ort"], precision="auto")
    assert [v.precision for v in bundle.variants] == ["fp32", "fp16"]
    for variant in bundle.variants:
        assert bool(variant.files) != variant.rejected


class Tampered:
    """ONNX Runtime's compiler, but at one precision every weight of the model is 1 % larger."""

    TARGET = TargetInfo(("fp32", "fp16"))

    def __init__(self, precision: str) -> None:
        self.real, self.precision = registry.compiler("ort"), precision
        self.check_model = self.real.check_model

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        model = model.clone()
        for value in model.graph.initializers.values():
            weight = value.const_value.numpy() if value.const_value is not None else None
            if precision == self.precision and weight is not None and weight.dtype == np.float32:
                value.const_value = ir.tensor(weight * np.float32(1.01), name=value.name)
        return self.real.compile_model(model, profile, precision)


def tamper(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    compiler = Tampered(precision)
    monkeypatch.setattr(registry, "compiler", lambda name: compiler)


def test_a_wrong_variant_is_rejected_with_its_figure(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, "fp32")
    (variant,) = edgekit.build(model, targets=["ort"]).variants
    assert variant.status.startswith("rejected: output features (and 1 more): SNR 4")
    assert variant.status.endswith("dB; fp32 needs 100 dB")
    assert variant.files == {}


def test_a_rejected_fp16_leaves_its_fp32_parent(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tamper(monkeypatch, "fp16")
    bundle = edgekit.build(model, targets=["ort"], precision="fp16")
    assert [(v.precision, v.usable) for v in bundle.variants] == [("fp16", False), ("fp32", True)]


def test_an_engine_that_is_missing_leaves_a_variant_that_was_not_run(model: Path, no_engine: None) -> None:
    (variant,) = edgekit.build(model, targets=["ort"]).variants
    assert variant.status == (
        "not run: onnxruntime is not installed, and running needs it: pip install 'edgekit-sdk[ort]'"
    )
    assert variant.usable


def test_profiles_of_one_target_share_their_files(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generic = find_profile("ort")
    monkeypatch.setattr(
        "edgekit.compiler.pipeline.build_bundle.find_profile", lambda name: replace(generic, name=name)
    )
    bundle = edgekit.build(model, targets=["board-a", "board-b"])
    a, b = bundle.variants
    assert (a.name, b.name) == ("board-a-fp32", "board-b-fp32")
    assert a.files == b.files


@pytest.mark.needs_tflite
def test_an_unsupported_model_is_refused_before_anything_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = models.write(tmp_path, models.RANDOM)
    with pytest.raises(UnsupportedError) as error:
        edgekit.build(path, targets=["ort", "tflite"])
    first, finding, last = str(error.value).splitlines()
    assert first == "1 of 1 nodes of model.onnx can't run on tflite"
    assert finding.split()[:1] == ["EK1001"]
    assert "RandomUniformLike" in finding
    assert last == "nothing was written"


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (
            {"targets": []},
            UsageError,
            "targets is a list of one or more targets or profiles, e.g. ['ort', 'rpi5']",
        ),
        ({"targets": ["ort", "ort"]}, UsageError, "ort is given more than once"),
        (
            {"card": {"inputs": {}}},
            UsageError,
            "card is a dict; give the path of a TOML file, or a Card: "
            "edgekit.processing.card.parse_card makes one of a table",
        ),
        ({"samples": []}, SampleError, "samples is empty; pass at least one, or None for random samples"),
    ],
)
def test_wrong_use(model: Path, options: Mapping[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        edgekit.build(model, **{"targets": ["ort"], **options})
    assert str(raised.value) == message


def test_an_open_batch_is_1_and_the_report_says_so(tmp_path: Path) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    bundle = edgekit.build(path, targets=["ort"])
    said = (
        "not fixed in the model, so these were assumed: batch 1 of image; to choose them: --shape "
        "image=1x3x16x16"
    )
    assert bundle.inputs[0].shape == (1, 3, 16, 16)
    assert bundle.manifest["options"]["assumed_shapes"] == said
    assert f"  note      {in_python(said)}" in bundle.report.splitlines()


@pytest.mark.parametrize("name", ["image", ""])
def test_a_given_shape_is_not_assumed(tmp_path: Path, name: str) -> None:
    path = models.write(tmp_path, models.DYNAMIC)
    bundle = edgekit.build(path, targets=["ort"], shapes={name: (2, 3, 16, 16)})
    assert bundle.inputs[0].shape == (2, 3, 16, 16)
    assert "assumed_shapes" not in bundle.manifest["options"]


def test_progress_names_every_stage(model: Path) -> None:
    stages: list[Stage] = []
    edgekit.build(model, targets=["ort"], progress=stages.append)
    begun = [s.name for s in stages if s.seconds is None]
    ended = [s for s in stages if s.seconds is not None]
    assert begun == [s.name for s in ended] == ["opened", "checked", "reference", "compiled", "timed"]
    assert ended[0].detail.startswith("model.onnx  opset 17, 7 nodes -> ")
    assert ended[-2].detail.startswith("ort-fp32  verified on ONNX Runtime ")


def test_nan_in_the_source_models_outputs_is_reported(tmp_path: Path) -> None:
    """Variants that return the same NaN agree with the source model, which is what is broken."""
    path = models.write(
        tmp_path,
        """
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[1,4] x) => (float[1,4] y, float[1,4] z)
        <float[1,4] w = {1, nan, 3, 4}> { y = Mul(x, w) z = Relu(x) }
        """,
    )
    bundle = edgekit.build(path, targets=["ort"])
    assert bundle.manifest["samples"]["nan"] == {"y": 0.25}
    assert "25 % of the source model's output y is NaN" in bundle.report
