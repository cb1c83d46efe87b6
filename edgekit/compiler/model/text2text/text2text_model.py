"""Encoder-decoder that turns a text into another one (T5, BART, Marian)."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgekit.compiler.model.encoder_decoder.config import EncoderDecoderModel
from edgekit.target.text_rules import TextRules


@dataclass(frozen=True, eq=False)
class Text2TextModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        family: ``T5``, ``BART`` or ``Marian``.
        source_tokenizer: Content of the ``tokenizer.json`` that splits texts; often the same as
            ``tokenizer``.
        start: Token that every written text starts with (``decoder_start_token_id``).
        pad: Token that a source is padded with.
        special: Tokens without a text.
        spelling: Spelling of texts in the vocabulary, as in ``Text2TextOptions``.
    """

    rules: TextRules
    family: str
    source_tokenizer: bytes = field(repr=False)
    start: int
    pad: int
    special: tuple[int, ...]
    spelling: str
