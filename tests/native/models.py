"""Bundles of one image model that ONNX Runtime runs, made without a build."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.bundle import Bundle
from edgekit.native.support import MODELS, ORT
from edgekit.system.formats.npy import npy_bytes
from edgekit.tensor_spec import Array, Json
from tests.fixtures.ort_bundles import onnx_bytes

COLOURS = """
<ir_version: 8, opset_import: ["": 17]>
colours (float[1,3,16,16] image) => (float[1,3] scores)
{
    shape = Constant<value = int64[2] {1,3}>()
    means = GlobalAveragePool(image)
    scores = Reshape(means, shape)
}
"""
"""A classifier whose scores are the means of red, green and blue."""
COLOUR_CARD: dict[str, Json] = {
    "title": "Colours",
    "inputs": {
        "image": {
            "kind": "image", "shape": [1, 3, 16, 16], "layout": "NCHW", "colour": "RGB",
            "resize": "center-crop", "std": [25.0, 25.0, 25.0],
        },
    },
    "task": {
        "kind": "classify", "decode": "logits", "outputs": {"scores": "scores"},
        "labels": ["red", "green", "blue"],
    },
}  # fmt: skip
SWAPPED = COLOURS.replace(
    "scores = Reshape(means, shape)", "neg = Neg(means)\n    scores = Reshape(neg, shape)"
)
"""The same with wrong outputs."""


def model_bundle(
    models: Mapping[str, bytes],
    right: bytes,
    card: dict[str, Json] | None,
    targets: Mapping[str, str] | None = None,
    options: dict[str, Json] | None = None,
) -> Bundle:
    """Return a bundle with a variant for each model, in their order."""
    session = _session(right)
    inputs, outputs = session.get_inputs(), session.get_outputs()
    rng = np.random.default_rng(0)
    feeds = {x.name: rng.normal(0, 1, x.shape).astype(np.float32) for x in inputs}
    wanted = dict(zip([y.name for y in outputs], session.run(None, feeds), strict=True))
    entries = {f"v/{name}/model.onnx": content for name, content in models.items()}
    entries |= {f"golden/{name}.npy": npy_bytes(array) for name, array in {**feeds, **wanted}.items()}

    def file_of(name: str) -> str:
        return MODELS.get((targets or {}).get(name, ORT), "model")

    evidence = {"accuracy": {name: {"limit_db": 40.0} for name in wanted}}
    variants = [
        {"name": name, "target": (targets or {}).get(name, "ort"), "profile": "ort", "precision": "fp32",
         "options": options or {}, "files": {file_of(name): f"v/{name}/model.onnx"}, "status": "verified",
         "evidence": evidence}
        for name in models
    ]  # fmt: skip
    manifest: dict[str, Any] = {
        "source": {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 3},
        "inputs": [_tensor(name, array) for name, array in feeds.items()],
        "outputs": [_tensor(name, array) for name, array in wanted.items()],
        "variants": variants,
        **({} if card is None else {"card": card}),
        "golden": [
            {
                side: {name: f"golden/{name}.npy" for name in arrays}
                for side, arrays in (("inputs", feeds), ("outputs", wanted))
            }
        ],
    }
    return Bundle.create(manifest, entries)


def colours_bundle() -> Bundle:
    """Return a bundle with the classifier as its only variant."""
    model = onnx_bytes(COLOURS)
    return model_bundle({"colours": model}, model, COLOUR_CARD)


def yolox_bundle(shared: Path) -> Bundle:
    """Return a bundle of the shared YOLOX-nano."""
    model = (shared / "models" / "yolox_nano.onnx").read_bytes()
    session = _session(model)
    output, image = session.get_outputs()[0].name, session.get_inputs()[0]
    card: dict[str, Json] = {
        "title": "YOLOX-nano",
        "inputs": {
            image.name: {
                "kind": "image", "shape": list(image.shape), "layout": "NCHW", "colour": "BGR",
                "resize": "letterbox", "pad": 114,
            },
        },
        "task": {"kind": "detect", "decode": "yolox", "outputs": {"predictions": output}},
    }  # fmt: skip
    return model_bundle({"yolox": model}, model, card)


def _session(model: bytes) -> Any:
    from edgekit_ort.run import open_session

    return open_session(model, 1)


def _tensor(name: str, array: Array) -> dict[str, Json]:
    return {"name": name, "dtype": str(array.dtype), "shape": list(array.shape)}
