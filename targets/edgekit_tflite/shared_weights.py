"""Weight sharing: one .tflite file with a signature for each shape, which share weight buffers.

    320, 480 and 640 pixels, a file each  =>  one: serving_default, serving_default_1, serving_default_2

XNNPACK packs the weights of every signature when the file is opened, so all shapes run on one interpreter
(``TfliteRunner.another``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from edgekit.target import Artifact
from edgekit.tensor_spec import Array
from edgekit_tflite.assembly import IDENTIFIER, TABLES_BYTES, assembled, empty_buffer, is_outside
from edgekit_tflite.flatbuffer import SIGNATURE
from edgekit_tflite.records import Record, packed, unpacked
from edgekit_tflite.run import FILE


def share_weights(whole: Artifact, further: Sequence[Artifact]) -> tuple[Artifact, list[Artifact]]:
    """Merge artifacts of further shapes into one file with the largest's. Files that permit float16, store
    axes in another order, or would exceed a flatbuffer, stay separate."""
    models: list[Any] = [unpacked(source.files[FILE], "Model") for source in (whole, *further)]
    contents: list[Array] = []
    places: dict[bytes, int] = {}
    for model in models:
        _move_buffers(model, contents, places)
    ordered = (entry for source in further for end in ("inputs", "outputs") for entry in source.options[end])
    if models[0].metadata or any("order" in entry for entry in ordered) or is_outside(contents):
        return whole, list(further)
    merged, pairs = models[0], []
    codes = {(code.builtinCode, code.version): index for index, code in enumerate(merged.operatorCodes)}
    for number, (model, artifact) in enumerate(zip(models[1:], further, strict=True), 1):
        name = f"{SIGNATURE}_{number}"
        _add(merged, model, codes, name)
        pairs.append((artifact, {**artifact.options, "signature": name}))
    merged.buffers = [Record("Buffer"), *(empty_buffer(False) for _ in contents)]
    files = {FILE: assembled(packed(merged, IDENTIFIER, TABLES_BYTES), contents)}
    return whole._replace(files=files), [
        artifact._replace(files=files, options=options) for artifact, options in pairs
    ]


def _move_buffers(model: Any, contents: list[Array], places: dict[bytes, int]) -> None:
    new_indices = {0: 0}
    for index, buffer in enumerate(model.buffers):
        data = None if index == 0 or buffer.data is None else np.asarray(buffer.data, np.uint8)
        if data is None:
            new_indices[index] = 0
            continue
        digest = hashlib.sha256(data.data).digest()
        if digest not in places:
            contents.append(data)
            places[digest] = len(contents)
        new_indices[index] = places[digest]
    for tensor in model.subgraphs[0].tensors:
        tensor.buffer = new_indices[tensor.buffer]


def _add(merged: Any, model: Any, codes: dict[tuple[int, int], int], name: str) -> None:
    graph, signature = model.subgraphs[0], model.signatureDefs[0]
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        key = (code.builtinCode, code.version)
        if key not in codes:
            codes[key] = len(merged.operatorCodes)
            merged.operatorCodes.append(code)
        operator.opcodeIndex = codes[key]
    graph.name, signature.signatureKey = name, name
    signature.subgraphIndex = len(merged.subgraphs)
    merged.subgraphs.append(graph)
    merged.signatureDefs.append(signature)
