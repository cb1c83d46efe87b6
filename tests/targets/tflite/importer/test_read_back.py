"""There and back: what EdgeKit writes as .tflite it reads as ONNX, and writes again as it was."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.compile import FILE, compile_model
from edgekit_tflite.importer.convert import convert

import edgekit
from edgekit.compiler.importers import conversion
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import importers
from edgekit.compiler.model.onnx_file import open_bytes, open_model
from edgekit.compiler.passes import run_passes
from edgekit.errors import MissingDependency
from edgekit.target.installed_profiles import find_profile
from tests.conformance.expectations import read_expected
from tests.conformance.grid import CASES, FAMILIES
from tests.conformance.read_back import read_back
from tests.conftest import SHARED
from tests.fixtures import models
from tests.fixtures.tflite_files import on_litert

pytestmark = pytest.mark.needs_ort

EVERY = 10
"""Of each family every tenth case; all of them: ``python -m tests.conformance.read_back``."""
EXPECTED = read_expected()["tflite"]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_op_cases_answer_as_before(family: str, tmp_path: Path) -> None:
    keys = [f"{family}/{case.name}" for case in FAMILIES[family]][::EVERY]
    written = [key for key in keys if EXPECTED.of(key).kind == "pass"]
    assert written
    outcomes = {key: read_back(key, tmp_path) for key in written}
    assert {key: outcome for key, outcome in outcomes.items() if outcome.kind != "pass"} == {}


def tflite(onnx: bytes) -> bytes:
    """The model as EdgeKit's own .tflite file."""
    model = open_bytes(onnx, "model.onnx")
    run_passes(model)
    return bytes(compile_model(model, find_profile("tflite"), "fp32").files[FILE])


@pytest.mark.needs_tflite
@pytest.mark.parametrize("key", [f"quant/{case.name}" for case in FAMILIES["quant"]][::4])
def test_integers_are_exact_again(key: str, tmp_path: Path) -> None:
    """A .tflite file, and the one that EdgeKit makes of it through ONNX, answer alike to the last step."""
    if EXPECTED.of(key).kind != "pass":
        pytest.skip("TFLite has no form of it")
    first = tflite(CASES[key].model().SerializeToString())
    second = tflite(convert(first, ImportOptions()).onnx)
    feeds = list(CASES[key].feeds(0).values())
    feeds = [array.astype({"int64": "int32"}.get(array.dtype.name, array.dtype.name)) for array in feeds]
    pairs = zip(on_litert(first, feeds, tmp_path), on_litert(second, feeds, tmp_path), strict=True)
    for expected, found in pairs:
        np.testing.assert_array_equal(found, expected)


def test_names_shapes_and_the_signature_stay(tmp_path: Path) -> None:
    model = open_model(models.write(tmp_path, models.SMALL_CNN))
    run_passes(model)
    found = convert(bytes(compile_model(model, find_profile("tflite"), "fp32").files[FILE]), ImportOptions())
    back = open_bytes(found.onnx, "back.onnx")
    assert [(v.name, tuple(v.shape or ())) for v in back.graph.inputs] == [("image", (1, 3, 16, 16))]
    assert [v.name for v in back.graph.outputs] == ["scores", "features"]


def test_the_same_file_gives_the_same_bytes(tmp_path: Path) -> None:
    first = tflite(models.write(tmp_path, models.SMALL_CNN).read_bytes())
    assert convert(first, ImportOptions()).onnx == convert(first, ImportOptions()).onnx


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.tflite"
    path.write_bytes(tflite(models.write(tmp_path, models.SMALL_CNN).read_bytes()))
    return path


@pytest.mark.needs_tflite
def test_a_build_takes_the_file_and_names_it(file: Path) -> None:
    bundle = edgekit.build(file, targets=["ort", "tflite"])
    assert [variant.usable for variant in bundle.variants] == [True, True]
    source = bundle.manifest["source"]
    assert (source["file"], source["sha256"]) == (
        "small.tflite",
        hashlib.sha256(file.read_bytes()).hexdigest(),
    )
    assert source["imported"]["format"] == "TFLite"
    assert source["imported"]["compared"]["engine"].startswith("LiteRT ")
    assert edgekit.check(file, ["ort"]) == []


def test_without_litert_nothing_is_compared(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: object, samples: object) -> object:
        raise MissingDependency("ai-edge-litert", "running a .tflite file", extra="tflite")

    importer = importers()["tflite"]._replace(answers=missing)  # type: ignore[arg-type]
    monkeypatch.setattr(conversion, "importers", lambda: {"tflite": importer})
    compared = edgekit.import_model(file).compared
    assert compared.not_run.startswith(
        "ai-edge-litert is not installed, and running a .tflite file needs it: "
    )


@pytest.mark.needs_shared
@pytest.mark.needs_tflite
@pytest.mark.needs_openvino
def test_a_float_network_on_every_engine() -> None:
    bundle = edgekit.build(SHARED / "models" / "vww_96_float.tflite", targets=["tflite", "ort", "openvino"])
    for variant in bundle.variants:
        assert variant.usable, variant.status
        assert all((each["snr_db"] or 999) >= 100 for each in variant.evidence["accuracy"].values())


@pytest.mark.needs_shared
@pytest.mark.needs_tflite
def test_an_int8_network_is_exact_again(tmp_path: Path) -> None:
    first = (SHARED / "models" / "vww_96_int8.tflite").read_bytes()
    second = tflite(convert(first, ImportOptions()).onnx)
    rng = np.random.default_rng(0)
    for _ in range(8):
        feeds = [rng.integers(-128, 128, (1, 96, 96, 3)).astype(np.int8)]
        np.testing.assert_array_equal(
            on_litert(second, feeds, tmp_path)[0], on_litert(first, feeds, tmp_path)[0]
        )
