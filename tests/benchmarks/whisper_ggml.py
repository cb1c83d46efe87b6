"""A speech model as a file of whisper.cpp, with matrices in float16 or Q8_0 (32 int8 with one scale)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import IO

import numpy as np

from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host.pipeline.encoder_decoder.speech import card_of
from edgekit.generate.host.readers.speech.speech_model import SpeechModel
from edgekit.processing.audio_features import _filter_bank
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.transcripts.words import bytes_of
from edgekit.tensor_spec import Array

MAGIC, FLOAT32, FLOAT16, Q8 = 0x67676D6C, 0, 1, 8
FILE_TYPES = {FLOAT16: 1, Q8: 7}
NAMES = {
    "self_attn_layer_norm": "attn_ln", "encoder_attn_layer_norm": "cross_attn_ln",
    "final_layer_norm": "mlp_ln",
    "self_attn": "attn", "encoder_attn": "cross_attn", "fc1": "mlp.0", "fc2": "mlp.2",
    "q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out",
    "layers": "blocks", "embed_positions": "positional_embedding", "embed_tokens": "token_embedding",
}  # fmt: skip


def write_ggml(model: SpeechModel, path: Path, matrices: int) -> None:
    """Write a model that knows English only."""
    c, rules = model.config, model.rules
    assert isinstance(rules, TokenRules)
    (entry,) = (each for each in card_of(model).sources() if isinstance(each, AudioInput))
    assert entry.features is not None
    bands = _filter_bank(entry.features, entry.rate).T
    stored = json.loads(model.tokenizer)["model"]["vocab"]
    texts = sorted((number, text) for text, number in stored.items() if number < rules.end)
    with path.open("wb") as file:
        sizes = (
            c.positions,
            c.width,
            c.heads,
            c.encoder_layers,
            c.context,
            c.width,
            c.heads,
            c.decoder_layers,
        )
        file.write(struct.pack("<12i", MAGIC, c.vocabulary, *sizes, c.mels, FILE_TYPES[matrices]))
        file.write(struct.pack("<2i", *bands.shape) + bands.astype("<f4").tobytes())
        file.write(struct.pack("<i", len(texts)))
        for _, text in texts:
            content = bytes_of(text)
            file.write(struct.pack("<i", len(content)) + content)
        for name in c.weight_shapes():
            _write(file, _name(name), model.weight(name), matrices)


def _name(name: str) -> str:
    renamed = ".".join(NAMES.get(part, part) for part in name.split("."))
    renamed = renamed.replace("positional_embedding.weight", "positional_embedding")
    for part, norm in (("encoder", "ln_post"), ("decoder", "ln")):
        renamed = renamed.replace(f"{part}.layer_norm", f"{part}.{norm}")
    return renamed


def _write(file: IO[bytes], name: str, array: Array, matrices: int) -> None:
    if "conv" in name and name.endswith("bias"):
        array = array.reshape(-1, 1)
    kind = matrices if array.ndim == 2 else FLOAT16
    if array.ndim < 2 or "positional" in name or name.endswith("bias"):
        kind = FLOAT32
    file.write(struct.pack("<3i", array.ndim, len(name), kind))
    file.write(struct.pack(f"<{array.ndim}i", *array.shape[::-1]) + name.encode())
    if kind != Q8:
        file.write(np.ascontiguousarray(array).astype("<f4" if kind == FLOAT32 else "<f2").tobytes())
        return
    blocks = array.reshape(-1, 32)
    scales = (np.abs(blocks).max(1, keepdims=True) / 127).astype("<f2")
    steps = np.where(scales > 0, scales, 1).astype(np.float32)
    integers = np.clip(np.rint(blocks / steps), -127, 127).astype(np.int8)
    file.write(np.concatenate([scales.view(np.int8), integers], axis=1).tobytes())
