"""Encoder-decoder that turns speech into tokens (Whisper, Moonshine), from any source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from edgekit.generate.device.sample_stem import stem_sizes
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host.readers.encoder_decoder.config import EncoderDecoderModel
from edgekit.processing.tokenizer import token_texts
from edgekit.processing.transcripts.words import text_of


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


class LanguageTokens(NamedTuple):
    """Tokens of the prompt that choose language and task.

    Attributes:
        languages: Language code -> token; empty: the model knows one language and has no such tokens.
        transcribe: Token that asks for the spoken language; None: not needed.
        translate: Token that asks for English; None: the model does not translate.
    """

    languages: Mapping[str, int] = MappingProxyType({})
    transcribe: int | None = None
    translate: int | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class SpeechModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        sound: Settings of its features; of samples, only the rate.
        tokens: Tokens of the prompt that choose language and task.
        further_windows: Further numbers of samples that both parts are compiled at, ascending.
        tokens_a_second: Most new tokens for each second of a sound; 0: any number.
    """

    sound: SoundFormat
    tokens: LanguageTokens
    further_windows: tuple[int, ...] = ()
    tokens_a_second: float = 0.0

    def at_shapes(self) -> list[EncoderDecoderModel]:
        """Return the model at each of its windows, ascending."""
        further = [
            self.config._replace(window=samples, positions=stem_sizes(samples)[-1])
            for samples in self.further_windows
        ]
        return [*(replace(self, config=sizes) for sizes in further), self]

    @property
    def prompt(self) -> list[int]:
        """Return the prompt of a text without timestamps, in the first language."""
        language, task = list(self.tokens.languages.values())[:1], self.tokens.transcribe
        last = [self.rules.no_timestamps] if isinstance(self.rules, TokenRules) else []
        return [self.start, *language, *([] if task is None else [task]), *last]

    def text_of(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens.

        Raises:
            CardError: the tokenizer is damaged.
        """
        end = self.rules.end if isinstance(self.rules, TokenRules) else self.config.vocabulary
        return text_of(tokens, token_texts(self.tokenizer), end, self.spelling, self.special)
