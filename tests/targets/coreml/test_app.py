"""The package for apps: read back through coremltools, run by the reference executor on raw pixels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_coreml.app_check import opened
from edgekit_coreml.package import MANIFEST, SPECIFICATION
from edgekit_coreml.vendor import coremltools

import edgekit
from edgekit.errors import CardError, UsageError
from edgekit.processing.card import parse_card
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from edgekit.tensor_spec import Array, Json, TensorSpec
from tests.fixtures.models import write

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

WEIGHTS = np.random.default_rng(3).standard_normal((4, 3, 3, 3)).ravel()
CLASSIFIER = f"""
<ir_version: 10, opset_import: ["": 23]>
pictures (float[1,3,8,8] image) => (float[1,4] scores)
<float[4,3,3,3] w = {{{",".join(f"{v:.5f}" for v in WEIGHTS)}}}, int64[2] axes = {{2, 3}}>
{{
    [stem] c = Conv<pads=[1,1,1,1]>(image, w)
    [act] r = Relu(c)
    [pool] scores = ReduceMean<keepdims=0>(r, axes)
}}
"""
CARD: dict[str, Json] = {
    "title": "Birds",
    "about": {"author": "A. Author", "license": "MIT", "version": "1.2", "description": "Names birds."},
    "inputs": {
        "image": {
            "kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "BGR",
            "resize": "center-crop", "mean": [103.5, 116.3, 123.7], "std": [57.4, 57.1, 58.4],
        }
    },
    "task": {
        "kind": "classify", "decode": "logits", "outputs": {"scores": "scores"},
        "labels": ["crane", "", "crane", "owl"],
    },
}  # fmt: skip
FRAME = np.random.default_rng(1).integers(0, 256, (8, 8, 3)).astype(np.uint8)


def exported(
    text: str, card: dict[str, Json], folder: Path, device: str = "coreml", precision: str = "fp16"
) -> tuple[Any, Any, edgekit.Bundle]:
    """The specification by coremltools, the program in our executor, and the bundle."""
    folder.mkdir(exist_ok=True)
    bundle = edgekit.build(write(folder, text), targets=[device], precision=precision, card=parse_card(card))
    bundle.save(folder / "model.edgekit")
    written = export_variant(bundle, f"{device}-{precision}", folder / "app", metadata=True)
    title = f"model-{device}-{precision}."
    names = (path.relative_to(folder / "app").as_posix() for path in written)
    files = {
        name.replace(title, "model.", 1): path.read_bytes() for name, path in zip(names, written, strict=True)
    }
    assert {SPECIFICATION, MANIFEST} <= set(files)
    name = f"{title}mlpackage"
    package = coremltools().models.MLModel(str(folder / "app" / name), skip_model_load=True)
    return package.get_spec(), opened(files), bundle


def kinds(program: Any) -> list[str]:
    return [op.type for op in program.program.ops if op.type != "const"]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_picture_in_a_label_out(precision: str, tmp_path: Path) -> None:
    spec, program, _ = exported(CLASSIFIER, CARD, tmp_path, precision=precision)
    (image,) = spec.description.input
    assert (image.type.imageType.width, image.type.imageType.height) == (8, 8)
    assert image.type.imageType.colorSpace == type(image.type.imageType).BGR
    assert image.shortDescription == "8 x 8 pixels; with Vision: imageCropAndScaleOption = .centerCrop"
    assert [f.name for f in spec.description.output] == ["classLabel", "classLabel_probs"]
    assert spec.description.predictedFeatureName == "classLabel"
    got = program.run({"image": FRAME[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32)})
    with Session(tmp_path / "model.edgekit", engine="coreml") as session:
        classes = session.predict(FRAME)
    names = ["crane", "1", "crane 2", "owl"]
    assert got["classLabel"].item() == names[classes.indices[0]]
    by_label = got["classLabel_probs"].item()
    assert list(by_label) == names
    for index, score in zip(classes.indices, classes.scores, strict=True):
        assert by_label[names[index]] == pytest.approx(
            float(score), rel=2e-2 if precision == "fp16" else 1e-5
        )


def test_std_is_in_the_first_convolution(tmp_path: Path) -> None:
    _, program, _ = exported(CLASSIFIER, CARD, tmp_path)
    assert kinds(program)[:3] == ["cast", "sub", "conv"]
    shared = CLASSIFIER.replace(
        "[act] r = Relu(c)", "[act] r0 = Relu(c) [also] m = ReduceMean(image) [sum] r = Add(r0, m)"
    )
    assert kinds(exported(shared, CARD, tmp_path / "b")[1])[:4] == ["cast", "sub", "mul", "conv"]


def test_what_the_card_tells_of_its_maker(tmp_path: Path) -> None:
    metadata = exported(CLASSIFIER, CARD, tmp_path)[0].description.metadata
    assert (metadata.author, metadata.license, metadata.versionString, metadata.shortDescription) == (
        "A. Author", "MIT", "1.2", "Names birds.",
    )  # fmt: skip
    assert json.loads(metadata.userDefined["edgekit.names"])["r"] == "r"


def test_channels_last_and_integers(tmp_path: Path) -> None:
    text = """
    <ir_version: 10, opset_import: ["": 23]>
    grey (int8[1,4,6,1] x) => (float[1,4,6,1] y)
    <float s = {0.5}, int8 z = {-3}> { y = DequantizeLinear(x, s, z) }
    """
    image = {"kind": "image", "shape": [1, 4, 6, 1], "layout": "NHWC", "colour": "GREY", "resize": "stretch",
             "mean": [128], "dtype": "int8"}  # fmt: skip
    spec, program, _ = exported(text, {"title": "Grey", "inputs": {"x": image}}, tmp_path, precision="fp32")
    assert spec.description.input[0].type.imageType.colorSpace == 10  # GRAYSCALE
    pixels = np.arange(24, dtype=np.float32).reshape(1, 1, 4, 6) * 10
    (got,) = program.run({"x": pixels}).values()
    np.testing.assert_allclose(got, ((pixels - 128 + 3) * 0.5).transpose(0, 2, 3, 1))


def test_arrays_are_float16_where_the_program_is(tmp_path: Path) -> None:
    tensor = {"title": "Array", "inputs": {"image": {"kind": "tensor", "shape": [1, 3, 8, 8]}}}
    spec, program, _ = exported(CLASSIFIER, tensor, tmp_path)
    kinds_of = [f.type.multiArrayType.dataType for f in (*spec.description.input, *spec.description.output)]
    assert kinds_of == [65552, 65552]  # FLOAT16
    assert "cast" not in kinds(program)
    old = exported(CLASSIFIER, tensor, tmp_path / "old", device="ios-15")[0]
    assert old.description.input[0].type.multiArrayType.dataType == 65568  # FLOAT32: iOS 15 has no other


RECURRENT = """
<ir_version: 10, opset_import: ["": 23]>
sums (float[1,4] x, float[1,4] state) => (float[1,4] y, float[1,4] next)
<float half = {0.5}>
{
    decayed = Mul(state, half)
    next = Add(decayed, x)
    y = Tanh(next)
}
"""
REMEMBERS: dict[str, Json] = {
    "title": "Sums",
    "inputs": {name: {"kind": "tensor", "shape": [1, 4]} for name in ("x", "state")},
    "states": {"state": "next"},
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_state_stays_in_core_ml(precision: str, tmp_path: Path) -> None:
    spec, program, _ = exported(RECURRENT, REMEMBERS, tmp_path, "iphone-12", precision)
    assert [f.name for f in spec.description.input] == ["x"]
    assert [f.name for f in spec.description.output] == ["y"]
    (state,) = spec.description.state
    assert (state.name, list(state.type.stateType.arrayType.shape)) == ("state", [1, 4])
    held: Array = np.zeros((1, 4), np.float32)
    x: Array = np.array([[0.1, -0.2, 0.3, 1]], program.program.inputs["x"].dtype)
    for _ in range(3):
        held = held / 2 + x
        np.testing.assert_allclose(program.run({"x": x})["y"], np.tanh(held), rtol=4e-3)


def test_a_state_needs_ios_18(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        exported(RECURRENT, REMEMBERS, tmp_path, "coreml")
    assert str(caught.value) == "state state needs iOS 18, but the package is for iOS 16"


def test_a_state_that_is_no_output_like_it() -> None:
    card = parse_card({**REMEMBERS, "states": {"state": "x"}})
    specs = [TensorSpec(name, "float32", (1, 4)) for name in ("x", "state")]
    with pytest.raises(
        CardError,
        match=r"Sums: states.state is 'x', which is not an output with the shape and dtype of state",
    ):
        card.check(specs, [TensorSpec("next", "float32", (1, 4))])


def test_what_answers_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgekit_coreml import app

    monkeypatch.setattr(app, "_fold_std", lambda *_: True)  # as if the weights were divided
    with pytest.raises(UsageError, match="the package for apps differs"):
        exported(CLASSIFIER, {k: v for k, v in CARD.items() if k != "task"}, tmp_path)


def test_other_targets_and_bundles_without_a_card(tmp_path: Path) -> None:
    bundle = edgekit.build(write(tmp_path, CLASSIFIER), targets=["ort", "coreml"])
    with pytest.raises(UsageError, match=r"^ort embeds no metadata; export ort-fp32 without --metadata$"):
        export_variant(bundle, "ort-fp32", tmp_path / "a", metadata=True)
    with pytest.raises(
        UsageError, match=r"^the bundle has no card, which --metadata needs; build it with --card$"
    ):
        export_variant(bundle, "coreml-fp32", tmp_path / "b", metadata=True)


def test_from_the_command_line(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from edgekit.cli import main

    exported(CLASSIFIER, CARD, tmp_path)
    arguments = [
        "export",
        str(tmp_path / "model.edgekit"),
        "coreml-fp16",
        "-o",
        str(tmp_path / "again"),
        "--metadata",
    ]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    specification = SPECIFICATION.replace("model.", "model-coreml-fp16.", 1)
    again, before = ((tmp_path / name / specification).read_bytes() for name in ("again", "app"))
    assert again == before
