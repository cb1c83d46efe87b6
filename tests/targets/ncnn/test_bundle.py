"""Bundles of ncnn, and trained networks against the reference."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from edgekit_ncnn import compile as host
from edgekit_ncnn import run

import edgekit
from edgekit.compiler.evaluate.verify import compare, write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.release.export.export import export_variant
from edgekit.runtime import Session
from edgekit.target.installed_profiles import find_profile
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


NETWORKS: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    # shapes of open inputs, the largest value of an input
    "centerface": ({"input.1": (1, 3, 320, 320)}, 255),
    "ch_PP-OCRv4_det_infer": ({"x": (1, 3, 320, 320)}, 1),
    "ch_PP-OCRv4_rec_infer": ({"x": (1, 3, 48, 320)}, 1),
    "ch_ppocr_mobile_v2.0_cls_infer": ({"x": (1, 3, 48, 192)}, 1),
    "coco_ssd_mbv2_300": ({}, 1),
    "efficientnet_lite0": ({"image": (1, 3, 224, 224)}, 1),
    "kws_ref_model_float32": ({}, 1),
    "resnet8_cifar10_fp32": ({}, 255),
    "resnet8_cifar10_int8_qdq": ({}, 127),
    "silero_vad_16k_sequence": ({"input": (4, 576)}, 1),
    "vww_96_float": ({}, 1),
    "vww_96_int8": ({}, 127),
    "yolox_nano": ({}, 255),
}
LOGIT_ENDS = ("ch_PP-OCRv4_det_infer", "coco_ssd_mbv2_300")
"""On noise their Sigmoids are near zero, where ONNX Runtime itself is inexact: the input of the last Sigmoid
is compared."""


@pytest.mark.needs_shared
@pytest.mark.parametrize("name", NETWORKS)
def test_fp32_is_the_reference_s(name: str, shared: Path, tmp_path: Path) -> None:
    shapes, most = NETWORKS[name]
    model = open_model(shared / "models" / f"{name}.onnx", shapes)
    ends: set[str] = set()
    if name in LOGIT_ENDS:
        last = [node for node in model.graph if node.op_type == "Sigmoid"][-1]
        assert last.inputs[0] is not None
        model.graph.outputs.append(last.inputs[0])
        ends = {str(value.name) for value in last.outputs} | {"scores"}
    inputs, outputs = signature(model)
    canonical = model.clone()
    run_passes(canonical)
    artifact = host.compile_model(canonical, find_profile("ncnn"), "fp32")
    runner = run.open_runner(write_files(artifact, tmp_path), inputs, outputs, artifact.options, 1)
    draws = 5 if "int8" in name else 1
    exact = 0
    for seed in range(draws):
        random = np.random.default_rng(seed)
        feeds = {spec.name: random.uniform(0, most, spec.shape).astype(spec.dtype) for spec in inputs}
        results = runner.run(feeds)
        snrs_db = {}
        for output, array in Reference(model).run(feeds).items():
            if output in ends:
                continue
            noise = np.linalg.norm(array.astype(np.float64) - results[output])
            snrs_db[output] = 20 * np.log10(
                np.linalg.norm(array.astype(np.float64)) / np.maximum(noise, 1e-30)
            )
        print(f"{name} {seed}: {snrs_db} dB")
        exact += min(snrs_db.values()) >= 90
    # Sums in another order can round a value half-way between two int8 steps to the other one.
    assert exact >= (draws - 1 if draws > 1 else 1)
