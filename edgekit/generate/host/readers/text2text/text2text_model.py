"""Encoder-decoder that turns a text into another one (T5, BART, Marian)."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgekit.generate.device.text_rules import TextRules
from edgekit.generate.host.readers.encoder_decoder.config import EncoderDecoderModel


@dataclass(frozen=True, eq=False)
class Text2TextModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        source_tokenizer: Content of the ``tokenizer.json`` that splits texts; often the same as
            ``tokenizer``.
        pad: Token that a source is padded with.
    """

    rules: TextRules
    source_tokenizer: bytes = field(repr=False, kw_only=True)
    pad: int = field(kw_only=True)
