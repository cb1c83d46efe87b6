"""Model repositories of Triton, held to Triton's own protobuf schema where ``tritonclient`` is installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import edgekit
from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.release.export.export_triton import export_triton
from edgekit.runtime import Session
from tests.fixtures import models
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino]

CARD = """
title = "four classes"
[inputs.image]
kind = "image"
shape = [1, 3, 16, 16]
layout = "NCHW"
colour = "RGB"
resize = "stretch"
[task]
kind = "classify"
decode = "probabilities"
outputs = {scores = "scores"}
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "card.toml"
    path.write_text(CARD)
    made = edgekit.build(
        models.write(tmp_path, models.SMALL_CNN), targets=["ort", "openvino", "tensorrt"], card=path
    )
    return made.save(tmp_path / "m.edgekit")


def parsed(folder: Path) -> Mapping[str, Any]:
    """Name -> configuration, as Triton reads it."""
    schema = pytest.importorskip(
        "tritonclient.grpc.model_config_pb2", reason="no schema (pip install 'tritonclient[grpc]')"
    )
    text_format = pytest.importorskip("google.protobuf.text_format")
    return {
        path.parent.name: text_format.Parse(path.read_text("utf-8"), schema.ModelConfig())
        for path in sorted(folder.glob("*/config.pbtxt"))
    }


def test_every_variant_is_a_model_by_triton_s_own_schema(bundle: Path, call: Call, tmp_path: Path) -> None:
    folder = tmp_path / "repository"
    found = answer(call("export", bundle, "--triton", folder, "--json"))
    assert all(Path(path).is_file() for path in found["files"])
    configs = parsed(folder)
    assert set(configs) == {
        "model-ort-fp32", "model-openvino-fp32", "model-tensorrt-fp32", "model-prepare", "model-decode",
        "model-ensemble",
    }  # fmt: skip
    for name, config in configs.items():
        assert config.name == name
        assert config.max_batch_size == 0
    ort = configs["model-ort-fp32"]
    assert (ort.backend, list(ort.input[0].dims)) == ("onnxruntime", [1, 3, 16, 16])
    assert [(o.name, list(o.dims)) for o in ort.output] == [("scores", [1, 4]), ("features", [1, 4, 16, 16])]
    assert ort.model_warmup[0].inputs["image"].input_data_file == "golden-0"
    raw = (folder / "model-ort-fp32" / "warmup" / "golden-0").read_bytes()
    with Bundle.open(bundle) as opened:
        assert raw == opened.golden[0][0]["image"].tobytes()
        assert (folder / "model-ort-fp32/1/model.onnx").read_bytes() == bytes(
            opened.read(opened.variants[0].files["model.onnx"])
        )
    assert int(ort.parameters["intra_op_thread_count"].string_value) >= 1
    assert (folder / "model-openvino-fp32/1/model.bin").is_file()
    tensorrt = configs["model-tensorrt-fp32"]
    (accelerator,) = tensorrt.optimization.execution_accelerators.gpu_execution_accelerator
    assert (accelerator.name, tensorrt.backend) == ("tensorrt", "onnxruntime")


def test_the_ensemble_joins_what_is_there(bundle: Path, tmp_path: Path) -> None:
    with Bundle.open(bundle) as opened:
        export_triton(opened, tmp_path / "repository")
    configs = parsed(tmp_path / "repository")
    known = {"IMAGE": "TYPE_UINT8"}
    for step in configs["model-ensemble"].ensemble_scheduling.step:
        config = configs[step.model_name]
        assert set(step.input_map) == {entry.name for entry in config.input}
        assert set(step.input_map.values()) <= set(known)
        assert set(step.output_map) == {entry.name for entry in config.output}
        known |= dict.fromkeys(step.output_map.values(), "")
    assert "PREDICTION" in known


def test_the_ensemble_wraps_the_variant_that_a_session_runs(bundle: Path, tmp_path: Path) -> None:
    """The float parent of an int8 variant may come first in the bundle."""
    times = {"ort-fp32": 9.0, "openvino-fp32": 3.0}
    with Bundle.open(bundle) as old:
        entries = {entry["name"]: bytes(old.read(entry["name"])) for entry in old.manifest["entries"]}
        for row in old.manifest["variants"]:
            row["evidence"]["timing"] = {"p50_ms": times.get(row["name"], 99.0), "threads": 1}
        Bundle.create(old.manifest, entries).save(bundle)
    with Bundle.open(bundle) as opened:
        export_triton(opened, tmp_path / "repository")
    config = (tmp_path / "repository" / "model-ensemble" / "config.pbtxt").read_text()
    assert '"model-openvino-fp32"' in config
    assert '"model-ort-fp32"' not in config


