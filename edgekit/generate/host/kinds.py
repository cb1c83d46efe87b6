"""Kinds of models that write tokens, a row a kind (compiler/model/model_kinds.py)."""

from __future__ import annotations

from edgekit.compiler.model.hugging_face_folder import model_type
from edgekit.compiler.model.model_kinds import ModelKind
from edgekit.generate.host.readers.language.hugging_face_config import (
    MODEL_TYPES,
    TEXT2TEXT_FAMILIES,
    text2text_family,
)
from edgekit.generate.host.readers.language.open_model import is_language_model
from edgekit.generate.host.readers.speech.open_speech import FAMILIES, is_speech_model
from edgekit.generate.host.readers.text2text.open_text2text import is_text2text_model

_PIPELINE = "edgekit.generate.host.pipeline"
SPEECH = ModelKind(
    name="speech models",
    options=("samples",),
    reads_folder=lambda folder, _: model_type(folder) in FAMILIES,
    matches=is_speech_model,
    builder=f"{_PIPELINE}.encoder_decoder.bundle:build_speech",
    encoder_decoders=tuple(FAMILIES),
)
TEXT2TEXT = ModelKind(
    name="text-to-text models",
    options=("samples", "context"),
    reads_folder=lambda folder, has_weights: has_weights and bool(text2text_family(folder)),
    matches=is_text2text_model,
    builder=f"{_PIPELINE}.encoder_decoder.bundle:build_text2text",
    encoder_decoders=tuple(TEXT2TEXT_FAMILIES),
)
LANGUAGE = ModelKind(
    name="language models",
    options=("context", "draft", "adapters", "chat_template"),
    reads_folder=lambda folder, _: model_type(folder) in MODEL_TYPES,
    matches=is_language_model,
    builder=f"{_PIPELINE}.language.language_bundle:build_language_model",
)
KINDS = (SPEECH, TEXT2TEXT, LANGUAGE)
"""The first that matches builds a model."""
