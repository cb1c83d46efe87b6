from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from edgekit.cli.command_group import all_verbs
from edgekit.cli.doctor import EngineCheck, EngineStatus
from edgekit.compiler.evaluate.verify_bundle import Check, CheckOutcome
from tests.fixtures import models
from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


def test_build_ends_in_what_to_use_and_three_commands(model: Path, call: Call, tmp_path: Path) -> None:
    result = call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit")
    assert result.exit_code == 0
    header, row, *_, tried, shown, shipped = result.stdout.splitlines()
    assert header.split() == ["use", "variant", "time", "speed", "size", "kept", "(min)"]
    assert row.split()[:2] == ["fastest", "ort-fp32"]
    file = tmp_path / "m.edgekit"
    assert tried == f"  try:    edgekit bench {file}"
    assert shown == f"  show:   edgekit report {file} -o {tmp_path / 'm.html'}"
    assert shipped.startswith(f"  ship:   edgekit verify {file}  ")
    assert [line.split()[0] for line in result.stderr.splitlines() if line] == [
        "opened",
        "checked",
        "reference",
        "compiled",
        "timed",
    ]


def test_quiet_prints_only_the_answer(model: Path, call: Call, tmp_path: Path) -> None:
    result = call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", "-q")
    assert result.stderr == ""
    assert "try:" not in result.stdout


def test_build_json_is_one_object(model: Path, call: Call, tmp_path: Path) -> None:
    found = answer(call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", "--json"))
    assert found["manifest"]["variants"][0]["status"].startswith("verified on ONNX Runtime")
    assert found["size_bytes"] == (tmp_path / "m.edgekit").stat().st_size


@pytest.mark.needs_tflite
def test_what_io_asks_for_is_what_export_writes(model: Path, call: Call, tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    path = tmp_path / "m.edgekit"
    layouts = ["--io", "nhwc", "--io", "features=nchw"]
    found = answer(call("build", model, "-t", "tflite", *layouts, "-o", path, "--json"))
    assert found["manifest"]["options"]["io"] == {"image": "nhwc"}
    assert found["manifest"]["variants"][0]["status"].startswith("verified")
    assert call("export", path, "tflite-fp32", "-o", tmp_path / "raw").exit_code == 0
    interpreter = Interpreter(model_path=str(tmp_path / "raw" / "model-tflite-fp32.tflite"))
    assert [d["shape"].tolist() for d in interpreter.get_input_details()] == [[1, 16, 16, 3]]
    assert [d["shape"].tolist() for d in interpreter.get_output_details()] == [[1, 4], [1, 4, 16, 16]]
    assert call("verify", path).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["-t", "ort", "-o", "m.edgekit", "--io", "=nhwc"],
            "Error: Invalid value for '--io': '=nhwc' is not of the form [NAME=]nhwc|uint8|int8",
        ),
        (
            ["-t", "ort", "-o", "m.edgekit", "--io", "nhwc"],
            "error: ort does not support --io nhwc; it supports nchw, uint8",
        ),
        (
            ["-o", "m.edgekit"],
            "error: no target given: use -t at least once, e.g. -t ort -t tflite (run edgekit targets",
        ),
        (
            ["-t", "ort", "-o", "absent/m.edgekit"],
            "error: absent is not a folder; can't write the bundle there",
        ),
        (
            ["-t", "orb", "-o", "m.edgekit"],
            "error: unknown target 'orb'; did you mean ort? ",
        ),
        (
            ["-t", "ort", "-o", "m.edgekit", "--samples", "absent"],
            "error: no samples at absent: nothing found; pass a folder or a",
        ),
    ],
)
def test_wrong_use_of_build(model: Path, call: Call, arguments: list[str], message: str) -> None:
    result = call("build", model, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("verb", "said"),
    [
        ("build", "error: stopped; nothing was written; run the same command again to continue\n"),
        ("check", "error: stopped\n"),
    ],
)
def test_ctrl_c(model: Path, call: Call, monkeypatch: pytest.MonkeyPatch, verb: str, said: str) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edgekit.compiler.pipeline.stages.open_source_model", stop)
    monkeypatch.setattr("edgekit.compiler.pipeline.check.import_source", stop)
    output = ["-o", "m.edgekit"] if verb == "build" else []
    result = call(verb, model, "-t", "ort", *output)
    assert result.exit_code == 130
    assert result.stderr.endswith(said)


def test_a_file_that_is_no_model(call: Call, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"nothing of the kind")
    result = call("build", tmp_path / "m.onnx", "-t", "ort", "-o", tmp_path / "m.edgekit")
    assert result.exit_code == 2
    assert result.stderr == (
        "error: m.onnx: is not an ONNX model: it is a text file: pass the file of the model\n"
        "  nothing was written\n"
    )
    assert not (tmp_path / "m.edgekit").exists()


def test_an_error_in_json(call: Call, tmp_path: Path) -> None:
    result = call("inspect", tmp_path / "absent.edgekit", "--json")
    assert result.exit_code == 2
    assert answer(result)["error"]["message"] in result.stderr


