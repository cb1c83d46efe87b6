"""Packages of Olive and onnxruntime-genai."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest
from edgekit_ort.package_reader import read_package

import edgekit
from tests.fixtures.model_packages import VOCABULARY, olive

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(
        not hasattr(onnxruntime, "ModelPackage"), reason="ONNX Runtime has packages since 1.32"
    ),
]


@pytest.mark.parametrize("old", [True, False])
def test_both_layouts_of_olive(old: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    root = olive(tmp_path / "pkg", old=old)
    assert [(v.name, list(v.files)) for v in read_package(root).variants] == [("cpu", ["model.onnx"])]
    (check,) = edgekit.verify(root)
    assert check.status.startswith("verified on ONNX Runtime")
    assert "suggested: " in edgekit.Bundle(root).manifest["options"]["assumed_shapes"]
    if old:
        with pytest.raises(Exception, match="configs_dir"):
            onnxruntime.ModelPackage.open(str(root))
    else:
        assert onnxruntime.ModelPackage.open(str(root)).get_info()["package_name"] == "olive"


def test_onnxruntime_genai_opens_the_folder_of_a_variant_alone(tmp_path: Path) -> None:
    genai = pytest.importorskip("onnxruntime_genai")
    root = olive(tmp_path / "pkg", old=False)
    model = genai.Model(str(root / "models/model/cpu"))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=6, do_sample=False)
    generator = genai.Generator(model, settings)
    generator.append_tokens([1])
    while not generator.is_done():
        generator.generate_next_token()
    assert list(generator.get_sequence(0)) == [(1 + 3 * n) % VOCABULARY for n in range(6)]
    with pytest.raises(Exception, match="ackage"):  # if it opens it: change docs/model-packages.md
        genai.Model(str(root))
