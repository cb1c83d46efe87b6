"""Text from language models, on the device.

    from edgekit.runtime.generate import TextSession

    with TextSession("chat.edgekit") as session:
        for piece in session.generate("Once upon a time", max_tokens=64):
            print(piece, end="", flush=True)

Standard library and numpy; the extra ``text`` has what reads tokenizers, templates of chats, and schemas.
"""

from __future__ import annotations

from edgekit.runtime.generate.text_parts import TextParts
from edgekit.runtime.generate.text_session import TextSession
from edgekit.runtime.generate.text_stream import TextStream
from edgekit.runtime.generated_text import GeneratedText

__all__ = ["GeneratedText", "TextParts", "TextSession", "TextStream"]
