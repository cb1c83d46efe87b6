"""Variants of a language model: compiled, run on the text and the golden prompts, judged, timed."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.bundle.evidence import OutputAccuracy
from edgekit.bundle.generation_evidence import Generation
from edgekit.bundle.variant import Status
from edgekit.compiler.build.faults import Fault, Faults
from edgekit.compiler.build.language.adapters import JudgedAdapter, adapted_weights
from edgekit.compiler.build.language.evaluation import (
    GREEDY_TOKENS,
    TextReference,
    VariantTexts,
    calibration_tokens,
    float_choices,
    written_by,
)
from edgekit.compiler.build.variant_build import VariantBuild, artifact_variant, lost_variant
from edgekit.compiler.evaluate.timing import RECALLED, timing_summary
from edgekit.compiler.evaluate.verify import compare, write_files
from edgekit.compiler.model.language.language_model import LanguageModel
from edgekit.compiler.model.language.reference_decoder import ReferenceDecoder
from edgekit.compiler.quantize.language import quantize_decoder
from edgekit.compiler.quantize.language.decoder_weights import PRECISIONS
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.target import registry
from edgekit.target.adapter import AdapterRunner
from edgekit.target.build_target import BuildTarget
from edgekit.target.decoder import DecoderRunner, DecoderShape
from edgekit.target.precisions import FULL_PRECISION, LanguageBar

FEW_WINDOWS = 3
"""Windows that a decoder with a fixed cache reads, which takes one token at a time."""


@dataclass(eq=False)
class LanguageJob:
    """Build job of a language model.

    Attributes:
        model: The model.
        decoder: Its float reference decoder.
        reference: Results of that decoder on the text and the golden prompts.
        context: Maximum context length in tokens.
        bars: Accuracy that each precision must reach.
        force: Whether to ship variants that miss their bar, marked as such.
        faults: Faults of this build so far.
        adapters: Adapters by name.
        weights: Precision -> its integers, shared by the targets.
        answers: Variant name -> tokens that it generated after each golden prompt.
    """

    model: LanguageModel
    decoder: ReferenceDecoder
    reference: TextReference
    context: int
    bars: Mapping[str, LanguageBar]
    force: bool
    faults: Faults
    adapters: Mapping[str, JudgedAdapter] = field(default_factory=dict)
    weights: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    answers: dict[str, list[list[int]]] = field(default_factory=dict)


def build_language_variant(job: LanguageJob, target: BuildTarget, precision: str) -> VariantBuild:
    """Build one variant; it is lost if its target meets a fault."""
    name = f"{target.profile.name}-{precision}"
    outcome = job.faults.contain(target.profile.name, name, partial(_variant, job, target, precision, name))
    return lost_variant(name, target, precision, None, outcome) if isinstance(outcome, Fault) else outcome


def _variant(job: LanguageJob, target: BuildTarget, precision: str, name: str) -> VariantBuild:
    artifact = registry.decoder_compiler(target.name).compile_decoder(
        job.model,
        precision,
        _weights(job, precision),
        job.context,
        adapted_weights(job.model, job.adapters),
    )
    return artifact_variant(name, target, precision, artifact, job.force, partial(_run, job))


def _weights(job: LanguageJob, precision: str) -> Mapping[str, Any]:
    """Return the integers of a precision, computed once and shared by all targets."""
    if precision not in PRECISIONS:
        return {}
    if precision not in job.weights:
        tokens = calibration_tokens(job.model) if job.bars[precision].fitted else ()
        job.weights[precision] = quantize_decoder(job.model, precision, tokens)
    return job.weights[precision]


def _run(job: LanguageJob, variant: VariantBuild) -> None:
    """Run a variant on the text and the golden prompts, and reject it if it misses its bar."""
    target, artifact, bar = variant.target, variant.artifact, job.bars[variant.precision]
    threads, capacity = default_threads(), min(job.context, _longest(job.reference))
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = write_files(artifact, Path(folder))
        started = time.perf_counter()
        runner = registry.open_decoder(target.name, files, artifact.options, threads, capacity)
        load_ms = 1000 * (time.perf_counter() - started)
        with closing(runner):
            fixed = DecoderShape.from_options(artifact.options).fixed
            windows = FEW_WINDOWS if fixed else None
            written = written_by(runner, job.reference, job.model.stop_ids, windows)
            adapted = _written_with_adapters(job, runner, windows)
            variant.evidence["runner"] = dict(runner.facts())
            variant.evidence["executed"] = {"device": runner.device, "precision": runner.precision}
    engine = target.engine.engine_version()
    variant.evidence["engine"] = engine
    variant.outcome, variant.reason = Status.VERIFIED, f"on {engine}"
    accuracy, generation = _judge(variant, job.reference, written, bar)
    variant.evidence["accuracy"] = {"logits": accuracy}
    variant.evidence["generation"] = {**generation, "answers": written.answers}
    _time(variant, written, load_ms, threads, engine)
    job.answers[variant.name] = written.answers
    for name, texts in adapted.items():
        accuracy, generation = _judge(variant, job.adapters[name].reference, texts, bar, f"adapter {name}: ")
        variant.evidence.setdefault("adapters", {})[name] = {"logits": accuracy, "generation": generation}
    if variant.rejected:  # nobody reads them any more
        variant.artifact = artifact._replace(files={})


def _longest(reference: TextReference) -> int:
    longest = max(map(len, reference.prompts)) + GREEDY_TOKENS
    return max(longest, *(len(window) for window in reference.windows))


def _written_with_adapters(
    job: LanguageJob, runner: DecoderRunner, windows: int | None
) -> dict[str, VariantTexts]:
    """Run a loaded decoder on the text and the golden prompts with each adapter."""
    written = {}
    for name, (adapter, reference) in job.adapters.items():
        assert isinstance(runner, AdapterRunner)
        runner.adapt(name, adapter.matrices)
        written[name] = written_by(runner, reference, job.model.stop_ids, windows)
    return written


def _judge(
    variant: VariantBuild, reference: TextReference, written: VariantTexts, bar: LanguageBar, label: str = ""
) -> tuple[OutputAccuracy, Generation]:
    """Reject a variant whose texts miss the bar. Return the evidence."""
    accuracy = compare([reference.logits], [written.logits], bar.logits_db)
    expected = reference.perplexity(written.windows)
    ratio = written.perplexity / expected
    if not accuracy.within_limit:
        variant.reject(f"{label}logits of the golden prompts: {accuracy}; {bar.logits_db:g} dB is required")
    elif not ratio <= 1 + bar.perplexity:
        variant.reject(
            f"{label}perplexity {written.perplexity:.2f}, {100 * (ratio - 1):.1f} % above the float model's"
            f" {expected:.2f}; {100 * bar.perplexity:g} % is allowed"
        )
    return accuracy.as_json(), {
        "perplexity": _digits(written.perplexity),
        "float_perplexity": _digits(expected),
        "limit": bar.perplexity,
        "tokens": sum(map(len, reference.likeliest[: written.windows])),
        "agreement": _digits(written.agreement),
    }


def _time(variant: VariantBuild, written: VariantTexts, load_ms: float, threads: int, engine: str) -> None:
    """Record the timing of a token, or the cached one: a rebuild has identical bytes."""
    digest = stored_timings.run_digest(variant.digest, variant.artifact.options)
    key = stored_timings.timing_key(digest, engine, threads, "generate")
    timing = stored_timings.recall(key, {**RECALLED, "prompt_token_ms": float})
    if timing is None and written.token_seconds:
        summary = timing_summary(written.token_seconds, load_ms, threads)
        timing = {**summary, "prompt_token_ms": _digits(1000 * written.prompt_token_seconds)}
    if timing is not None:
        stored_timings.record(key, timing)
        variant.evidence["timing"] = timing  # type: ignore[typeddict-item]


def add_float_choices(job: LanguageJob, variants: Sequence[VariantBuild]) -> None:
    """Record how many generated tokens of each variant are the float reference's likeliest. Reject an fp32
    variant that generates others."""
    ran = [variant for variant in variants if variant.name in job.answers]
    if not ran:
        return
    counts = float_choices(job.decoder, job.reference.prompts, [job.answers[v.name] for v in ran])
    for variant, count in zip(ran, counts, strict=True):
        total = sum(map(len, job.answers[variant.name]))
        variant.evidence["generation"]["greedy"] = {"likeliest": count, "of": total}
        if variant.precision == FULL_PRECISION and count < total:
            variant.reject(f"{total - count} of {total} generated tokens differ from the float model's")


def _digits(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
