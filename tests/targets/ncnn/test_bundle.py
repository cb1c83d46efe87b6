"""A bundle for ncnn: built, verified, run, exported, and fallen back from."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import edgekit
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from edgekit.tensor_spec import Array
from tests.fixtures.models import SMALL_CNN, write

pytestmark = [pytest.mark.needs_ncnn, pytest.mark.needs_ort]


@pytest.fixture
def built(tmp_path: Path) -> tuple[Path, Array, Array]:
    """A bundle for ncnn and ort, an image, and the model's output for it."""
    write(tmp_path, SMALL_CNN)
    image = np.random.default_rng(0).normal(size=(1, 3, 16, 16)).astype(np.float32)
    path = tmp_path / "small.edgekit"
    edgekit.build(tmp_path / "model.onnx", targets=["ncnn", "ort"], precision="fp16").save(path)
    expected = Reference(open_model(tmp_path / "model.onnx")).run({"image": image})["features"]
    return path, image, expected


def test_it_is_verified_and_run(built: tuple[Path, Array, Array]) -> None:
    path, image, expected = built
    variants = {variant.name: variant for variant in edgekit.Bundle.open(path).variants}
    assert variants["ncnn-fp16"].status.startswith("verified on ncnn ")
    with Session(path, engine="ncnn", threads=1) as session:
        output = session.run({"image": image})["features"]
        assert session.active is not None
        assert session.active.engine.startswith("ncnn ")
        assert not session.fallbacks
    assert compare([expected], [output], 90.0).within_limit


def test_without_ncnn_ort_runs(built: tuple[Path, Array, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    path, image, expected = built
    monkeypatch.setitem(sys.modules, "ncnn", None)
    with Session(path, engine="ncnn", threads=1) as session:
        output = session.run({"image": image})["features"]
        (hop,) = session.fallbacks
    assert "ncnn is not installed" in hop.reason
    assert compare([expected], [output], 90.0).within_limit


def test_exported_files_load_in_plain_ncnn(built: tuple[Path, Array, Array], tmp_path: Path) -> None:
    import ncnn

    path, image, expected = built
    export_variant(edgekit.Bundle.open(path), "ncnn-fp16", tmp_path / "app")
    (param,) = (tmp_path / "app").rglob("*.param")
    (weights,) = (tmp_path / "app").rglob("*.bin")
    net = ncnn.Net()
    net.opt.use_fp16_storage = net.opt.use_fp16_packed = net.opt.use_fp16_arithmetic = False
    assert net.load_param(str(param)) == net.load_model(str(weights)) == 0
    with net.create_extractor() as extractor:
        extractor.input("image", ncnn.Mat(image[0]).clone())
        result, mat = extractor.extract("features")
    assert result == 0
    assert compare([expected], [np.array(mat.numpy()).reshape(expected.shape)], 90.0).within_limit
