"""Real networks: compiled, run on LiteRT, compared with the source model on the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.compile import compile_model

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from tests.fixtures.shared_models import CASES, feeds
from tests.targets.tflite.running import PROFILE, compiled, ran, snr_db

LIMITS = {
    "centerface": (90, 45, 4),
    "ch_PP-OCRv4_det_infer": (60, 45, 1),  # its output is a sigmoid, near 0 or 1 nearly everywhere
    "ch_PP-OCRv4_rec_infer": (100, 45, 9),
    "ch_ppocr_mobile_v2.0_cls_infer": (90, 45, 1),
    "coco_ssd_mbv2_300": (60, 40, 2),  # its scores are sigmoids
    "efficientnet_lite0": (100, 45, 1),
    "kws_ref_model_float32": (100, 45, 0),
    "resnet8_cifar10_fp32": (100, 45, 0),
    "vww_96_float": (100, 45, 0),
    "yolox_nano": (100, 45, 1),
    # They come quantized: where a value falls on the border of two steps, two correct float kernels may round
    # it either way, and one step of 256 is what a difference is measured in.
    "resnet8_cifar10_int8_qdq": (20, 20, 0),
    "vww_96_int8": (20, 20, 0),
}
"""Model -> least SNR of each output in float32 and with float16 weights, and how many TRANSPOSEs are left."""


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("name", LIMITS)
def test_network(name: str, shared: Path) -> None:
    fp32_db, fp16_db, transposes = LIMITS[name]
    model = open_model(shared / "models" / f"{name}.onnx", CASES[name].shapes)
    given = feeds(signature(model)[0], CASES[name])
    expected = Reference(model).run(given)
    run_passes(model)
    for precision, limit in (("fp32", fp32_db), ("fp16", fp16_db)):
        artifact = compiled(model, precision)
        answers = ran(artifact, given)
        for output, value in expected.items():
            assert answers[output].shape == value.shape
            assert snr_db(value, answers[output]) >= limit, (precision, output)
        assert len(artifact.facts["transposes"]) <= transposes


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_recurrent_network_is_unrolled(shared: Path) -> None:
    shapes = {"input": (8, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    model = open_model(shared / "models" / "silero_vad_16k_sequence.onnx", shapes)
    draw = np.random.default_rng(0)
    given = {name: draw.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}
    expected = Reference(model).run(given)
    run_passes(model)
    answers = ran(compiled(model, "fp32"), given)
    for name, value in expected.items():
        assert snr_db(value, answers[name]) >= 90, name


@pytest.mark.needs_shared
def test_what_has_no_form_is_refused_with_its_reason(shared: Path) -> None:
    shapes = {"input": (300, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    model = open_model(shared / "models" / "silero_vad_16k_sequence.onnx", shapes)
    run_passes(model)
    with pytest.raises(UnsupportedError) as caught:
        compile_model(model, PROFILE, "fp32")
    (finding,) = caught.value.findings
    assert (finding.code, finding.op) == ("EK1002", "LSTM")
    assert finding.message == "it has 300 steps; at most 256 are unrolled"
