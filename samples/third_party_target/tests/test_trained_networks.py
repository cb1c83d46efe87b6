"""Trained networks on ncnn, against the reference; EDGEKIT_SHARED names the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ncnn", reason="pip install ncnn")
pytest.importorskip("edgekit_ncnn", reason="pip install --no-deps samples/third_party_target")

from edgekit_ncnn import compile as host
from edgekit_ncnn import converter, run

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import MissingDependency
from edgekit.target.installed_profiles import find_profile

MODELS = Path(os.environ.get("EDGEKIT_SHARED", Path(__file__).resolve().parents[4] / "shared")) / "models"
try:
    converter.program()
except MissingDependency as missing:
    pytest.skip(str(missing), allow_module_level=True)
if not MODELS.is_dir():
    pytest.skip("no trained models (set EDGEKIT_SHARED)", allow_module_level=True)

NETWORKS: dict[str, tuple[dict[str, tuple[int, ...]], int]] = {
    # shapes of open inputs, the largest value of an input
    "centerface": ({"input.1": (1, 3, 320, 320)}, 255),
    "ch_PP-OCRv4_det_infer": ({"x": (1, 3, 320, 320)}, 1),
    "ch_ppocr_mobile_v2.0_cls_infer": ({"x": (1, 3, 48, 192)}, 1),
    "coco_ssd_mbv2_300": ({}, 1),
    "efficientnet_lite0": ({"image": (1, 3, 224, 224)}, 1),
    "kws_ref_model_float32": ({}, 1),
    "resnet8_cifar10_fp32": ({}, 255),
    "vww_96_float": ({}, 1),
    "yolox_nano": ({}, 255),
}
LOGIT_ENDS = ("ch_PP-OCRv4_det_infer", "coco_ssd_mbv2_300")
"""Their Sigmoids answer noise with values near zero, where ONNX Runtime itself is inexact: what goes into the
last Sigmoid is compared."""


@pytest.mark.parametrize("name", NETWORKS)
def test_fp32_is_the_reference_s(name: str, tmp_path: Path) -> None:
    shapes, most = NETWORKS[name]
    model = open_model(MODELS / f"{name}.onnx", shapes)
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
    random = np.random.default_rng(0)
    feeds = {spec.name: random.uniform(0, most, spec.shape).astype(np.float32) for spec in inputs}
    found = runner.run(feeds)
    for output, array in Reference(model).run(feeds).items():
        if name in LOGIT_ENDS and output in ends:
            continue
        noise = np.linalg.norm(array.astype(np.float64) - found[output])
        snr_db = 20 * np.log10(np.linalg.norm(array.astype(np.float64)) / np.maximum(noise, 1e-30))
        print(f"{name} {output}: {snr_db:.1f} dB")
        assert snr_db >= 90
