"""A speech model's folder, whatever its format."""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.model.hugging_face_folder import model_type
from edgekit.generate.host.readers.speech.moonshine_folder import open_moonshine_folder
from edgekit.generate.host.readers.speech.speech_model import SpeechModel
from edgekit.generate.host.readers.speech.whisper_ctranslate2 import (
    is_ctranslate2_folder,
    open_ctranslate2_folder,
)
from edgekit.generate.host.readers.speech.whisper_folder import open_whisper_folder

FAMILIES = {"whisper": open_whisper_folder, "moonshine": open_moonshine_folder}
"""``model_type`` -> what opens such a folder of transformers."""


def is_speech_model(path: Path) -> bool:
    """Return whether a path is a folder with a speech model, by its content. Never raises."""
    return is_ctranslate2_folder(path) or model_type(path) in FAMILIES


def open_speech_model(path: Path) -> SpeechModel:
    """Open a path for which ``is_speech_model`` is true.

    Raises:
        ModelError: it is damaged, or lacks something.
    """
    if is_ctranslate2_folder(path):
        return open_ctranslate2_folder(path)
    return FAMILIES[model_type(path)](path)
