"""A speech model's folder, whatever its format."""

from __future__ import annotations

from pathlib import Path

from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.compiler.model.speech.whisper_ctranslate2 import is_ctranslate2_folder, open_ctranslate2_folder
from edgekit.compiler.model.speech.whisper_folder import is_whisper_folder, open_whisper_folder


def is_speech_model(path: Path) -> bool:
    """Return whether a path is a folder with a Whisper model, by its content. Never raises."""
    return is_ctranslate2_folder(path) or is_whisper_folder(path)


def open_speech_model(path: Path) -> SpeechModel:
    """Open a path for which ``is_speech_model`` is true.

    Raises:
        ModelError: it is damaged, or lacks something.
    """
    return open_ctranslate2_folder(path) if is_ctranslate2_folder(path) else open_whisper_folder(path)
