"""Build job of a speech model: recordings that variants write down, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.encoder_decoder.job import (
    FORMS,
    OUTPUTS,
    EncoderDecoderJob,
    Sources,
    VariantText,
    constants,
    padded,
)
from edgekit.compiler.build.encoder_decoder.recordings import read_recordings
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.model.speech.open_speech import open_speech_model
from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.task import Task
from edgekit.processing.tasks.transcribe.metric import word_edits
from edgekit.processing.tasks.transcribe.options import TOKENIZER_FILE, TranscribeOptions
from edgekit.processing.tasks.transcribe.words import words_of
from edgekit.target.encoder_decoder import FEATURES, MASK, PROMPT_TOKENS, SAMPLES
from edgekit.target.precisions import FULL_PRECISION
from edgekit.target.token_rules import TokenRules

FEATURE_SHIFT, FEATURE_SCALE = -4.0, 4.0
"""Features are (log10 + 4) / 4 (Whisper's ``log_mel_spectrogram``)."""


@dataclass(eq=False)
class SpeechJob(EncoderDecoderJob):
    """Build job of a speech model. Its limits are shares of words that differ from the float model's."""

    kind: ClassVar[str] = "speech models"
    entry: ClassVar[str] = "speech_model"
    samples: ClassVar[str] = "recordings"
    options: ClassVar[tuple[str, ...]] = ("--samples",)
    loss: ClassVar[str] = "of words that int8 may write otherwise"
    exact: ClassVar[tuple[str, ...]] = (FULL_PRECISION,)
    judges_all: ClassVar[bool] = False
    model: SpeechModel

    @staticmethod
    def open(path: Path, context: int | None) -> SpeechModel:
        """Open the folder; a context is not an option of such models."""
        return open_speech_model(path)

    @staticmethod
    def read_sources(samples: object, model: SpeechModel) -> Sources:
        """Read recordings, or generate a sound."""
        entry = card_of(model).sources()[0]
        assert isinstance(entry, AudioInput)
        return read_recordings(samples, entry, model.further_windows)

    @staticmethod
    def default_limits() -> dict[str, float]:
        """Return the largest share of different words by precision."""
        return {name: bar.words for name, bar in FORMS.items()}

    @classmethod
    def checked_limits(cls, request: BuildRequest) -> dict[str, float]:
        """Return the largest share of different words by precision, with ``--max-drop``.

        Raises:
            UsageError: ``--max-drop`` is not a percentage, does not apply, or has no recordings.
        """
        limits = super().checked_limits(request)
        if request.max_drop is not None and request.samples is None:
            raise UsageError("--max-drop of a speech model needs recordings; add --samples FOLDER")
        return limits

    def card(self) -> Card:
        """Return the card, with its files."""
        return card_of(self.model)

    def described(self) -> str:
        """Return the number of words that the float reference writes."""
        return f"{sum(len(self.model.text_of(text.tokens).split()) for text in self.texts)} words"

    def new_tokens(self) -> int:
        """Return the maximum number of new tokens of a text."""
        return self.model.config.context // 2

    def judge_texts(self, written: Sequence[VariantText], variant: VariantBuild) -> str:
        """Add the evidence of a variant's probabilities of no speech, and of its words."""
        limit, from_user = self.limits[variant.precision], self.sources.from_user
        expected, actual = (np.concatenate([text.figures for text in rows]) for rows in (self.texts, written))
        silence = compare([expected], [actual], FORMS[variant.precision].figures_db)
        variant.evidence["accuracy"]["figures"] = silence.as_json()
        texts = [[self.model.text_of(text.tokens) for text in rows] for rows in (self.texts, written)]
        words, edits = sum(len(words_of(text)) for text in texts[0]), sum(map(word_edits, *texts))
        variant.evidence["transcription"] = {
            "recordings": len(written), "given": from_user, "words": words, "different": edits,
            "seconds": round(sum(source.length for source in self.sources.all) / self.model.sound.rate, 2),
            "limit": limit,
        }  # fmt: skip
        if not silence.within_limit:
            return f"probability of no speech: {silence}; {silence.limit_db:g} dB is required"
        if from_user and edits > limit * words:
            return f"{edits} of {words} words differ from the float model's; {100 * limit:g} % is allowed"
        return ""

    @staticmethod
    def result(variant: VariantBuild) -> str:
        """Return the number of a variant's words that are the float model's."""
        counts = variant.evidence.get("transcription")
        if counts is None or not counts["given"]:
            return ""
        return f"; {counts['words'] - counts['different']} of {counts['words']} words are the float model's"


def card_of(model: SpeechModel) -> Card:
    """Return the card: the sound's features or samples, constants for prompt and limit, the task."""
    c, tokens, rules = model.config, model.tokens, model.rules
    limit = c.context - 1 if c.window else c.context // 2
    inputs: dict[str, AudioInput | TensorInput] = {
        **(_samples(model) if c.window else _features(model)),
        **constants(padded([model.start], PROMPT_TOKENS), limit),
    }
    options = TranscribeOptions(
        tokenizer=TOKENIZER_FILE, spelling=model.spelling, start=model.start,
        transcribe=_token(tokens.transcribe), translation=_token(tokens.translate),
        languages=tuple(tokens.languages), language_tokens=tuple(tokens.languages.values()),
        special=model.special, tokens_a_second=model.tokens_a_second, end=c.vocabulary,
        timestamp_first=c.vocabulary, timestamps=False, no_timestamps=-1,
    )  # fmt: skip
    if isinstance(rules, TokenRules):
        options = replace(
            options, end=rules.end, no_timestamps=rules.no_timestamps, timestamps=True,
            timestamp_first=rules.timestamp_first, step_s=2 * model.sound.hop / model.sound.rate,
        )  # fmt: skip
    task = Task("transcribe", "whisper", OUTPUTS, (), options)
    return Card(model.name, dict(inputs), task, files={TOKENIZER_FILE: model.tokenizer})


def _token(token: int | None) -> int:
    return -1 if token is None else token


def _samples(model: SpeechModel) -> dict[str, AudioInput | TensorInput]:
    shape, window = (1, model.config.window), model.config.window
    mask = TensorInput(MASK, shape, value=(1.0,), dtype="float32")
    return {SAMPLES: AudioInput(SAMPLES, shape, model.sound.rate, window, window), MASK: mask}


def _features(model: SpeechModel) -> dict[str, AudioInput | TensorInput]:
    c, sound = model.config, model.sound
    features = Features(
        "mel", sound.frame, sound.hop, sound.frame, align="center", center="reflect", power=2, mels=c.mels,
        fmin=0.0, fmax=sound.rate / 2, mel_scale="slaney", mel_norm="slaney", log="log10", floor=1e-10,
        range=8.0,
    )  # fmt: skip
    window = c.frames * sound.hop
    return {
        FEATURES: AudioInput(
            FEATURES, (1, c.mels, c.frames), sound.rate, window, window, features=features, layout="FT",
            mean=FEATURE_SHIFT, std=FEATURE_SCALE,
        ),
    }  # fmt: skip
