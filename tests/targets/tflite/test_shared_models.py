"""Real networks: compiled, run on LiteRT, compared with the source model on the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from edgekit_tflite.compile import compile_model
from PIL import Image, ImageDraw

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from edgekit.tensor_spec import Array
from tests.targets.tflite.running import PROFILE, compiled, ran, snr_db


@dataclass(frozen=True)
class Network:
    """One shared model.

    Attributes:
        shapes: What freezes it.
        low: Least input value.
        high: Greatest input value; inputs are a picture scaled to this range, with text on it.
        fp32_db: Least SNR of each output.
        fp16_db: Least SNR of each output with float16 weights.
        transposes: How many TRANSPOSEs are left; more is a regression.
    """

    name: str
    shapes: dict[str, tuple[int, ...]]
    low: float
    high: float
    fp32_db: float = 100.0
    fp16_db: float = 45.0
    transposes: int = 1


NETWORKS = [
    Network("centerface", {"input.1": (1, 3, 480, 640)}, 0, 255, fp32_db=95, transposes=4),
    # Its output is a sigmoid, near 0 or 1 nearly everywhere.
    Network("ch_PP-OCRv4_det_infer", {"x": (1, 3, 320, 320)}, -1, 1, fp32_db=60),
    Network("ch_PP-OCRv4_rec_infer", {"x": (1, 3, 48, 320)}, -1, 1, transposes=9),
    Network("ch_ppocr_mobile_v2.0_cls_infer", {"x": (1, 3, 48, 192)}, -1, 1),
    # Its scores are sigmoids.
    Network("coco_ssd_mbv2_300", {}, -1, 1, fp32_db=60, transposes=2),
    Network("efficientnet_lite0", {"image": (1, 3, 224, 224)}, -1, 1),
    Network("kws_ref_model_float32", {"input_1": (1, 49, 10, 1)}, -1, 1, transposes=0),
    Network("resnet8_cifar10_fp32", {"input_1": (1, 32, 32, 3)}, 0, 255, transposes=0),
    Network("vww_96_float", {"input_1": (1, 96, 96, 3)}, 0, 1, transposes=0),
    Network("yolox_nano", {}, 0, 255),
    # They come quantized: where a value falls on the border of two steps, two correct float kernels may round
    # it either way, and one step of 256 is what a difference is measured in.
    Network("resnet8_cifar10_int8_qdq", {"input_1_int8": (1, 32, 32, 3)}, -128, 127, 20, 20, 0),
    Network("vww_96_int8", {"input_1_int8": (1, 96, 96, 3)}, -128, 127, 20, 20, 0),
]


def picture(shape: tuple[int, ...], low: float, high: float) -> Array:
    """A gradient with shapes and text on it, NCHW or NHWC, scaled to ``low`` ... ``high``."""
    planar = len(shape) == 4 and shape[1] == 3
    height, width = shape[2:4] if planar else shape[1:3]
    image = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.ellipse((width // 2, height // 8, width - 4, height - 4), fill=(200, 60, 30))
    for line in range(0, height, 48):
        draw.text((4, line + 4), "EdgeKit 2026", fill=(255, 255, 255), font_size=min(28, height // 2))
    pixels = np.asarray(image, np.float32)[None] / 255 * (high - low) + low
    return pixels.transpose(0, 3, 1, 2) if planar else pixels[..., : shape[3]]


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("network", NETWORKS, ids=lambda n: n.name)
def test_network(network: Network, shared: Path) -> None:
    model = open_model(shared / "models" / f"{network.name}.onnx", network.shapes)
    reference = Reference(model)
    (source,) = model.graph.inputs
    assert source.shape is not None
    assert source.dtype is not None
    shape = tuple(int(str(n)) for n in source.shape)
    feed = np.ascontiguousarray(picture(shape, network.low, network.high).astype(source.dtype.numpy()))
    expected = reference.run({str(source.name): feed})
    run_passes(model)
    for precision, limit in (("fp32", network.fp32_db), ("fp16", network.fp16_db)):
        artifact = compiled(model, precision)
        answers = ran(artifact, {str(source.name): feed})
        for name, value in expected.items():
            assert answers[name].shape == value.shape
            assert snr_db(value, answers[name]) >= limit, (precision, name)
        assert len(artifact.facts["transposes"]) <= network.transposes


@pytest.mark.needs_shared
@pytest.mark.needs_ort
@pytest.mark.needs_tflite
def test_a_recurrent_network_is_unrolled(shared: Path) -> None:
    shapes = {"input": (8, 576), "h": (1, 1, 128), "c": (1, 1, 128)}
    model = open_model(shared / "models" / "silero_vad_16k_sequence.onnx", shapes)
    draw = np.random.default_rng(0)
    feeds = {name: draw.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}
    expected = Reference(model).run(feeds)
    run_passes(model)
    answers = ran(compiled(model, "fp32"), feeds)
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
