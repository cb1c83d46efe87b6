"""A Whisper model from a folder of transformers: ``config.json``, ``model.safetensors``, ``tokenizer.json``,
and where they exist ``generation_config.json`` and ``preprocessor_config.json``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.compiler.model.hugging_face_folder import read_json, read_part
from edgekit.errors import ModelError
from edgekit.generate.host.readers.encoder_decoder.config import EncoderDecoderConfig, check_sizes
from edgekit.generate.host.readers.encoder_decoder.generation_settings import generation_settings
from edgekit.generate.host.readers.folder_fields import refuse_different
from edgekit.generate.host.readers.language.hugging_face import (
    check_weights,
    folder_digest,
    tensor_files,
    title_of,
)
from edgekit.generate.host.readers.speech.speech_model import SoundFormat, SpeechModel, special_tokens
from edgekit.processing.tokenizer import TOKENIZER_LIMIT_BYTES
from edgekit.tensor_spec import Array, Json

SIZES = {
    "width": "d_model", "heads": "encoder_attention_heads", "mlp_width": "encoder_ffn_dim",
    "encoder_layers": "encoder_layers", "decoder_layers": "decoder_layers", "mels": "num_mel_bins",
    "positions": "max_source_positions", "context": "max_target_positions", "vocabulary": "vocab_size",
}  # fmt: skip
"""Size -> its key in ``config.json``."""
EQUAL = (("encoder_attention_heads", "decoder_attention_heads"), ("encoder_ffn_dim", "decoder_ffn_dim"))


def open_whisper_folder(folder: Path) -> SpeechModel:
    """Open a folder whose ``model_type`` is ``whisper``.

    Raises:
        ModelError: something is damaged, missing, or of a form that EdgeKit does not run.
    """
    table = read_json(folder / "config.json")
    config = _config(table, folder)
    files = tensor_files(folder)
    prefix = "model." if "model.encoder.conv1.weight" in files else ""
    shapes = {prefix + name: shape for name, shape in config.weight_shapes().items()}
    check_weights(shapes, files, folder, "Whisper")
    tokenizer = read_part(folder / "tokenizer.json", TOKENIZER_LIMIT_BYTES)
    settings = generation_settings(table, folder)
    start, tokens, rules = special_tokens(tokenizer, settings, config.vocabulary, folder)

    def read(name: str) -> Array:
        return files[prefix + name].read(prefix + name)

    return SpeechModel(
        title_of(table, folder, "whisper"), config, rules, tokenizer, "Hugging Face",
        folder_digest(folder, files), read, "Whisper", start, sound=_sound(folder, config), tokens=tokens,
    )  # fmt: skip


def _config(table: Mapping[str, Json], folder: Path) -> EncoderDecoderConfig:
    source = f"{folder}: config.json"
    sizes: dict[str, Any] = {name: table.get(key) for name, key in SIZES.items()}
    config = EncoderDecoderConfig(**sizes)
    check_sizes(config, source)
    refuse_different(table, EQUAL, folder)
    if table.get("activation_function", "gelu") != "gelu":
        raise ModelError(f"{source}: activation {str(table['activation_function'])[:40]!r} is not supported")
    if table.get("scale_embedding"):
        raise ModelError(f"{source}: scale_embedding is not supported")
    return config


def _sound(folder: Path, config: EncoderDecoderConfig) -> SoundFormat:
    table = read_json(folder / "preprocessor_config.json", needed=False)
    plain = SoundFormat()
    sound = SoundFormat(
        table.get("sampling_rate", plain.rate),
        table.get("n_fft", plain.frame),
        table.get("hop_length", plain.hop),
    )
    if not all(type(size) is int and 2 <= size <= 1 << 17 for size in sound) or sound.hop > sound.frame:
        raise ModelError(f"{folder}: preprocessor_config.json has invalid settings; download it again")
    mels = table.get("feature_size", config.mels)
    if mels != config.mels:
        raise ModelError(
            f"{folder}: preprocessor_config.json has {str(mels)[:20]} mel bands, but config.json "
            f"{config.mels}"
        )
    return sound
