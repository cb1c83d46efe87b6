"""A bundle of one sound model that ONNX Runtime runs, made without a build."""

from __future__ import annotations

from edgekit.bundle import Bundle
from edgekit.tensor_spec import Json
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import model_bundle

TONES = """
<ir_version: 8, opset_import: ["": 17]>
tones (float[1,8,3] bands, float[1,3] before, float[1] gain) => (float[1,3] scores, float[1,3] after)
{
    axes = Constant<value = int64[1] {1}>()
    sums = ReduceSum<keepdims = 0>(bands, axes)
    half = Constant<value = float {0.5}>()
    kept = Mul(before, half)
    after = Add(sums, kept)
    scores = Mul(after, gain)
}
"""
"""Sums of low, middle and high bands over the frames of a window, and half of those of the windows before."""
TONE_CARD: dict[str, Json] = {
    "title": "Tones",
    "inputs": {
        "bands": {
            "kind": "audio", "shape": [1, 8, 3], "rate": 8000, "hop": 1000,
            "features": {
                "kind": "mel", "frame": 250, "hop": 200, "n_fft": 256, "mels": 3, "power": 1, "log": "ln",
                "offset": 0.001,
            },
        },
        "before": {"kind": "tensor", "shape": [1, 3]},
        "gain": {"kind": "tensor", "shape": [1], "value": 0.1, "dtype": "float32"},
    },
    "states": {"before": "after"},
    "task": {
        "kind": "classify", "decode": "logits", "outputs": {"scores": "scores"},
        "labels": ["low", "middle", "high"],
    },
}  # fmt: skip


def tones_bundle(card: dict[str, Json] = TONE_CARD) -> Bundle:
    """Return a bundle with the classifier of tones as its only variant."""
    model = onnx_bytes(TONES)
    return model_bundle({"tones": model}, model, card)
