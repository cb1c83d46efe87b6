"""Weight sharing: the ``model.onnx`` of a further shape reads the weights of the largest shape's file.

An ONNX tensor may lie in another file, at an offset: here in the largest shape's ``model.onnx``, which stays
a valid model. Tensors that it does not hold, mostly shapes, stay in the other one.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from edgekit.target import Artifact
from edgekit_ort.run import MODEL_FILE, SHARED_FILE

SHARED_FROM_BYTES = 256
"""Smaller constants are kept: naming a place takes 100 bytes."""


def share_weights(whole: Artifact, further: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Let artifacts of further shapes read their weights from the largest's ``model.onnx``."""
    content, shared = bytes(whole.files[MODEL_FILE]), []
    for artifact in further:
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
        model.graph.ClearField("value_info")  # a fifth of a small file; the engine infers it
        files = {MODEL_FILE: model.SerializeToString(deterministic=True), SHARED_FILE: content}
        shared.append(artifact._replace(files=files))
    return whole, shared