def test_check_says_yes_and_no(model: Path, call: Call, tmp_path: Path) -> None:
    result = call("check", model, "-t", "ort")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "  model.onnx can be built for ort"
    noise = models.write(tmp_path, models.RANDOM, "noise.onnx")
    result = call("check", noise, "-t", "tflite", "--json")
    assert result.exit_code == 1
    assert [f["code"] for f in answer(result)["findings"]] == ["EK1001"]


def test_inspect(bundle: Path, call: Call) -> None:
    result = call("inspect", bundle)
    assert result.exit_code == 0
    assert "  input     image float32 1x3x16x16" in result.stdout.splitlines()
    assert "model.onnx  opset 17, 7 nodes" in result.stdout


@pytest.mark.parametrize("words", [["inspect"], ["bench", "--seconds", "0.05"]])
def test_a_damaged_entry_is_named(words: list[str], bundle: Path, call: Call) -> None:
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    result = call(*words, bundle)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {bundle} is damaged\n  entry ")


def test_verify(bundle: Path, call: Call) -> None:
    result = call("verify", bundle, "--json")
    assert result.exit_code == 0
    (check,) = answer(result)["checks"]
    assert check["status"].startswith("verified on ONNX Runtime")


def test_run_writes_the_outputs(bundle: Path, call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 16, 16), np.float32))
    result = call("run", bundle, "-i", f"image={tmp_path / 'x.npy'}", "-o", tmp_path / "out.npz")
    assert result.exit_code == 0
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_allclose(outputs["scores"].sum(), 1.0, rtol=1e-6)
    assert result.stdout.splitlines()[0].startswith("  ran       ort-fp32 on ONNX Runtime")


def test_run_names_the_input_that_is_missing(bundle: Path, call: Call) -> None:
    result = call("run", bundle)
    assert result.exit_code == 2
    assert result.stderr == ("error: no file was given for image float32 1x3x16x16; add -i image=FILE\n")


def test_bench_gives_percentiles(bundle: Path, call: Call) -> None:
    (found,) = answer(call("bench", bundle, "--seconds", "0.05", "--json"))["results"]
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    assert found["variant"] == "ort-fp32"


def test_bench_without_an_engine_ends_with_3(
    bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)  # as if it were not installed
    result = call("bench", bundle)
    assert result.exit_code == 3
    assert result.stderr == (
        "error: none of the bundle's engines is installed here (run edgekit targets for the pip commands)\n"
    )


def test_export_writes_the_vendor_files_once(bundle: Path, call: Call, tmp_path: Path) -> None:
    import onnxruntime

    folder = tmp_path / "raw"
    result = call("export", bundle, "ort-fp32", "-o", folder)
    assert result.exit_code == 0
    (path,) = (Path(line.strip()) for line in result.stdout.splitlines())
    assert onnxruntime.InferenceSession(str(path)).get_inputs()[0].name == "image"
    again = call("export", bundle, "ort-fp32", "-o", folder)
    assert again.stderr == f"error: {path} already exists; choose another folder. Nothing was written\n"
    wrong = call("export", bundle, "ort-int4", "-o", folder)
    assert wrong.stderr == "error: unknown variant 'ort-int4'; available: ort-fp32\n  nothing was written\n"


def test_targets_and_doctor(call: Call) -> None:
    rows = answer(call("targets", "--json"))["targets"]
    assert {"ort", "openvino", "tflite"} <= {row["target"] for row in rows}
    found = answer(call("doctor", "--json"))
    assert next(row for row in found["engines"] if row["target"] == "ort")["status"] == "ok"
    assert found["cores"] >= 1
    assert {row["tool"] for row in found["tools"]} >= {"NVIDIA's compiler", "NVIDIA GPU"}


