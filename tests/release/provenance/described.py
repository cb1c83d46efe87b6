"""A bundle with everything that provenance and a bill of materials tell."""

from __future__ import annotations

import json
from pathlib import Path

from edgekit.bundle import Bundle
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes

CARD = {
    "title": "Doubles",
    "inputs": {"x": {"kind": "tensor", "shape": [1, 6]}},
    "task": {"kind": "embed", "outputs": {"embedding": "y"}},
    "about": {"author": "Example Lab", "license": "Apache-2.0", "version": "3", "description": "doubles x"},
}
EVIDENCE = {
    "size_bytes": 300,
    "engine": "ONNX Runtime 1.30",
    "accuracy": {
        "y": {"max_abs": 0.5, "relative_norm": 0.1, "snr_db": 40.5, "cosine": 1.0, "limit_db": 20.0}
    },
    "timing": {"p50_ms": 1.25, "min_ms": 1.0, "load_ms": 3.0, "runs": 20, "threads": 1, "cpu": "Example CPU"},
    "task": {"metric": "mAP", "value": 0.25, "unit": "", "float": 0.5},
    "agreement": {"metric": "SNR", "value": None, "unit": "dB", "samples": 8},
}


def described_bundle(folder: Path) -> Path:
    """It, in a file: two variants that may be used, one of them not run, and a rejected one."""
    kept = variant("ort-fp32", "ort", status="verified on ONNX Runtime 1.30")
    kept = kept._replace(evidence=EVIDENCE, files={"model.onnx": "v/model.onnx"})
    unseen = variant("far", "ort", status="not run: its engine is not here")
    lost = variant("ort-int8", "ort", status="rejected: slower than its parent")
    plain = small_bundle([kept, unseen, lost], {"v/model.onnx": onnx_bytes(DOUBLES)})
    manifest = json.loads(json.dumps(plain.manifest))
    manifest["card"] = CARD
    manifest["samples"] = {"count": 8, "origin": "8 files of photos", "sha256": "ab" * 32}
    manifest["passes"] = ["canonical_opset"]
    manifest["options"] = {"precision": "auto", "targets": ["ort"]}
    entries = {entry["name"]: bytes(plain.read(entry["name"])) for entry in manifest.pop("entries")}
    return Bundle.create(manifest, entries).save(folder / "doubles.edgekit")
