"""The readers of language models: a GGUF file, and a safetensors file."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from edgekit.errors import ModelError
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.safetensors_file import SIZES, open_safetensors
from tests.fixtures.bundle_mutations import bytes_changed
from tests.fixtures.gguf_files import write_tiny
from tests.fixtures.hugging_face_files import safetensors_bytes
from tests.fuzz.target import READ, Target, refused

HEAD_BYTES = 16_000
"""Of the GGUF file, up to the tensors' places; its data is changed where this is passed."""


def language_models(folder: Path) -> dict[str, Target]:
    whole = write_tiny(folder / "tiny.gguf").read_bytes()
    values = {name: ("F32", np.arange(12, dtype=np.float32).reshape(3, 4)) for name in "ab"}
    tensors = safetensors_bytes({**values, "c": ("BF16", np.arange(6, dtype="<u2"))})
    gguf, safetensors = folder / "case.gguf", folder / "case.safetensors"

    def read_gguf(content: bytes) -> str:
        gguf.write_bytes(content)
        try:
            model = open_gguf_model(gguf)
            for name in model.weight_names:
                model.weight(name)
        except ModelError as problem:
            return refused(problem)
        return READ

    def read_safetensors(content: bytes) -> str:
        safetensors.write_bytes(content)
        try:
            file = open_safetensors(safetensors)
            for name, tensor in file.tensors.items():
                if tensor.dtype in SIZES:
                    assert file.read(name).shape == tensor.shape
        except ModelError as problem:
            return refused(problem, safetensors)
        return READ

    def changed_head(draw: random.Random) -> bytes:
        return bytes_changed(draw, whole[:HEAD_BYTES]) + whole[HEAD_BYTES:]

    return {
        "gguf": Target(5, changed_head, read_gguf),
        "safetensors": Target(5, lambda draw: bytes_changed(draw, tensors), read_safetensors),
    }
