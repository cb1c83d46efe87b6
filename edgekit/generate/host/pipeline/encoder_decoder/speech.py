"""Build job of a speech model: recordings that variants write down, and their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import UsageError
from edgekit.generate.device.embedding_table import LEAST_SAMPLES
from edgekit.generate.device.encoder_decoder import FEATURES, MASK, SAMPLES
from edgekit.generate.device.token_rules import TokenRules
from edgekit.generate.host import kinds
from edgekit.generate.host.pipeline.encoder_decoder.job import (
    FORMS,
    OUTPUTS,
    EncoderDecoderJob,
    JudgedText,
    Kind,
    Source,
    Sources,
    constants,
)
from edgekit.generate.host.readers.speech.open_speech import open_speech_model
from edgekit.generate.host.readers.speech.speech_model import SpeechModel
from edgekit.processing.audio_preparation import mono, prepare_audio
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.sound_files import SOUNDS, read_sound
from edgekit.processing.task import Task
from edgekit.processing.transcripts.options import TOKENIZER_FILE, TranscribeOptions
from edgekit.processing.transcripts.words import word_edits, words_of
from edgekit.target.precisions import FULL_PRECISION
from edgekit.tensor_spec import Array

FEATURE_SHIFT, FEATURE_SCALE = -4.0, 4.0
"""Features are (log10 + 4) / 4 (Whisper's ``log_mel_spectrogram``)."""
RECORDINGS_LIMIT = 6
"""Most recordings of a build: each is encoded by the float reference and by every variant."""
SYLLABLES_A_SECOND, PITCH_HZ = 3.0, 120.0


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


def read_recordings(samples: object, entry: AudioInput, further: Sequence[int] = ()) -> Sources:
    """Read the recordings of a build.

    Args:
        samples: Folder or glob of WAV files; None: a generated sound.
        entry: The model's input.
        further: Further numbers of samples of a window. The begin of the first sound is a recording in each,
            before all others.

    Raises:
        UsageError: they are not files.
        SampleError: no files were found, or one cannot be read.
    """
    if samples is None:
        sounds = [_generated(entry)]
        origin = "a generated sound; pass recordings with --samples to have texts compared"
    elif isinstance(samples, str | Path):
        paths = find_files(str(samples), SOUNDS)[:RECORDINGS_LIMIT]
        read = [read_sound(path) for path in paths]
        sounds = [mono(sound.samples, entry, sound.rate)[: entry.window] for sound in read]
        origin = f"{len(paths)} recording{'s' if len(paths) > 1 else ''}, the first window of each"
    else:
        raise UsageError("samples of a speech model are WAV files: pass a folder or a glob")
    smaller = [(replace(entry, shape=(1, size), window=size, hop=size), sounds[0][:size]) for size in further]
    clips = [*smaller, *((entry, sound) for sound in sounds)]
    return Sources(origin, [_source(*clip) for clip in clips], samples is not None)


def _source(entry: AudioInput, clip: Array) -> Source:
    """Return the first window of a sound: features, or samples with zeros after the sound, and their mask."""
    prepared, length = np.ascontiguousarray(prepare_audio(entry, clip)), len(clip)
    if entry.name == FEATURES:
        return Source({FEATURES: prepared}, prepared[0], length)
    mask = np.zeros_like(prepared)
    mask[:, :length] = 1
    return Source({SAMPLES: prepared, MASK: mask}, prepared[0, : max(length, LEAST_SAMPLES)], length)


def _generated(entry: AudioInput) -> Array:
    """Return a sound like a voice: harmonics of a moving pitch, in syllables, with two moving resonances."""
    seconds = np.arange(int(0.8 * entry.window)) / entry.rate
    pitch = PITCH_HZ * (1 + 0.15 * np.sin(2 * np.pi * 0.4 * seconds))
    phase = 2 * np.pi * np.cumsum(pitch) / entry.rate
    first, second = (
        500 + 250 * np.sin(2 * np.pi * 1.3 * seconds),
        1500 + 600 * np.sin(2 * np.pi * 0.9 * seconds),
    )
    sound = np.zeros_like(seconds)
    for harmonic in range(1, 24):
        hertz = harmonic * pitch
        level = np.exp(-(((hertz - first) / 150) ** 2)) + 0.5 * np.exp(-(((hertz - second) / 250) ** 2))
        sound += (level + 0.02) * np.sin(harmonic * phase)
    loudness = np.clip(np.sin(2 * np.pi * SYLLABLES_A_SECOND * seconds), 0, None)
    noise = np.random.default_rng(36).standard_normal(len(seconds))
    voice: Array = sound * loudness * 0.1 + noise * 1e-3
    return voice