@pytest.mark.parametrize("verb", sorted(all_verbs()))
def test_every_verb_is_explained(verb: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    result = call(*verb.split(), "--help")
    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert [line for line in result.stdout.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    "words",
    [
        ["build", "-t", "ort"],
        ["build", "m.onnx", "-o", "m.edgekit", "--precision", "fp8"],
        ["bench", "m.edgekit", "--threads", "0"],
        ["nonsense"],
        ["--bogus"],
    ],
)
def test_a_flag_that_does_not_fit_is_one_object_in_json(words: list[str], call: Call) -> None:
    result = call(*words, "--json")
    assert result.exit_code == 2
    assert answer(result)["error"]["kind"] == "UsageError"
    assert answer(result)["error"]["message"] in result.stderr


def test_an_output_is_refused_before_the_work(model: Path, bundle: Path, call: Call, tmp_path: Path) -> None:
    built = call("build", model, "-t", "ort", "-o", tmp_path)
    assert built.stderr == (
        f"error: {tmp_path} is a folder; give a file name for the bundle\n  nothing was written\n"
    )
    ran = call("run", bundle, "-i", "image=absent.npy", "-o", tmp_path / "absent" / "o.npz")
    assert ran.stderr == f"error: {tmp_path / 'absent'} is not a folder; can't write the outputs there\n"
    assert (built.exit_code, ran.exit_code) == (2, 2)


def test_a_name_is_given_once(model: Path, bundle: Path, call: Call, tmp_path: Path) -> None:
    shapes = ["--shape", "image=1x3x16x16", "--shape", "image=1x3x8x8"]
    result = call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", *shapes)
    assert result.stderr.splitlines()[-2:] == [
        "error: --shape is given more than once for image",
        "  nothing was written",
    ]
    result = call("run", bundle, "-i", "image=a.npy", "-i", "image=b.npy")
    assert result.stderr == "error: -i is given more than once for image\n"


def test_run_says_in_json_what_is_not_finite(call: Call, tmp_path: Path) -> None:
    """Of a model whose own answer is so; from another, NaN is no answer."""
    logarithm = models.write(tmp_path, models.LOGARITHM)
    np.save(tmp_path / "x.npy", np.array([0.0, 1.0], np.float32))
    assert call("build", logarithm, "-t", "ort", "-o", tmp_path / "m.edgekit").exit_code == 0
    result = call("run", tmp_path / "m.edgekit", "-i", f"x={tmp_path / 'x.npy'}", "--json")
    assert result.exit_code == 0
    json.loads(result.stdout, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert answer(result)["outputs"]["y"]["not_finite"] == 1


def test_bench_refuses_a_time_that_is_none(bundle: Path, call: Call) -> None:
    for seconds in ("0", "nan", "inf"):
        result = call("bench", bundle, "--seconds", seconds)
        assert result.exit_code == 2
        assert result.stderr == f"error: seconds must be greater than 0, not {seconds}\n"


def test_a_rejected_variant_ends_with_1(
    model: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgekit.compiler.evaluate.verify.SNR_LIMITS_DB", {"fp32": 1000.0, "fp16": 1000.0})
    monkeypatch.setattr("edgekit.compiler.evaluate.verify.SATURATED_SNR_LIMIT_DB", 1000.0)
    monkeypatch.setattr("edgekit.compiler.evaluate.verify.LOWEST_LIMIT_DB", 1000.0)
    result = call(*(arguments := ["build", model, "-t", "ort", "-o", tmp_path / "m.edgekit"]))
    assert (result.exit_code, "next:" in result.stdout) == (1, False)
    assert result.stderr.endswith("\nexit code 1: the build rejected ort-fp32\n")
    assert call(*arguments, "--precision", "auto").exit_code == 0


@pytest.mark.parametrize(("outcome", "code"), list(zip(CheckOutcome, (0, 1, 3), strict=True)))
def test_verify_ends_with_what_it_found(
    bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch, outcome: CheckOutcome, code: int
) -> None:
    found = [Check("v", outcome, "on x")]
    monkeypatch.setattr("edgekit.compiler.evaluate.verify_bundle.verify_bundle", lambda opened: found)
    assert call("verify", bundle).exit_code == code


def test_a_broken_engine_makes_the_doctor_end_with_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [EngineCheck("ort", EngineStatus.BROKEN, "why")]
    monkeypatch.setattr("edgekit.cli.doctor.engines", lambda: found)
    assert call("doctor").exit_code == 1


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(
    model: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    result = call("build", model, "-t", "ort", "-o", tmp_path / "m.edgekit", "--json")
    assert result.exit_code == 2
    assert answer(result)["error"]["message"] == (
        f"can't write to {tmp_path}: Read-only file system; choose another folder for the bundle\n"
        "  nothing was written"
    )


def test_card_drafts_a_card_and_says_what_it_guessed(call: Call, model: Path, tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    result = call("model", "card", model, "-o", card)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "  task      not recognized",
        "  guessed   inputs.image.colour, inputs.image.resize, inputs.image.std",
        "",
        f"  {card}",
        f"  next: check the guessed lines, then edgekit build {model} --card {card} -t ort",
    ]
    again = call("model", "card", model, "-o", card)
    assert again.exit_code == 2
    assert again.stderr == (
        f"error: {card} already exists; give --overwrite to replace it, or another name\n"
        "  nothing was written\n"
    )
    found = call("model", "card", model, "-o", card, "--overwrite", "--json")
    assert json.loads(found.stdout)["guessed"] == [
        "inputs.image.colour",
        "inputs.image.resize",
        "inputs.image.std",
    ]
    assert call("build", model, "--card", card, "-t", "ort", "-o", tmp_path / "x.edgekit").exit_code == 0


def test_the_step_after_a_trusted_pickle_trusts_it_too(call: Call, model: Path, tmp_path: Path) -> None:
    card = tmp_path / "card.toml"
    result = call("model", "card", model, "--trust-pickle", "-o", card)
    assert result.stdout.splitlines()[-1] == (
        f"  next: check the guessed lines, then edgekit build {model} --trust-pickle --card {card} -t ort"
    )
    result = call("check", model, "--trust-pickle", "-t", "ort")
    assert f"edgekit build {model} --trust-pickle -t ort" in result.stdout


def test_card_of_no_model_writes_nothing(call: Call, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"<html>")
    result = call("model", "card", tmp_path / "model.onnx", "-o", tmp_path / "card.toml")
    assert result.exit_code == 2
    assert result.stderr.endswith("it is a web page: download the model file itself\n  nothing was written\n")
    assert not (tmp_path / "card.toml").exists()
