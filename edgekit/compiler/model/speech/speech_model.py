"""Encoder-decoder that turns speech into tokens (Whisper), from any source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from edgekit.compiler.model.encoder_decoder.config import EncoderDecoderModel
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
    """

    start: int
    languages: Mapping[str, int]
    transcribe: int | None


@dataclass(frozen=True, eq=False)
class SpeechModel(EncoderDecoderModel):
    """An opened model.

    Attributes:
        rules: Rules of the tokens that it may generate.
        sound: Settings of its features.
        tokens: Special tokens of the prompt.
    """

    rules: TokenRules
    sound: SoundFormat
    tokens: SpokenTokens
