"""A language model's file, whatever its format."""

from __future__ import annotations

from pathlib import Path

from edgekit.model.language.gguf_file import MAGIC
from edgekit.model.language.gguf_model import open_gguf_model
from edgekit.model.language.language_model import LanguageModel


def is_language_model(path: Path) -> bool:
    """Whether a path is a language model's, by content. Never raises."""
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_language_model(path: Path) -> LanguageModel:
    """Open a path for which ``is_language_model`` is true.

    Raises:
        ModelError: it is damaged, of another architecture, or lacks something.
    """
    return open_gguf_model(path)
