"""A small bundle to test with, and the means to write hostile ones byte by byte."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edgekit.bundle import Bundle, Variant, npy_bytes
from edgekit.target import Json

X = np.arange(6, dtype=np.float32).reshape(1, 6)
INPUTS = [{"name": "x", "dtype": "float32", "shape": [1, 6]}]
OUTPUTS = [{"name": "y", "dtype": "float32", "shape": [1, 6]}]


def variant(
    name: str,
    target: str,
    *,
    status: str = "verified",
    p50_ms: float | None = None,
    precision: str = "fp32",
    options: Mapping[str, Json] | None = None,
) -> Variant:
    timing = {} if p50_ms is None else {"timing": {"p50_ms": p50_ms}}
    files = {} if status.startswith("rejected") else {"model.bin": f"variants/{name}/model.bin"}
    return Variant(name, target, target, precision, files, options or {}, status, timing)


def small_manifest(variants: Sequence[Variant] = ()) -> dict[str, Any]:
    return {
        "tools": {"numpy": "2"},
        "source": {"file": "m.onnx", "sha256": "0" * 64, "opset": 17, "nodes": 3},
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "variants": [v.as_json() for v in variants or [variant("ort-fp32", "ort")]],
        "golden": [{"inputs": {"x": "golden/0/x.npy"}, "outputs": {"y": "golden/0/y.npy"}}],
    }


def small_bundle(variants: Sequence[Variant] = (), entries: Mapping[str, bytes] | None = None) -> Bundle:
    """A bundle whose model doubles x; each variant's file holds the variant's name."""
    manifest = small_manifest(variants)
    contents = {"golden/0/x.npy": npy_bytes(X), "golden/0/y.npy": npy_bytes(2 * X)}
    for each in manifest["variants"]:
        contents.update({entry: each["name"].encode() for entry in each["files"].values()})
    return Bundle.create(manifest, {**contents, **(entries or {})})


def pack(
    manifest: bytes,
    data: bytes = b"",
    *,
    magic: bytes = b"EDGEKIT\0",
    version: int = 1,
    zero: int = 0,
    manifest_size: int | None = None,
    file_size: int | None = None,
    digest: bytes | None = None,
) -> bytes:
    """A file as the specification lays it out, with any field changed."""
    start = -(-(64 + len(manifest)) // 64) * 64
    size = len(manifest) if manifest_size is None else manifest_size
    total = start + len(data) if file_size is None else file_size
    sha256 = hashlib.sha256(manifest).digest() if digest is None else digest
    header = struct.pack("<8sIIQQ32s", magic, version, zero, size, total, sha256)
    return header + manifest + bytes(start - 64 - len(manifest)) + data


def packed_parts(bundle: Bundle) -> tuple[dict[str, Any], bytes]:
    """The manifest as an object of its own, and the bytes after it."""
    manifest = json.loads(json.dumps(bundle.manifest))
    data = bytearray()
    for entry in manifest["entries"]:
        data += bytes(entry["offset"] - len(data)) + bytes(bundle.read(entry["name"]))
    return manifest, bytes(data)
