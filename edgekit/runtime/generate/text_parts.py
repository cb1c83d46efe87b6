"""What a language model has besides its decoder."""

from __future__ import annotations

from typing import NamedTuple


class TextParts(NamedTuple):
    """The tokenizer and what belongs to it.

    Attributes:
        tokenizer: The content of ``tokenizer.json``.
        stop_ids: Tokens that end a text.
        template: Of a chat, in Jinja as Hugging Face's tokenizers have it; "": the model is not for chats.
        bos: The text of the token that begins a text, for the template.
        eos: That of the token that ends one.
    """

    tokenizer: bytes
    stop_ids: tuple[int, ...] = ()
    template: str = ""
    bos: str = ""
    eos: str = ""
