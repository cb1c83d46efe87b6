"""Options of a transcription."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.processing.task_decoder import one_of, within
from edgekit.processing.transcripts.words import BYTE_LEVEL, SENTENCEPIECE

TOKENIZER_FILE = "tokenizer.json"


@dataclass(frozen=True)
class TranscribeOptions:
    """Options of Whisper's and Moonshine's tokens. The build writes all but the first five from the model's
    files.

    Attributes:
        timestamps: Whether segments have times, by which a long sound is also cut into windows. Without, it
            is cut where it is quiet. Moonshine has none.
        language: Code of the spoken language, e.g. ``de``; "": found out from the first window.
        translate: Whether to write English, whatever is spoken; for models that know several languages.
        no_speech: Probability of no speech from which on an unlikely text is dropped.
        unlikely: Mean log probability of a text's tokens below which it is unlikely.
        tokenizer: Name of a ``tokenizer.json`` beside the card.
        spelling: Spelling of texts in its vocabulary: ``byte-level`` (Whisper) or ``sentencepiece``.
        start, end, no_timestamps, transcribe, translation: Special tokens; -1 where there is none.
        timestamp_first: Token of the timestamp 0.
        step_s: Seconds from one timestamp to the next.
        languages: Codes of the languages that the model knows; empty: one, without a token.
        language_tokens: Their tokens.
        special: Tokens without a text, besides those from ``end`` on.
        tokens_a_second: Most new tokens for each second of a sound; 0: any number.
    """

    timestamps: bool = True
    language: str = ""
    translate: bool = False
    no_speech: float = 0.6
    unlikely: float = -1.0
    tokenizer: str = TOKENIZER_FILE
    spelling: str = BYTE_LEVEL
    start: int = 0
    end: int = 0
    no_timestamps: int = 0
    transcribe: int = -1
    translation: int = -1
    timestamp_first: int = 0
    step_s: float = 0.02
    languages: tuple[str, ...] = ()
    language_tokens: tuple[int, ...] = ()
    special: tuple[int, ...] = ()
    tokens_a_second: float = 0.0

    def __post_init__(self) -> None:
        within(0.0, 1.0, no_speech=self.no_speech)
        one_of((BYTE_LEVEL, SENTENCEPIECE), spelling=self.spelling)
        if self.timestamps and self.no_timestamps < 0:
            raise ValueError("timestamps is true, but the model has no timestamps; leave it out")
        if self.translate and self.translation < 0:
            raise ValueError(
                "translate is true, but the model knows one language only; leave it out, or build a "
                "multilingual Whisper model"
            )
        if not 0 < self.step_s < 10:
            raise ValueError(f"step_s is {self.step_s:g}; it must be above 0")
        if len(self.languages) != len(self.language_tokens):
            raise ValueError(
                f"languages has {len(self.languages)} entries but language_tokens {len(self.language_tokens)}"
            )
        if self.language and self.language not in self.languages:
            available = ", ".join(self.languages) or "one language only, so leave it out"
            raise ValueError(f"language is {self.language!r}; the model knows {available}")
