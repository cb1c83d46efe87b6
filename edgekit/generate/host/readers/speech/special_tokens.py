"""Special tokens and rules of a Whisper model, from its tokenizer and its generation settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from edgekit.errors import ModelError
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host.readers.encoder_decoder.generation_settings import tokens_of
from edgekit.generate.host.readers.folder_fields import entries, number, text
from edgekit.generate.host.readers.speech.speech_model import LanguageTokens
from edgekit.tensor_spec import Json

START, END, NO_TIMESTAMPS = "<|startoftranscript|>", "<|endoftext|>", "<|notimestamps|>"
NO_SPEECH = ("<|nospeech|>", "<|nocaptions|>")
TRANSCRIBE, TRANSLATE = "<|transcribe|>", "<|translate|>"
MULTILINGUAL_VOCABULARY = 51865
"""Tokens of the smallest multilingual Whisper; those of one language have 51,864."""


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
