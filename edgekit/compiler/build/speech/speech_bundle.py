"""Build of a speech model: from one folder to a bundle with a verified encoder and decoder per target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import entry_of
from edgekit.compiler.build.build_options import parse_max_drop
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.bundle_contents import tool_versions, variant_entry
from edgekit.compiler.build.faults import Faults
from edgekit.compiler.build.memory_need import Claim, unclaimed
from edgekit.compiler.build.speech.recordings import read_recordings
from edgekit.compiler.build.speech.variants import (
    SPEECH_BARS,
    SpeechJob,
    build_speech_variant,
    form_of,
    padded,
    reference_of,
    shape_of,
)
from edgekit.compiler.build.variant_build import VariantBuild, refuse_if_all_are_lost
from edgekit.compiler.lowering.language.graph_writer import OPSET
from edgekit.compiler.model.speech.open_speech import open_speech_model
from edgekit.compiler.model.speech.speech_model import SpeechModel
from edgekit.compiler.quantize.language.decoder_weights import BARS
from edgekit.compiler.quantize.speech.folded_norms import with_folded_norms
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.audio import AudioInput
from edgekit.processing.inputs.audio_features import Features
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.processing.task import Task
from edgekit.processing.tasks.transcribe.options import TOKENIZER_FILE, TranscribeOptions
from edgekit.system.declared_options import stored_options
from edgekit.system.formats.npy import npy_bytes
from edgekit.system.progress import Progress, stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.encoder_decoder import model_inputs, model_outputs
from edgekit.target.precisions import AUTO, FULL_PRECISION
from edgekit.tensor_spec import Array, Json, TensorSpec

TRIED: Mapping[str, tuple[str, ...]] = {**{name: (name,) for name in SPEECH_BARS}, AUTO: tuple(SPEECH_BARS)}
"""Requested precision -> the precisions that are built."""
WEIGHT_COPIES = 6
"""Copies of the float weights: the reference's, a graph's, the compiled one's, the engine's."""
SCORE_COPIES = 4
"""Copies of one layer's attention scores in the reference's encoder."""
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
        notify(f"{path.name}  {model.source_format}, Whisper, {parameters / 1e6:.1f} M parameters")
        claim(4 * (WEIGHT_COPIES * parameters + SCORE_COPIES * c.heads * c.positions**2), 0.0)
    card = card_of(model)
    with stage(request.progress, "reference") as notify:
        entry = card.inputs["features"]
        assert isinstance(entry, AudioInput)
        recordings = read_recordings(request.samples, entry)
        reference = reference_of(model, recordings)
        words = sum(len(text.split()) for text in reference.texts)
        notify(f"{words} words; {recordings.origin}")
    job = SpeechJob(
        model, recordings, reference, {n: b for n, b in BARS.items() if b is not None}, words_limit,
        request.force, Faults(model.sha256), with_folded_norms(model),
    )  # fmt: skip
    variants: list[VariantBuild] = []
    for target in targets:
        variants += _variants_of(job, target, request.precision, job.faults.passing(request.progress))
    refuse_if_all_are_lost(path.name, job.faults, targets, variants)
    return _bundle(job, card, path, targets, variants, request)


def _checked(targets: Sequence[BuildTarget], request: BuildRequest) -> dict[str, float]:
    """Check the options; return the largest share of other words by precision."""
    others = [name for name in request.given_beside("any") if "samples" not in name]
    if others:
        raise UsageError(f"{', '.join(others)}: does not apply to speech models; leave it out")
    if request.precision not in TRIED:
        raise UsageError(
            f"speech models cannot be built as {request.precision!r}; available: {', '.join(TRIED)}"
        )
    for target in targets:
        for precision in TRIED[request.precision]:
            if form_of(target, precision) is None:
                forms = " or ".join(SPEECH_BARS[precision].forms)
                raise UsageError(
                    f"{target.name} does not compile {forms}, which {precision} of "
                    "speech models needs; use ort, openvino or tflite"
                )
    limits = {name: bar.words for name, bar in SPEECH_BARS.items()}
    if request.max_drop is not None:
        drop = parse_max_drop(request.max_drop).drop
        if drop is None or request.precision == FULL_PRECISION:
            raise UsageError(
                f"--max-drop is {request.max_drop!r}; for speech models it is a percentage of words that "
                "int8 may write otherwise, e.g. 2%"
            )
        if request.samples is None:
            raise UsageError("--max-drop of a speech model needs recordings; add --samples FOLDER")
        limits |= {name: drop for name in limits if name != FULL_PRECISION}
    return limits


def _variants_of(
    job: SpeechJob, target: BuildTarget, precision: str, progress: Progress
) -> list[VariantBuild]:
    """Build the requested precisions; fp32 too where int8 is not good enough."""
    variants: list[VariantBuild] = []
    waiting = list(TRIED[precision])
    while waiting:
        with stage(progress, "compiled") as notify:
            variants.append(build_speech_variant(job, target, waiting.pop(0)))
            notify(f"{variants[-1].name}  {variants[-1].status}{_in_words(variants[-1])}")
        lost = target.profile.name in job.faults.by_profile
        if (
            not waiting
            and not lost
            and len(variants) == 1
            and variants[0].precision != FULL_PRECISION
            and variants[0].rejected
        ):
            waiting = [FULL_PRECISION]
    return variants


def _in_words(variant: VariantBuild) -> str:
    counts = variant.evidence.get("transcription")
    if counts is None or variant.rejected or not counts["given"]:
        return ""
    return f"; {counts['words'] - counts['different']} of {counts['words']} words are the float model's"


def card_of(model: SpeechModel) -> Card:
    """Return the card: the sound's features, constants for prompt and limit, the task."""
    c, sound, tokens, rules = model.config, model.sound, model.tokens, model.rules
    features = Features(
        "mel", sound.frame, sound.hop, sound.frame, align="center", center="reflect", power=2, mels=c.mels,
        fmin=0.0, fmax=sound.rate / 2, mel_scale="slaney", mel_norm="slaney", log="log10", floor=1e-10,
        range=8.0,
    )  # fmt: skip
    window = c.frames * sound.hop
    inputs: dict[str, AudioInput | TensorInput] = {
        "features": AudioInput(
            "features", (1, c.mels, c.frames), sound.rate, window, window, features=features, layout="FT",
            mean=FEATURE_SHIFT, std=FEATURE_SCALE,
        ),
        "prompt": _constant("prompt", padded([tokens.start])),
        "limit": _constant("limit", np.array([c.context // 2], np.int64)),
    }  # fmt: skip
    options = TranscribeOptions(
        tokenizer=TOKENIZER_FILE, start=tokens.start, end=rules.end, no_timestamps=rules.no_timestamps,
        timestamp_first=rules.timestamp_first, step_s=2 * sound.hop / sound.rate,
        transcribe=-1 if tokens.transcribe is None else tokens.transcribe,
        languages=tuple(tokens.languages), language_tokens=tuple(tokens.languages.values()),
    )  # fmt: skip
    outputs = {name: name for name in ("tokens", "logits", "figures")}
    task = Task("transcribe", "whisper", outputs, (), options)
    return Card(model.name, dict(inputs), task, files={TOKENIZER_FILE: model.tokenizer})


def _constant(name: str, value: Array) -> TensorInput:
    return TensorInput(name, value.shape, value=tuple(map(float, value.ravel())), dtype="int64")


def _bundle(
    job: SpeechJob,
    card: Card,
    path: Path,
    targets: Sequence[BuildTarget],
    variants: Sequence[VariantBuild],
    request: BuildRequest,
) -> Bundle:
    model, c = job.model, job.model.config
    outputs = model_outputs(shape_of(c))
    entries = {entry_of(name): content for name, content in card.files.items()}
    golden = _golden(job, entries)
    nodes = [variant.artifact.facts.get("nodes", 0) for variant in variants]
    about: dict[str, Json] = {"format": model.source_format, "architecture": "whisper", "sizes": c._asdict()}
    manifest: dict[str, Json] = {
        "edgekit": __version__,
        "tools": tool_versions(),
        "source": {
            "file": path.name,
            "sha256": model.sha256,
            "opset": OPSET,
            "nodes": max(nodes, default=0),
            "speech_model": about,
        },
        "options": {
            "targets": [target.profile.name for target in targets],
            "precision": request.precision,
            **stored_options(request),
        },
        "samples": {"origin": job.recordings.origin},
        "inputs": [_spec(spec) for spec in model_inputs(c.mels, c.frames)],
        "outputs": [_spec(spec) for spec in outputs],
        "card": card.as_json(),
        "profiles": {target.profile.name: target.profile.as_json() for target in targets},
        "variants": [variant_entry(variant, entries) for variant in variants],
        "golden": [golden],
        "extensions": {},
    }
    return Bundle.create(manifest, entries)


def _spec(spec: TensorSpec) -> dict[str, Json]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _golden(job: SpeechJob, entries: dict[str, bytes]) -> dict[str, Json]:
    """Return the golden vector: the first recording with the reference's first tokens as prompt, no new
    tokens, and the reference's logits. Its figures are those of the prompt alone."""
    reference = job.reference
    tokens = np.full((1, job.model.config.context), -1, np.int64)
    vector: dict[str, dict[str, Array]] = {
        "inputs": {
            "features": job.recordings.features[0][None],
            "prompt": padded(reference.forced[0]),
            "limit": np.zeros(1, np.int64),
        },
        "outputs": {"tokens": tokens, "logits": reference.logits[:1], "figures": reference.figures[:1]},
    }
    names: dict[str, Json] = {}
    for kind, arrays in vector.items():
        names[kind] = {name: f"golden/0/{kind}-{number}.npy" for number, name in enumerate(arrays)}
        entries.update({names[kind][name]: npy_bytes(array) for name, array in arrays.items()})
    return names
