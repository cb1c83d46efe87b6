"""The real models for Core ML: small shapes, and how close each precision must come."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Network:
    """One shared model.

    Attributes:
        shapes: What freezes it; small, as the executor is no engine.
        fp32_db: Least SNR of each output in float32; lower where it is a sigmoid that saturates.
        fp16_db: The same with every value rounded to float16.
        picture: The test picture's 0 to 255 are divided by this; 0: normal noise.
    """

    name: str
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fp32_db: float = 100.0
    fp16_db: float = 40.0
    picture: float = 0.0


NETWORKS = [
    Network("centerface", {"input.1": (1, 3, 96, 128)}, 95, 40, 1),
    Network("ch_PP-OCRv4_det_infer", {"x": (1, 3, 96, 128)}, 80, 40, 128),
    Network("ch_PP-OCRv4_rec_infer", {"x": (1, 3, 48, 160)}, 80, 40, 128),
    Network("ch_ppocr_mobile_v2.0_cls_infer", {"x": (1, 3, 48, 192)}, 80, 40, 128),
    Network("coco_ssd_mbv2_300", {}, 80, 40, 128),
    Network("efficientnet_lite0", {"image": (1, 3, 224, 224)}, 120, 45, 128),
    Network("kws_ref_model_float32", {"input_1": (1, 49, 10, 1)}, 100, 45),
    Network("resnet8_cifar10_fp32", {"input_1": (1, 32, 32, 3)}, 100, 45),
    Network("resnet8_cifar10_int8_qdq", {"input_1_int8": (1, 32, 32, 3)}, 100, 30),
    Network("silero_vad", {"input": (1, 576), "state": (2, 1, 128)}, 100, 45),
    Network("silero_vad_16k_sequence", {"input": (4, 576)}, 90, 40),
    Network("vww_96_float", {"input_1": (1, 96, 96, 3)}, 100, 45),
    Network("vww_96_int8", {"input_1_int8": (1, 96, 96, 3)}, 100, 30),
    Network("yolox_nano", {}, 100, 40, 1),
]

NOISY = """
<ir_version: 10, opset_import: ["": 23]>
noisy (float[1,1,8,8] x) => (float[1,1,8,8] y, float[1,1,8,8] z)
<float[1,1,1,1] one = {1}, float[1,1,1,1] two = {2}, float[1] up = {2000}, float[1] down = {-2000}>
{
    [lifted] a = Conv(x, one, up)
    [kept] r = Relu(a)
    [lowered] y = Conv(r, one, down)
    [beside] b = Conv(x, two)
    [end] z = Sigmoid(b)
}
"""
"""A network that float16 rounds too much, on the inputs X."""
X = np.random.default_rng(0).uniform(1, 10, (1, 1, 8, 8)).astype(np.float32)
