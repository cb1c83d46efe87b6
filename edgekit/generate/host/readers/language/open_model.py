"""A language model's file or folder, whatever its format."""

from __future__ import annotations

from pathlib import Path

from edgekit.generate.host.readers.language.gguf_file import MAGIC
from edgekit.generate.host.readers.language.gguf_model import open_gguf_model
from edgekit.generate.host.readers.language.hugging_face import is_hugging_face, open_hugging_face
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.system.regular_file import open_regular


def is_language_model(path: Path) -> bool:
    """Return whether a path is a language model, by its content. Never raises."""
    try:
        if path.is_dir():
            return is_hugging_face(path)
        with open_regular(path) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def open_language_model(path: Path) -> LanguageModel:
    """Open a path for which ``is_language_model`` is true.

    Raises:
        ModelError: it is damaged, of another architecture, or lacks something.
    """
    return open_hugging_face(path) if path.is_dir() else open_gguf_model(path)
