from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.compiler.pipeline.build_bundle import Stage
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import BASELINE
from edgekit.errors import SampleError, UnsupportedError, UsageError
from edgekit.processing.card import parse_card
from edgekit.target import Artifact, TargetInfo, registry
from tests.compiler.quantize.search import planted
from tests.fixtures import models
from tests.fixtures.command_line import Call

pytestmark = pytest.mark.needs_ort


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for the module: a search is done once, and found again by the other tests."""
    return tmp_path_factory.mktemp("searches")


@pytest.fixture
def model(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(cache))
    return planted.sound(tmp_path)


def build(model: Path, **options: Any) -> edgekit.Bundle:
    given = {"targets": ["ort"], "precision": "int8", "samples": planted.samples(12), "time_budget": 600}
    return edgekit.build(model, **{**given, **options})


@pytest.fixture(scope="module")
def built(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[edgekit.Bundle, list[Stage]]:
    """The bundle that the options of :func:`build` give, and the stages of its build."""
    stages: list[Stage] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEKIT_CACHE", str(cache))
        model = planted.sound(tmp_path_factory.mktemp("built"))
        return build(model, progress=stages.append), stages


def test_int8_is_faster_and_proved_and_its_parent_travels_with_it(
    built: tuple[edgekit.Bundle, list[Stage]],
) -> None:
    bundle, stages = built
    parent, int8 = bundle.variants
    assert (parent.name, int8.name) == ("ort-fp32", "ort-int8")
    assert int8.status.startswith("verified on ONNX Runtime")
    evidence = int8.evidence
    faster = evidence["timing"]["min_ms"] < parent.evidence["timing"]["min_ms"]
    assert faster or evidence["timing"]["ratio"] < 1  # the two alone, where the first runs were disturbed
    assert evidence["quantization"]["samples"] == {"fit": 6, "choose": 2, "prove": 4, "not_held_out": []}
    assert evidence["quantization"]["float"] == {"count": 0, "names": []}
    assert evidence["agreement"]["metric"] == "SNR"
    assert evidence["agreement"]["samples"] == 4
    assert evidence["agreement"]["value"] > 22  # of the worst channel
    assert evidence["executed"]["precision"] == "int8"
    tried = evidence["search"]["tried"]
    assert [each["choice"] for each in tried] == [
        "all, l4, nearest",
        "all, l4, gptq, bias",
        "all, minmax, nearest",
    ]
    (shipped,) = (each for each in tried if each["lost"] == "")
    assert shipped["recipe"] == evidence["quantization"]["recipe"]
    assert tried[2]["lost"].endswith(f"{shipped['choice']} is better and as fast")
    ended = {s.name: s.detail for s in stages if s.seconds is not None}
    assert ended["calibrated"] == "samples: 6 calibration, 2 validation, 4 test"
    assert ended["searched"] == "int8 variants kept: 1"


def test_a_device_is_held_to_what_the_golden_vector_showed(
    built: tuple[edgekit.Bundle, list[Stage]],
) -> None:
    (error,) = built[0].variants[1].evidence["accuracy"].values()
    assert 15 < error["limit_db"] < error["snr_db"]


def test_the_same_inputs_give_the_same_bytes(model: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        build(model).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_search_is_done_once(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(model)

    def again(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(Candidates, "measure", again)
    assert build(model, time_budget=601).variants[1].name == "ort-int8"


def test_a_search_that_had_no_time_says_so(model: Path) -> None:
    bundle = build(model, precision="auto", time_budget=0, max_drop="90dB")
    int8 = next(v for v in bundle.variants if v.precision == "int8")
    left_out = int8.evidence["search"]["left_out"]
    tried = len(int8.evidence["search"]["tried"])
    assert left_out > 0
    assert (
        f"{tried} of {tried + left_out} int8 candidates measured within 0 s, none good enough; "
        "build again with time_budget=30 for the rest"
    ) in bundle.report


def test_few_samples_are_called_few(model: Path, built: tuple[edgekit.Bundle, list[Stage]]) -> None:
    text = ", or on all where there were too few to hold some out: use 64 to 128"
    assert text in build(model, samples=planted.samples(2), force=True).report
    assert text not in built[0].report


def test_what_won_is_compiled_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "empty"))
    compile_model = registry.compiler("ort").compile_model
    compiled: list[Artifact] = []

    def counted(*given: Any) -> Artifact:
        compiled.append(compile_model(*given))
        return compiled[-1]

    monkeypatch.setattr(registry.compiler("ort"), "compile_model", counted)
    bundle = build(model)
    int8 = bundle.variants[1]
    assert int8.name == "ort-int8"
    assert len(compiled) == 1 + len(int8.evidence["search"]["tried"])


ONE_MINUS_SIGMOID = """
<ir_version: 8, opset_import: ["": 17]>
gate (float[1,3,8,8] x) => (float[1,3,8,8] y)
<float[3,3,1,1] w = {1,-0.5,0.25, 0,1,0.5, -1,0.5,1}, float one = {1}>
{
    a = Conv(x, w)
    s = Sigmoid(a)
    d = Sub(one, s)
    y = Conv(d, w)
}
"""


@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
@pytest.mark.needs_coreml
def test_a_constant_without_axes_is_quantized(tmp_path: Path) -> None:
    path = models.write(tmp_path, ONE_MINUS_SIGMOID)
    given = [{"x": np.random.default_rng(n).normal(size=(1, 3, 8, 8)).astype(np.float32)} for n in range(12)]
    targets = ["tflite", "openvino", "coreml", "tensorrt"]
    bundle = build(path, targets=targets, samples=given, time_budget=0, force=True)
    int8 = {v.profile: v for v in bundle.variants if v.precision.startswith("int8")}
    assert list(int8) == targets
    assert all(v.evidence["agreement"]["value"] > 25 for v in int8.values())


@pytest.mark.parametrize("precision", ["int8", "auto", "int8-weights"])
def test_samples_that_hold_one_value_are_refused(model: Path, precision: str) -> None:
    zeros = [{"x": np.zeros_like(planted.samples(1)[0]["x"])} for _ in range(2)]
    with pytest.raises(SampleError) as error:
        build(model, samples=zeros, precision=precision, time_budget=None)
    assert str(error.value) == (
        "2 samples given: all values are the same, so they are useless for calibration and tests; use 64 "
        "to 128 typical inputs"
    )


def test_a_float_build_on_such_samples_says_so(model: Path) -> None:
    zeros = [{"x": np.zeros_like(planted.samples(1)[0]["x"])}]
    bundle = build(model, samples=zeros, precision="fp32", time_budget=None)
    assert "on 1 samples given, which are constant and prove little" in bundle.report
    assert "one_value" not in build(model, precision="fp32", time_budget=None).manifest["samples"]


def test_outputs_that_do_not_vary_prove_nothing(tmp_path: Path) -> None:
    """The bias keeps every output at zero, whatever comes in."""
    path = models.write(tmp_path, DEAD)
    given = [{"x": np.random.default_rng(n).random((1, 3, 8, 8), np.float32)} for n in range(12)]
    _, int8 = build(path, samples=given, time_budget=0).variants
    why = (
        "the float model's outputs are constant on all test samples, so int8 cannot be judged; add "
        "different samples"
    )
    assert int8.status == f"rejected: {why}"


DEAD = """
<ir_version: 8, opset_import: ["": 17]>
dead (float[1,3,8,8] x) => (float[1,3,8,8] y)
<float[3,3,1,1] w = {1,-0.5,0.25, 0,1,0.5, -1,0.5,1}, float[3] b = {-99,-99,-99}>
{
    a = Conv(x, w, b)
    y = Relu(a)
}
"""


def test_without_its_parent(model: Path) -> None:
    assert [v.name for v in build(model, fallback=False).variants] == ["ort-int8"]


def test_what_is_not_good_enough_leaves_the_float_parent_and_the_figure(model: Path) -> None:
    parent, int8 = build(model, max_drop="90dB", time_budget=0).variants
    assert parent.usable
    assert not int8.usable
    snr_db = int8.evidence["agreement"]["value"]
    assert int8.status == f"rejected: SNR {snr_db:.1f} dB; 90 dB is required"


def test_by_force_it_is_shipped_and_says_so(model: Path) -> None:
    bundle = build(model, max_drop="90dB", time_budget=0, force=True)
    int8 = bundle.variants[1]
    assert int8.usable
    assert int8.status.startswith("verified on ONNX Runtime")
    assert int8.status.endswith(" dB; 90 dB is required")
    assert ", shipped by force: SNR " in int8.status


def test_auto_tries_fp16_and_int8(model: Path) -> None:
    bundle = build(model, precision="auto", time_budget=0)
    # A second int8 is shipped where it is faster than the first by this machine's clock.
    precisions = [v.precision for v in bundle.variants if v.precision != "int8-2"]
    assert precisions == ["fp32", "fp16", "int8", "int8-weights"]


@pytest.mark.parametrize("here", [True, False])
@pytest.mark.parametrize("seconds", [0, 600])
def test_what_is_shipped_was_compared_with_rounding_to_nearest(
    model: Path, here: bool, seconds: float, request: pytest.FixtureRequest
) -> None:
    """Of the same placement and float nodes; however little time there is."""
    if not here:
        request.getfixturevalue("no_engine")
    bundle = build(model, time_budget=seconds, force=True)
    (int8,) = [v for v in bundle.variants if v.precision.startswith("int8")]
    tried = int8.evidence["search"]["tried"]
    shipped = int8.evidence["quantization"]
    (won,) = [
        row
        for row in tried
        if (row["recipe"], row["placement"]) == (shipped["recipe"], shipped["placement"]) and not row["lost"]
    ]
    (plain,) = [
        row
        for row in tried
        if row["recipe"] == asdict(BASELINE)
        and (row["placement"], row["floats"]) == (won["placement"], won["floats"])
    ]
    assert won["snr_db"] >= plain["snr_db"]


def test_for_an_engine_that_is_not_here_the_reference_chooses(model: Path, no_engine: None) -> None:
    int8, parent = build(model).variants  # what was asked for goes first: nobody can time them
    assert (int8.name, parent.name) == ("ort-int8", "ort-fp32")
    assert int8.status == (
        "not run: onnxruntime is not installed, and running needs it: pip install 'edgekit-sdk[ort]'; "
        "accuracy is that of the Q/DQ graph by the reference"
    )
    assert int8.evidence["agreement"]["value"] > 22  # of the worst channel
    tried = int8.evidence["search"]["tried"]
    assert {row["ratio"] for row in tried} == {None}
    assert {row["placement"] for row in tried} == {"all"}  # the others are the same here
    won = [row for row in tried if not row["lost"]]
    assert [row["placement"] for row in won] == [int8.evidence["quantization"]["placement"]]


def test_auto_without_samples_says_that_int8_was_not_tried(model: Path) -> None:
    bundle = build(model, precision="auto", samples=None)
    assert [v.precision for v in bundle.variants] == ["fp32", "fp16", "int8-weights"]
    assert (
        "int8 was skipped: int8 needs calibration samples: add samples with 64 to 128 typical inputs"
        in bundle.report
    )


def test_a_target_without_rules(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = registry.compiler("ort")

    class Plain:
        TARGET = TargetInfo(real.TARGET.precisions)
        check_model = staticmethod(real.check_model)
        compile_model = staticmethod(real.compile_model)

    monkeypatch.setattr(registry, "compiler", lambda name: Plain())
    with pytest.raises(UsageError) as error:
        build(model)
    assert str(error.value) == "ort has no quantization rules; use fp32, fp16 or auto"
    bundle = build(model, precision="auto")
    assert "int8 was skipped: ort has no quantization rules" in bundle.report


def test_labelled_photographs_give_the_tasks_own_metric(tmp_path: Path) -> None:
    """Red, green and blue pictures; one in four is labelled wrongly."""
    pil = pytest.importorskip("PIL.Image")
    path = models.write(tmp_path, models.COLOUR_CLASSIFIER)
    folder = tmp_path / "photographs"
    folder.mkdir()
    rows = ["file,class_index"]
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 99, (8, 8, 3), dtype=np.uint8)
        pixels[..., number % 3] += 150
        pil.fromarray(pixels).save(folder / f"{number}.png")
        rows.append(f"{number}.png,{(number + (number % 4 == 0)) % 3}")
    (folder / "labels.csv").write_text("\n".join(rows))
    image = {"kind": "image", "shape": [1, 3, 8, 8], "layout": "NCHW", "colour": "RGB", "resize": "stretch"}
    task = {"kind": "classify", "decode": "logits", "outputs": {"scores": "scores"}}
    card = parse_card({"title": "colours", "inputs": {"image": {**image, "std": [255] * 3}}, "task": task})
    bundle = build(path, samples=folder, card=card, force=True, time_budget=0, max_drop="10%")
    evidence = bundle.variants[-1].evidence
    agreement = {"metric": "top-1 agreement", "value": 1.0, "unit": "", "samples": 8}
    assert evidence["agreement"] == {**agreement, "low": pytest.approx(0.05 ** (1 / 8), abs=1e-4)}
    assert evidence["task"]["metric"] == "top-1"
    assert evidence["task"]["value"] == evidence["task"]["float"] < 1
    assert f"; top-1 of the float model {evidence['task']['float']:.3f}" in bundle.report


def test_the_command_line(model: Path, tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for number, sample in enumerate(planted.samples(12)):
        np.savez(folder / f"{number}.npz", x=sample["x"])
    common = ["build", model, "-t", "ort", "--precision", "int8", "-o", tmp_path / "m.edgekit", "--json"]
    with_samples = [*common, "--samples", folder]
    good = call(*with_samples, "--time-budget", 600, "--no-fallback")
    assert good.exit_code == 0
    found = json.loads(good.stdout)["manifest"]
    assert [v["name"] for v in found["variants"]] == ["ort-int8"]
    assert found["options"]["fallback"] is False
    bad = call(*with_samples, "--time-budget", 0, "--max-drop", "90dB")
    assert bad.exit_code == 1
    forced = call(*with_samples, "--time-budget", 0, "--max-drop", "90dB", "--force")
    assert forced.exit_code == 0
    without = call(*common)
    assert without.exit_code == 2
    assert json.loads(without.stdout)["error"]["message"] == (
        "int8 needs calibration samples: add --samples with 64 to 128 typical inputs; or use int8-weights, "
        "which needs no samples, fp32, fp16 or auto\n"
        "  nothing was written"
    )


def test_what_a_target_can_not_express_is_a_reason_in_one_line(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = registry.compiler("ort")

    class Refusing:
        TARGET = real.TARGET
        check_model = staticmethod(real.check_model)

        @staticmethod
        def compile_model(model: Any, profile: Any, precision: str) -> Any:
            if any(node.op_type == "QuantizeLinear" for node in model.graph):
                raise UnsupportedError("ort can't run the model\n  EK1001  QuantizeLinear", [])
            return real.compile_model(model, profile, precision)

    monkeypatch.setattr(registry, "compiler", lambda name: Refusing())
    monkeypatch.setattr(Candidates, "measure", Candidates._measured)  # nothing of it is remembered
    parent, int8 = build(model, time_budget=1).variants
    assert parent.usable
    assert int8.status == "rejected: ort can't run the model EK1001 QuantizeLinear"
