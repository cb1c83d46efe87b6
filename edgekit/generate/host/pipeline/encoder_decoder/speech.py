"""Build job of a speech model: recordings that variants write down, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.generate.device.encoder_decoder import FEATURES, MASK, SAMPLES
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host import kinds
from edgekit.generate.host.pipeline.encoder_decoder.job import (
    FORMS,
    OUTPUTS,
    EncoderDecoderJob,
    JudgedText,
    Kind,
    Sources,
    constants,
)
from edgekit.generate.host.pipeline.encoder_decoder.recordings import read_recordings
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.generate.host.readers.speech.speech_model import SpeechModel
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.task import Task
from edgekit.processing.transcripts.options import TOKENIZER_FILE, TranscribeOptions
from edgekit.processing.transcripts.words import word_edits, words_of
from edgekit.target.precisions import FULL_PRECISION

FEATURE_SHIFT, FEATURE_SCALE = -4.0, 4.0
"""Features are (log10 + 4) / 4 (Whisper's ``log_mel_spectrogram``)."""


def _open(path: Path, context: int | None) -> SpeechModel:
    return open_speech_model(path)  # a context is not an option of such models


def _read(samples: object, model: SpeechModel) -> Sources:
    entry = card_of(model).sources()[0]
    assert isinstance(entry, AudioInput)
    return read_recordings(samples, entry, model.further_windows)


def _described(job: EncoderDecoderJob) -> str:
    return f"{sum(len(job.model.text_of(text.tokens).split()) for text in job.texts)} words"


def _judge(job: EncoderDecoderJob, written: Sequence[JudgedText], variant: VariantBuild) -> tuple[str, str]:
    """Judge a variant by its probabilities of no speech, and by its words where the recordings are the
    user's."""
    limit, from_user = job.limits[variant.precision], job.sources.from_user
    expected, actual = (np.concatenate([text.figures for text in rows]) for rows in (job.texts, written))
    silence = compare([expected], [actual], FORMS[variant.precision].figures_db)
    variant.evidence["accuracy"]["figures"] = silence.as_json()
    texts = [[job.model.text_of(text.tokens) for text in rows] for rows in (job.texts, written)]
    words, edits = sum(len(words_of(text)) for text in texts[0]), sum(map(word_edits, *texts))
    variant.evidence["transcription"] = {
        "recordings": len(written), "given": from_user, "words": words, "different": edits, "limit": limit,
        "seconds": round(sum(text.source.length for text in written) / job.model.sound.rate, 2),
    }  # fmt: skip
    reason = ""
    if not silence.within_limit:
        reason = f"probability of no speech: {silence}; {silence.limit_db:g} dB is required"
    elif from_user and edits > limit * words:
        reason = f"{edits} of {words} words differ from the float model's; {100 * limit:g} % is allowed"
    return f"; {words - edits} of {words} words are the float model's" if from_user else "", reason


def card_of(model: SpeechModel) -> Card:
    """Return the card: the sound's features or samples, constants for prompt and limit, the task."""
    c, tokens, rules = model.config, model.tokens, model.rules
    limit = c.context - 1 if c.window else c.context // 2
    inputs: dict[str, AudioInput | TensorInput] = {
        **(_samples(model) if c.window else _features(model)),
        **constants(model, limit),
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


SPEECH = Kind(
    models=kinds.SPEECH.name, samples="recordings", entry="speech_model",
    limits={name: bar.words for name, bar in FORMS.items()}, loss="of words that int8 may write otherwise",
    exact=(FULL_PRECISION,), needs_samples=True, judges_all=False,
    new_tokens=lambda context: context // 2, open=_open, read=_read, card=card_of, described=_described,
    judge=_judge,
)  # fmt: skip
"""Build of a speech model. Its limits are shares of words that differ from the float model's."""
