"""Bundles of models with states and constants, that ONNX Runtime runs, made without a build."""

from __future__ import annotations

from edgekit.bundle import Bundle
from edgekit.tensor_spec import Json
from tests.fixtures.ort_bundles import onnx_bytes
from tests.native.models import COLOUR_CARD, model_bundle

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


SMOOTHED = """
<ir_version: 8, opset_import: ["": 17]>
smoothed (float[1,3,16,16] image, float[1,3] before, float[1] gain) => (float[1,3] scores, float[1,3] after)
{
    shape = Constant<value = int64[2] {1,3}>()
    pooled = GlobalAveragePool(image)
    means = Reshape(pooled, shape)
    kept = Mul(before, gain)
    after = Add(means, kept)
    scores = Identity(after)
}
"""
"""Means of red, green and blue, and a part of those of the pictures before."""


def smoothed_bundle() -> Bundle:
    """Return a bundle with a classifier of pictures that has a state and a constant."""
    tensors = {
        "before": {"kind": "tensor", "shape": [1, 3], "value": [0.25, 0.5, 0.0], "dtype": "float32"},
        "gain": {"kind": "tensor", "shape": [1], "value": 0.5, "dtype": "float32"},
    }
    card = {**COLOUR_CARD, "inputs": {**COLOUR_CARD["inputs"], **tensors}, "states": {"before": "after"}}
    model = onnx_bytes(SMOOTHED)
    return model_bundle({"smoothed": model}, model, card)
