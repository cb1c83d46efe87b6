"""Build of a speech model: from one folder to a bundle with a verified encoder and decoder per target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.bundle.bundle import Bundle
from edgekit.compiler.build.build_options import parse_max_drop
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.encoder_decoder.bundle import (
    SCORE_COPIES,
    WEIGHT_COPIES,
    assembled,
    build_variants,
    check_precision,
    constant,
)
from edgekit.compiler.build.encoder_decoder.variants import FORMS, padded
from edgekit.compiler.build.faults import Faults
from edgekit.compiler.build.memory_need import Claim, unclaimed
from edgekit.compiler.build.speech.recordings import read_recordings
from edgekit.compiler.build.speech.variants import SpeechJob, reference_of
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.model.speech.open_speech import open_speech_model
from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.compiler.quantize.language.decoder_weights import BARS
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.task import Task
from edgekit.processing.tasks.transcribe.options import TOKENIZER_FILE, TranscribeOptions
from edgekit.system.progress import stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.encoder_decoder import FEATURES, MASK, PROMPT_TOKENS, SAMPLES
from edgekit.target.precisions import FULL_PRECISION
from edgekit.target.token_rules import TokenRules
from edgekit.tensor_spec import Array, Json

FEATURE_SHIFT, FEATURE_SCALE = -4.0, 4.0
"""Features are (log10 + 4) / 4 (Whisper's ``log_mel_spectrogram``)."""


def build_speech_model(
    path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim = unclaimed
) -> Bundle:
    """Build a speech model's bundle.

    Args:
        path: The model's folder, for which ``is_speech_model`` is true.
        targets: The targets to build for.
        request: Arguments of the build; ``samples`` are recordings, and ``max_drop`` is the largest share of
            words that an int8 variant may write otherwise than the float model.
        claim: Called with the memory in bytes that the build needs, before it is used.

    Raises:
        UsageError: an option does not apply, the precision is unknown, or max_drop is not a percentage.
        ModelError: the folder is damaged, or has a form that EdgeKit does not run.
        SampleError: a recording cannot be read.
        MissingDependency: a compiler is not installed.
        BuildFault: every target met a fault.
    """
    words_limit = _checked(targets, request)
    with stage(request.progress, "opened") as notify:
        model = open_speech_model(path)
        c = model.config
        parameters = sum(math.prod(shape) for shape in c.weight_shapes().values())
        notify(f"{path.name}  {model.source_format}, {model.family}, {parameters / 1e6:.1f} M parameters")
        copies = WEIGHT_COPIES + 2 * len(model.further_windows)
        claim(4 * (copies * parameters + SCORE_COPIES * c.heads * c.positions**2), 0.0)
    card = card_of(model)
    with stage(request.progress, "reference") as notify:
        entry = card.sources()[0]
        assert isinstance(entry, AudioInput)
        recordings = read_recordings(request.samples, entry, model.further_windows)
        reference = reference_of(model, recordings)
        words = sum(len(text.split()) for text in reference.texts)
        notify(f"{words} words; {recordings.origin}")
    job = SpeechJob(
        model, BARS, request.force, Faults(model.sha256), recordings, reference, words_limit
    )  # fmt: skip
    variants = build_variants(job, path, targets, request, _in_words)
    about: Json = {"format": model.source_format, "architecture": model.family.lower(), "sizes": c.sizes()}
    return assembled(
        job, card, path, targets, variants, request,
        source={"speech_model": about}, origin=recordings.origin, golden=_golden(job),
    )  # fmt: skip


def _checked(targets: Sequence[BuildTarget], request: BuildRequest) -> dict[str, float]:
    """Check the options; return the largest share of other words by precision."""
    others = [name for name in request.given_beside("any") if "samples" not in name]
    if others:
        raise UsageError(f"{', '.join(others)}: does not apply to speech models; leave it out")
    check_precision(SpeechJob.kind, targets, request.requested_precision)
    limits = {name: bar.words for name, bar in FORMS.items()}
    if request.max_drop is not None:
        drop = parse_max_drop(request.max_drop).drop
        if drop is None or request.requested_precision == FULL_PRECISION:
            raise UsageError(
                f"--max-drop is {request.max_drop!r}; for speech models it is a percentage of words that "
                "int8 may write otherwise, e.g. 2%"
            )
        if request.samples is None:
            raise UsageError("--max-drop of a speech model needs recordings; add --samples FOLDER")
        limits |= {name: drop for name in limits if name != FULL_PRECISION}
    return limits


def _in_words(variant: VariantBuild) -> str:
    counts = variant.evidence.get("transcription")
    if counts is None or variant.rejected or not counts["given"]:
        return ""
    return f"; {counts['words'] - counts['different']} of {counts['words']} words are the float model's"


def card_of(model: SpeechModel) -> Card:
    """Return the card: the sound's features or samples, constants for prompt and limit, the task."""
    c, tokens, rules = model.config, model.tokens, model.rules
    inputs: dict[str, AudioInput | TensorInput] = {
        **(_samples(model) if c.window else _features(model)),
        "prompt": constant("prompt", padded([tokens.start], PROMPT_TOKENS)),
        "limit": constant("limit", np.array([c.context - 1 if c.window else c.context // 2], np.int64)),
    }
    options = TranscribeOptions(
        tokenizer=TOKENIZER_FILE, spelling=model.spelling, start=tokens.start,
        transcribe=_token(tokens.transcribe), translation=_token(tokens.translate),
        languages=tuple(tokens.languages), language_tokens=tuple(tokens.languages.values()),
        special=tokens.special, tokens_a_second=model.tokens_a_second, end=c.vocabulary,
        timestamp_first=c.vocabulary, timestamps=False, no_timestamps=-1,
    )  # fmt: skip
    if isinstance(rules, TokenRules):
        options = replace(
            options, end=rules.end, no_timestamps=rules.no_timestamps, timestamps=True,
            timestamp_first=rules.timestamp_first, step_s=2 * model.sound.hop / model.sound.rate,
        )  # fmt: skip
    outputs = {name: name for name in ("tokens", "logits", "figures")}
    task = Task("transcribe", "whisper", outputs, (), options)
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


def _golden(job: SpeechJob) -> list[tuple[dict[str, Array], dict[str, Array]]]:
    """Return the golden vectors: the first recording of each shape with the reference's first tokens as
    prompt, no new tokens, and the reference's logits. Its figures are those of the prompt alone."""
    reference, context = job.reference, job.model.config.context
    return [
        (
            job.feeds(number, reference.forced[number], 0),
            {
                "tokens": padded([], context),
                "logits": reference.logits[number : number + 1],
                "figures": reference.figures[number : number + 1],
            },
        )
        for number in range(len(job.model.further_windows) + 1)
    ]
