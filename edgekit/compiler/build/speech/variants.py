"""Variants of a speech model: both parts compiled, run on the recordings, judged, timed."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edgekit.bundle.variant import Status
from edgekit.compiler.build.faults import Fault, Faults
from edgekit.compiler.build.speech.recordings import Recordings
from edgekit.compiler.build.variant_build import VariantBuild, lost_variant
from edgekit.compiler.evaluate.timing import RECALLED, timing_summary
from edgekit.compiler.evaluate.verify import compare, write_files
from edgekit.compiler.lowering.language import BlockWeights
from edgekit.compiler.lowering.language.graph_ir import as_ir
from edgekit.compiler.lowering.speech.encoder_writer import EncoderWriter
from edgekit.compiler.lowering.speech.token_writer import TokenWriter
from edgekit.compiler.model.speech.reference_speech import ReferenceSpeech
from edgekit.compiler.model.speech.speech_model import POSITIONS, SpeechConfig, SpeechModel
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.language.block_rounding import nearest8
from edgekit.errors import EngineError
from edgekit.processing.tasks.transcribe.metric import word_edits
from edgekit.processing.tasks.transcribe.words import text_of, words_of
from edgekit.processing.tokenizer import token_texts
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.system.timings import files_digest
from edgekit.target import registry
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.encoder_decoder import (
    DECODER,
    ENCODER,
    OPTION,
    PADDING,
    PROMPT_TOKENS,
    EncoderDecoderShape,
    figures_of,
    model_inputs,
    model_outputs,
)
from edgekit.target.precisions import TABLE, LanguageBar, SpeechBar, precision_of
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    from edgekit.target.contract import Runner

SPEECH_BARS: Mapping[str, SpeechBar] = {row.name: row.speech for row in TABLE if row.speech is not None}
"""Limits by precision, of those that speech models are built in."""


@dataclass(frozen=True, eq=False)
class SpeechReference:
    """Results of the float reference.

    Attributes:
        prompt: First tokens of a text without timestamps.
        forced: Prompt of each recording that continues with the reference's own first tokens.
        logits: Logits after each of those, float32 [recordings, vocabulary].
        tokens: All new tokens of each recording.
        texts: Their texts.
        figures: The output ``figures`` of each forced prompt, float32 [recordings, 2].
    """

    prompt: Sequence[int]
    forced: list[list[int]]
    logits: Array
    tokens: list[list[int]]
    texts: list[str]
    figures: Array


@dataclass(eq=False)
class SpeechJob:
    """Build job of a speech model.

    Attributes:
        model: The model.
        recordings: Sounds that variants are verified with.
        reference: Results of the float reference on them.
        bars: Lowest SNR of the logits by precision.
        words_limit: Most differing words by precision, as a share.
        force: Whether to ship variants that miss their bar, marked as such.
        faults: Faults of this build so far.
        folded: The same model with its norms in the matrices that follow, for int8.
        weights: Its matrices as integers, once they were needed; shared by the targets.
    """

    model: SpeechModel
    recordings: Recordings
    reference: SpeechReference
    bars: Mapping[str, LanguageBar]
    words_limit: Mapping[str, float]
    force: bool
    faults: Faults
    folded: SpeechModel
    weights: dict[str, BlockWeights] = field(default_factory=dict)


def form_of(target: BuildTarget, precision: str) -> str | None:
    """Return how a target compiles a precision, or None if it has none of its forms."""
    available = target.info.precisions
    return next((form for form in SPEECH_BARS[precision].forms if form in available), None)


def shape_of(config: SpeechConfig) -> EncoderDecoderShape:
    """Return the sizes between encoder and decoder."""
    return EncoderDecoderShape(
        config.heads, config.head_size, config.positions, config.context, config.vocabulary,
        config.decoder_layers,
    )  # fmt: skip


def prompt_of(model: SpeechModel) -> list[int]:
    """Return the prompt of the golden vector: the first language, without timestamps."""
    tokens, rules = model.tokens, model.rules
    language = list(tokens.languages.values())[:1]
    task = [] if tokens.transcribe is None else [tokens.transcribe]
    return [tokens.start, *language, *task, rules.no_timestamps]


def padded(prompt: Sequence[int]) -> Array:
    """Return a prompt as the input of a variant, int64 [1, PROMPT_TOKENS]."""
    return np.array([[*prompt, *[PADDING] * (PROMPT_TOKENS - len(prompt))]], np.int64)


def reference_of(model: SpeechModel, recordings: Recordings) -> SpeechReference:
    """Run the float reference on the recordings.

    Raises:
        EngineError: its logits are not finite.
        CardError: the tokenizer is damaged.
    """
    reference, prompt, limit = ReferenceSpeech(model), prompt_of(model), model.config.context // 2
    forced, logits, tokens, figures = list[list[int]](), list[Array](), list[list[int]](), list[Array]()
    for features in recordings.features:
        encoded = reference.encode(features)
        new = reference.transcribe(encoded, prompt, limit)
        tokens.append(new)
        forced.append([*prompt, *new][: min(PROMPT_TOKENS, model.config.context // 2)])
        values = reference.logits(encoded, forced[-1], [])
        logits.append(values[-1])
        figures.append(figures_of(0.0, values[0], model.rules)[0])
    rows = np.stack(logits).astype(np.float32)
    if not np.isfinite(rows).all():
        raise EngineError(
            f"{model.name}: the float reference returns logits that are not finite; check the files"
        )
    pieces = token_texts(model.tokenizer)
    texts = [text_of(values, pieces, model.rules.end) for values in tokens]
    return SpeechReference(prompt, forced, rows, tokens, texts, np.stack(figures))


def build_speech_variant(job: SpeechJob, target: BuildTarget, precision: str) -> VariantBuild:
    """Build one variant; it is lost if its target meets a fault."""
    name = f"{target.profile.name}-{precision}"
    outcome = job.faults.contain(target.profile.name, name, partial(_variant, job, target, precision, name))
    return lost_variant(name, target, precision, None, outcome) if isinstance(outcome, Fault) else outcome


def compile_speech(
    model: SpeechModel, target: BuildTarget, precision: str, weights: Mapping[str, BlockWeights]
) -> Artifact:
    """Compile both parts with the target's own compiler.

    Raises:
        UnsupportedError: the target cannot express some nodes.
        MissingDependency: a tool that compiles for this target is not installed.
    """
    form = form_of(target, precision)
    assert form is not None
    files, options, nodes = dict[str, bytes](), dict[str, Json](), 0
    rounds = precision_of(form).rounds_inputs
    writer_options = {
        "rows": target.info.stores_rows, "by_row": rounds,
        "unsigned": rounds and target.info.unsigned_weights,
    }  # fmt: skip
    for part, writer in ((ENCODER, EncoderWriter), (DECODER, TokenWriter)):
        graph = as_ir(writer(model, weights, **writer_options).write())
        run_passes(graph)
        artifact = target.compiler.compile_model(graph, target.profile, form)
        files |= {f"{part}/{name}": content for name, content in artifact.files.items()}
        options[part] = dict(artifact.options)
        nodes += len(graph.graph)
    sizes = shape_of(model.config)._asdict()
    artifact_options: dict[str, Json] = {
        "precision": precision,
        OPTION: {**sizes, "rules": model.rules.as_json(), **options},
    }
    return Artifact(files, artifact_options, {"nodes": nodes})


def _variant(job: SpeechJob, target: BuildTarget, precision: str, name: str) -> VariantBuild:
    model = job.model if precision_of(precision).is_float else job.folded
    artifact = compile_speech(model, target, precision, _weights(job, precision))
    gc.collect()  # a graph's nodes and values hold each other, and all constants with them
    size_bytes = artifact.size_bytes
    variant = VariantBuild(
        name, target, precision, artifact, files_digest(artifact.files), {"size_bytes": size_bytes}, None
    )
    variant.forced = job.force
    variant.evidence["compile"] = dict(artifact.facts)
    missing = target.missing()
    if missing is not None:
        variant.outcome, variant.reason = Status.NOT_RUN, str(missing)
        return variant
    _run(job, variant)
    return variant


def _weights(job: SpeechJob, precision: str) -> Mapping[str, BlockWeights]:
    """Return the integers of the matrices, computed once."""
    if precision_of(precision).is_float:
        return {}
    if not job.weights:
        shapes = job.model.config.weight_shapes()
        matrices = [n for n, shape in shapes.items() if len(shape) == 2 and not n.endswith(POSITIONS)]
        job.weights = {name: nearest8(job.folded.weight(name), 0) for name in matrices}
    return job.weights


def _run(job: SpeechJob, variant: VariantBuild) -> None:
    """Run a variant on the recordings, and reject it if it misses its bar."""
    artifact, config, target = variant.artifact, job.model.config, variant.target
    threads, ends = (
        default_threads(),
        (model_inputs(config.mels, config.frames), model_outputs(shape_of(config))),
    )
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = write_files(artifact, Path(folder))
        started = time.perf_counter()
        runner = registry.open_runner(target.engine, files, *ends, artifact.options, threads)
        load_ms = 1000 * (time.perf_counter() - started)
        with closing(runner):
            logits, figures, tokens, seconds = _results(job, runner)
            variant.evidence["runner"] = dict(runner.facts())
            variant.evidence["executed"] = {"device": runner.device, "precision": variant.precision}
    engine, limit_db = target.engine.engine_version(), job.bars[variant.precision].logits_db
    accuracy = compare([job.reference.logits], [logits], limit_db)
    pieces = token_texts(job.model.tokenizer)
    texts = [text_of(sequence, pieces, job.model.rules.end) for sequence in tokens]
    pairs = list(zip(job.reference.texts, texts, strict=True))
    words, edits = sum(len(words_of(text)) for text, _ in pairs), sum(word_edits(*pair) for pair in pairs)
    variant.evidence["engine"] = engine
    of_figures = compare([job.reference.figures], [figures], SPEECH_BARS[variant.precision].figures_db)
    variant.evidence["accuracy"] = {"logits": accuracy.as_json(), "figures": of_figures.as_json()}
    variant.evidence["transcription"] = {
        "recordings": len(texts), "given": job.recordings.from_user, "words": words, "different": edits,
        "seconds": round(sum(job.recordings.seconds), 2), "limit": job.words_limit[variant.precision],
    }  # fmt: skip
    digest = stored_timings.run_digest(variant.digest, artifact.options)
    key = stored_timings.timing_key(digest, engine, threads, "transcribe")
    timing = stored_timings.recall(key, RECALLED) or timing_summary(seconds, load_ms, threads)
    stored_timings.record(key, timing)
    variant.evidence["timing"] = timing  # type: ignore[typeddict-item]
    variant.outcome, variant.reason = Status.VERIFIED, f"on {engine}"
    if not accuracy.within_limit:
        variant.reject(f"logits of the recordings: {accuracy}; {limit_db:g} dB is required")
    elif not of_figures.within_limit:
        variant.reject(f"probability of no speech: {of_figures}; {of_figures.limit_db:g} dB is required")
    elif job.recordings.from_user and edits > job.words_limit[variant.precision] * words:
        allowed = 100 * job.words_limit[variant.precision]
        variant.reject(f"{edits} of {words} words differ from the float model's; {allowed:g} % is allowed")
    if variant.rejected:  # nobody reads them any more
        variant.artifact = artifact._replace(files={})


def _results(job: SpeechJob, runner: Runner) -> tuple[Array, Array, list[list[int]], list[float]]:
    """Return logits and figures after the forced prompts, the tokens of each recording, and the seconds of
    each text."""
    logits, figures, tokens, seconds = list[Array](), list[Array](), list[list[int]](), list[float]()
    limit = np.array([job.model.config.context // 2], np.int64)
    for features, forced in zip(job.recordings.features, job.reference.forced, strict=True):
        feeds = {"features": features[None], "prompt": padded(forced), "limit": np.zeros(1, np.int64)}
        outputs = runner.run(feeds)
        logits.append(outputs["logits"][0])
        figures.append(outputs["figures"][0])
        feeds |= {"prompt": padded(job.reference.prompt), "limit": limit}
        started = time.perf_counter()
        output = runner.run(feeds)["tokens"][0]
        seconds.append(time.perf_counter() - started)
        tokens.append([int(token) for token in output if token != PADDING])
    return np.stack(logits), np.stack(figures), tokens, seconds
