"""Encoder-decoder that turns speech into tokens (Whisper, Moonshine), from any source."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from edgekit.errors import ModelError
from edgekit.generate.device.embedding_table import stem_sizes
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host.readers.encoder_decoder.config import EncoderDecoderModel
from edgekit.generate.host.readers.encoder_decoder.generation_settings import tokens_of
from edgekit.generate.host.readers.folder_fields import entries, number, text
from edgekit.processing.tokenizer import token_texts
from edgekit.processing.transcripts.words import text_of
from edgekit.tensor_spec import Json

START, END, NO_TIMESTAMPS = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
TRANSCRIBE, TRANSLATE = "<|transcribe|>", "<|translate|>"
MULTILINGUAL_VOCABULARY = 51865
"""Tokens of the smallest multilingual Whisper; those of one language have 51,864."""


class SoundFormat(NamedTuple):
    """Settings of the log-mel features.

    Attributes:
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


def special_tokens(
    tokenizer: bytes, settings: Mapping[str, Json], vocabulary: int, folder: Path
) -> tuple[int, LanguageTokens, TokenRules]:
    """Return the token that every text starts with, those of language and task, and the rules.

    Args:
        tokenizer: Content of ``tokenizer.json``.
        settings: ``suppress_tokens``, ``begin_suppress_tokens``, ``is_multilingual``,
            ``max_initial_timestamp_index``, as in ``generation_config.json``; each may be absent.

    Raises:
        ModelError: the tokenizer is damaged or lacks a token, or a setting is malformed.
    """
    table: Json
    try:
        table = json.loads(tokenizer)
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict) or not table.get("added_tokens"):
        raise ModelError(f"{folder}: tokenizer.json has no list of added tokens; download it again")
    file = "tokenizer.json"
    added = {
        text(entry, "content", folder, file=file): number(entry, "id", folder, file=file)
        for entry in entries(table, "added_tokens", folder, file)
    }
    missing = [text for text in (START, END, NO_TIMESTAMPS) if text not in added]
    if missing:
        raise ModelError(f"{folder}: tokenizer.json has no token {missing[0]}, which Whisper models need")
    multilingual = settings.get("is_multilingual")
    if not isinstance(multilingual, bool):
        multilingual = vocabulary >= MULTILINGUAL_VOCABULARY
    named = range(added[START] + 1, min(added.get(token, 1 << 31) for token in (TRANSLATE, TRANSCRIBE)))
    languages = {
        text[2:-2]: number
        for text, number in added.items()
        if number in named and text.startswith("<|") and text.endswith("|>")
    }
    if multilingual and (not languages or TRANSCRIBE not in added):
        raise ModelError(f"{folder}: tokenizer.json has no tokens of languages and tasks")
    spoken = LanguageTokens()
    if multilingual:
        spoken = LanguageTokens(languages, added[TRANSCRIBE], added.get(TRANSLATE))
    limit = settings.get("max_initial_timestamp_index")
    rules = TokenRules(
        added[END],
        added[NO_TIMESTAMPS],
        added[NO_TIMESTAMPS] + 1,
        next((added[text] for text in NO_SPEECH if text in added), -1),
        tokens_of(settings, "suppress_tokens", folder, smallest=-1),
        tokens_of(settings, "begin_suppress_tokens", folder, smallest=-1),
        limit if type(limit) is int and limit >= 0 else 50,
    )
    try:
        rules.check(vocabulary)
    except ValueError as problem:
        raise ModelError(f"{folder}: {problem}; tokenizer and model do not belong together") from None
    tokens = [added[START], *spoken.languages.values(), spoken.transcribe or 0, spoken.translate or 0]
    if max(tokens) >= vocabulary:
        raise ModelError(f"{folder}: tokenizer.json has tokens that the model does not have")
    return added[START], spoken, rules
