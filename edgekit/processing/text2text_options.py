"""Options of a text that is written from another one."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.processing.task_decoder import at_least, one_of
from edgekit.processing.transcripts.words import BYTE_LEVEL, SENTENCEPIECE

TOKENIZER_FILE, SOURCE_TOKENIZER_FILE = "tokenizer.json", "source-tokenizer.json"


@dataclass(frozen=True)
class Text2TextOptions:
    """Options of the tokens. The build writes all but the first from the model's files.

    Attributes:
        max_tokens: Maximum number of new tokens; 0: as many as the bundle's context has.
        tokenizer: Name of a ``tokenizer.json`` beside the card, with the texts of the generated tokens.
        spelling: Spelling of texts in its vocabulary: ``byte-level`` (GPT-2, BART) or ``sentencepiece`` (T5,
            Marian).
        start: Token that every text starts with.
        special: Tokens without a text.
    """

    max_tokens: int = 0
    tokenizer: str = TOKENIZER_FILE
    spelling: str = SENTENCEPIECE
    start: int = 0
    special: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        at_least(0, max_tokens=self.max_tokens, start=self.start)
        one_of((BYTE_LEVEL, SENTENCEPIECE), spelling=self.spelling)
