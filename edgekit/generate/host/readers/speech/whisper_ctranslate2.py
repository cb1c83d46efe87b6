"""A Whisper model from a folder of CTranslate2 (faster-whisper): ``model.bin``, ``config.json`` and
``tokenizer.json``. Attention's q, k and v, or k and v, are one matrix there."""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.compiler.model.hugging_face_folder import read_json, read_part
from edgekit.errors import ModelError
from edgekit.generate.host.readers.encoder_decoder.config import (
    ATTENTION,
    EMBEDDING,
    POSITIONS,
    EncoderDecoderConfig,
    check_sizes,
)
from edgekit.generate.host.readers.speech.ctranslate2_file import (
    CTranslate2File,
    open_ctranslate2,
    specification_of,
)
from edgekit.generate.host.readers.speech.special_tokens import special_tokens
from edgekit.generate.host.readers.speech.speech_model import SoundFormat, SpeechModel
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES
from edgekit.tensor_spec import Array

MODEL, SPECIFICATION = "model.bin", "WhisperSpec"
GELU = 3
"""CTranslate2's ``ActivationType::GELU``."""
NORMS = {
    "self_attn_layer_norm": "self_attention",
    "encoder_attn_layer_norm": "attention",
    "final_layer_norm": "ffn",
}
SUFFIX = {"weight": "gamma", "bias": "beta"}


def is_ctranslate2_folder(folder: Path) -> bool:
    """Return whether a folder has a Whisper model of CTranslate2. Never raises."""
    return specification_of(folder / MODEL) == SPECIFICATION


def open_ctranslate2_folder(folder: Path) -> SpeechModel:
    """Open a folder for which ``is_ctranslate2_folder`` is true.

    Raises:
        ModelError: something is damaged, missing, or of a form that EdgeKit does not run.
    """
    file = open_ctranslate2(folder / MODEL)
    config = _config(file)
    tokenizer = read_part(folder / "tokenizer.json", TOKENIZER_LIMIT_BYTES)
    table = read_json(folder / "config.json", needed=False)
    settings = {
        "suppress_tokens": table.get("suppress_ids"),
        "begin_suppress_tokens": table.get("suppress_ids_begin"),
    }
    start, tokens, rules = special_tokens(tokenizer, settings, config.vocabulary, folder)
    digest = hashlib.sha256(file.content)
    digest.update(tokenizer)
    model = SpeechModel(
        folder.name or "whisper", config, rules, tokenizer, "CTranslate2", digest.hexdigest(),
        lambda name: _read(file, name, config), "Whisper", start, sound=SoundFormat(),
        tokens=tokens,
    )  # fmt: skip
    for name in config.weight_shapes():
        model.weight(name)
    return model


def _config(file: CTranslate2File) -> EncoderDecoderConfig:
    variables = file.variables
    layers = [
        len({name.split("/")[1] for name in variables if name.startswith(f"{part}/layer_")} - {"layer_norm"})
        for part in ("encoder", "decoder")
    ]
    try:
        vocabulary, width = variables["decoder/embeddings/weight"].shape
        mels = variables["encoder/conv1/weight"].shape[1]
        positions = variables["encoder/position_encodings/encodings"].shape[0]
        context = variables["decoder/position_encodings/encodings"].shape[0]
        mlp_width = variables["encoder/layer_0/ffn/linear_0/weight"].shape[0]
    except (KeyError, ValueError, IndexError) as problem:
        raise ModelError(
            f"{file.path}: {problem} is missing or has another shape; download it again"
        ) from None
    config = EncoderDecoderConfig(
        width,
        file.number("encoder/num_heads"),
        mlp_width,
        layers[0],
        layers[1],
        mels,
        positions,
        context,
        vocabulary,
    )
    check_sizes(config, str(file.path))
    if file.number("decoder/num_heads") != config.heads:
        raise ModelError(f"{file.path}: encoder and decoder have different numbers of heads")
    if not file.number("decoder/pre_norm", 1) or file.number("decoder/activation", GELU) != GELU:
        raise ModelError(f"{file.path}: has norms after the layers or another activation: not supported")
    return config


def _read(file: CTranslate2File, name: str, config: EncoderDecoderConfig) -> Array:
    """Read a weight by its name in ``EncoderDecoderConfig.weight_shapes``."""
    part, *rest = name.split(".")
    if name == EMBEDDING:
        return file.read("decoder/embeddings/weight")
    if name.endswith(POSITIONS):
        return file.read(f"{part}/position_encodings/encodings")
    if rest[0].startswith("conv"):
        return file.read(f"{part}/{rest[0]}/{rest[1]}")
    if rest[0] == "layer_norm":
        return file.read(f"{part}/layer_norm/{SUFFIX[rest[1]]}")
    prefix, place = f"{part}/layer_{rest[1]}/", rest[2]
    if place in NORMS:
        return file.read(f"{prefix}{NORMS[place]}/layer_norm/{SUFFIX[rest[3]]}")
    if place in ("fc1", "fc2"):
        return file.read(f"{prefix}ffn/linear_{int(place[2]) - 1}/{rest[3]}")
    number = ATTENTION.index(rest[3])
    if place == "self_attn":
        linear, row = ("linear_1", 0) if rest[3] == "out_proj" else ("linear_0", number)
        prefix += "self_attention/"
    else:
        linear, row = (("linear_0", 0), ("linear_1", 0), ("linear_1", 1), ("linear_2", 0))[number]
        prefix += "attention/"
    whole = file.read(f"{prefix}{linear}/{rest[4]}")
    return whole[row * config.width : (row + 1) * config.width]