def test_prepared_and_decoded_it_answers_as_a_session(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The two scripts, called as the Python backend calls them; its module exists inside of Triton alone."""
    with Bundle.open(bundle) as opened:
        export_triton(opened, tmp_path / "repository")
    backend = ModuleType("triton_python_backend_utils")
    tensor = SimpleNamespace
    vars(backend).update(
        get_input_tensor_by_name=lambda request, name: tensor(as_numpy=lambda: request[name]),
        InferenceResponse=lambda tensors=(), error=None: error or dict(tensors),
        Tensor=lambda name, array: (name, array),
        TritonError=str,
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    prepare, decode = (_loaded(tmp_path / "repository" / f"model-{name}") for name in ("prepare", "decode"))
    picture = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    with Session(bundle, engine="ort") as session:
        (prepared,) = prepare.execute([{"IMAGE": picture}])
        assert prepared["SIZE"].tolist() == [30, 40]
        outputs = session.run({"image": prepared["image"]})
        (decoded,) = decode.execute([{**outputs, "SIZE": prepared["SIZE"]}])
        assert json.loads(decoded["PREDICTION"][0]) == session.predict(picture).as_json()
    (refused,) = prepare.execute([{"IMAGE": np.zeros((3, 3), np.uint8)}])
    assert isinstance(refused, str)


def _loaded(folder: Path) -> Any:
    """The model of a folder, as Triton makes it."""
    spec = spec_from_file_location(folder.name.replace("-", "_"), folder / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.TritonPythonModel()
    image = {"name": "IMAGE"}
    size, scores, features = {"name": "SIZE"}, {"name": "scores"}, {"name": "features"}
    inputs = [image] if folder.name.endswith("prepare") else [scores, features, size]
    outputs = [{"name": "image"}, size] if inputs == [image] else [{"name": "PREDICTION"}]
    model.initialize({"model_config": json.dumps({"input": inputs, "output": outputs})})
    return model


def test_a_batch_in_front_is_filled_up_by_openvino(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.TWO_INPUTS.replace("1,8", "4,8"))
    made = edgekit.build(model, targets=["openvino", "ort"])
    export_triton(made, tmp_path / "repository")
    configs = parsed(tmp_path / "repository")
    config = configs["model-openvino-fp32"]
    assert (config.max_batch_size, list(config.input[0].dims)) == (4, [8])
    assert list(config.dynamic_batching.preferred_batch_size) == [4]
    (timing,) = (v.evidence["timing"] for v in made.variants if v.target == "openvino")
    delay_us = config.dynamic_batching.max_queue_delay_microseconds
    assert delay_us - 1 < 1000 * timing["p50_ms"] / 2 <= delay_us
    assert config.parameters["ENABLE_BATCH_PADDING"].string_value == "YES"
    assert len((tmp_path / "repository/model-openvino-fp32/warmup/golden-0").read_bytes()) == 8 * 4
    ort = configs["model-ort-fp32"]
    assert (ort.max_batch_size, list(ort.input[0].dims)) == (0, [4, 8])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--triton", "there"],
            "there/model-ort-fp32, there/model-openvino-fp32, there/model-tensorrt-fp32 already exists; ",
        ),
        (["ort-int8", "--triton", "new"], "unknown variant 'ort-int8'; available: "),
        (["ort-fp32"], "give one of -o DIR, --triton DIR, --package DIR, --deepstream DIR and --web DIR"),
        (["-o", "new"], "no variant given; give VARIANT, or --triton DIR for all (edgekit inspect lists"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    bundle: Path, call: Call, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(bundle.parent)
    for name in ("ort", "openvino", "tensorrt"):
        Path("there", f"model-{name}-fp32").mkdir(parents=True)
    result = call("export", bundle, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {message}") or message in result.stderr
    assert not Path("new").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lite", "Triton has no backend for lite, which is for tflite"),
        ("other", "unknown variant 'other'; available: onnx, lite"),
    ],
)
def test_variants_that_triton_does_not_serve(tmp_path: Path, name: str, message: str) -> None:
    made = small_bundle([variant("onnx", "ort"), variant("lite", "tflite")])
    with pytest.raises(UsageError) as error:
        export_triton(made, tmp_path / "models", [name])
    assert str(error.value) == message
    assert not (tmp_path / "models").exists()
