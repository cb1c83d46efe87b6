"""Weight sharing: a shorter text's ``model.onnx`` reads the weights of the full length's file.

An ONNX tensor may lie in another file, at an offset: here in the full length's ``model.onnx``, which stays a
valid model. Tensors that it does not hold, mostly shapes, stay in the shorter one.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from edgekit.target import Artifact
from edgekit_ort.run import MODEL_FILE, SHARED_FILE

SHARED_FROM_BYTES = 1024
"""Smaller constants are kept: naming a place takes 100 bytes."""


def share_weights(whole: Artifact, shorter: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Let artifacts of shorter texts read their weights from the full length's ``model.onnx``."""
    content, found = whole.files[MODEL_FILE], []
    for artifact in shorter:
        model = onnx.ModelProto.FromString(artifact.files[MODEL_FILE])
        for tensor in model.graph.initializer:
            raw = tensor.raw_data
            place = content.find(raw) if len(raw) >= SHARED_FROM_BYTES else -1
            if place < 0:
                continue
            tensor.ClearField("raw_data")
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", MODEL_FILE), ("offset", place), ("length", len(raw))):
                tensor.external_data.add(key=key, value=str(value))
        files = {MODEL_FILE: model.SerializeToString(deterministic=True), SHARED_FILE: content}
        found.append(artifact._replace(files=files))
    return whole, found
