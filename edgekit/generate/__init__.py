"""Models that write tokens: language models, speech recognition, text to text.

    from edgekit.generate import TextSession

    with TextSession("chat.edgekit") as session:
        for piece in session.generate("Once upon a time", max_tokens=64):
            print(piece, end="", flush=True)

``device/`` needs the standard library and numpy; the extra ``text`` reads tokenizers, chat templates and
schemas. ``host/`` builds bundles. The names below are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgekit.generate.device.generated_text import GeneratedText
    from edgekit.generate.device.text_metrics import TextMetrics
    from edgekit.generate.device.text_session import TextSession
    from edgekit.generate.device.text_stream import TextStream
    from edgekit.generate.device.text_tokens import TextParts

MODULES = {
    "GeneratedText": "generated_text",
    "TextMetrics": "text_metrics",
    "TextParts": "text_tokens",
    "TextSession": "text_session",
    "TextStream": "text_stream",
}
"""Public name -> module of ``device``."""

__all__ = ["GeneratedText", "TextMetrics", "TextParts", "TextSession", "TextStream"]


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'edgekit.generate' has no attribute {name!r}")
    return getattr(import_module(f"edgekit.generate.device.{MODULES[name]}"), name)
