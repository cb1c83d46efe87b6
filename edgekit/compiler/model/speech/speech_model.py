"""Encoder-decoder that turns speech into tokens (Whisper, Moonshine), from any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from edgekit.compiler.model.encoder_decoder.config import EncoderDecoderModel
from edgekit.processing.spelling import BYTE_LEVEL
from edgekit.processing.tasks.transcribe.words import text_of
from edgekit.processing.tokenizer import token_texts
from edgekit.target.sample_stem import stem_sizes
from edgekit.target.text_rules import TextRules
from edgekit.target.token_rules import TokenRules


class SoundFormat(NamedTuple):
    """Settings of the log-mel features.

    Attributes:
        rate: Sample rate in Hz.
        frame: Samples of a frame, also the points of its Fourier transform.
        hop: Samples from one frame to the next.
    """

    rate: int = 16000
    frame: int = 400
    hop: int = 160


class SpokenTokens(NamedTuple):
    """Special tokens of the prompt.

    Attributes:
        start: Token that every text starts with.
        languages: Language code -> token; empty: the model knows one language and has no such tokens.
        transcribe: Token that asks for the spoken language; None: not needed.
        translate: Token that asks for English; None: the model does not translate.
        special: Tokens without a text, besides those that the rules have.
    """

    start: int
    languages: Mapping[str, int] = MappingProxyType({})
    transcribe: int | None = None
    translate: int | None = None
    special: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class SpeechModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        sound: Settings of its features; of samples, only the rate.
        tokens: Special tokens of the prompt.
        family: ``Whisper`` or ``Moonshine``.
        spelling: Spelling of texts in the vocabulary, as in ``TranscribeOptions``.
        further_windows: Further numbers of samples that both parts are compiled at, ascending.
        tokens_a_second: Most new tokens for each second of a sound; 0: any number.
    """

    rules: TokenRules | TextRules
    sound: SoundFormat
    tokens: SpokenTokens
    family: str = "Whisper"
    spelling: str = BYTE_LEVEL
    further_windows: tuple[int, ...] = ()
    tokens_a_second: float = 0.0

    @property
    def windows(self) -> tuple[int, ...]:
        """Return all numbers of samples of a window, ascending; () of features."""
        return (*self.further_windows, self.config.window) if self.config.window else ()

    def at_window(self, samples: int) -> SpeechModel:
        """Return the model with another number of samples of a window."""
        sizes = self.config._replace(window=samples, positions=stem_sizes(samples)[-1])
        return replace(self, config=sizes)

    @property
    def prompt(self) -> list[int]:
        """Return the prompt of a text without timestamps, in the first language."""
        language, task = list(self.tokens.languages.values())[:1], self.tokens.transcribe
        last = [self.rules.no_timestamps] if isinstance(self.rules, TokenRules) else []
        return [self.tokens.start, *language, *([] if task is None else [task]), *last]

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens.

        Raises:
            CardError: the tokenizer is damaged.
        """
        end = self.rules.end if isinstance(self.rules, TokenRules) else self.config.vocabulary
        return text_of(tokens, token_texts(self.tokenizer), end, self.spelling, self.tokens.special)
