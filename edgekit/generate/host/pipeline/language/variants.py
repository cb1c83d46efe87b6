"""Variants of a language model: compiled, run on the text and the golden prompts, judged, timed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from edgekit.bundle.evidence import OutputAccuracy
from edgekit.bundle.generation_evidence import Generation
from edgekit.compiler.evaluate.verify import compare
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.try_variant import Compiled
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.generate.device import decoder_registry
from edgekit.generate.device.adapter import AdapterRunner
from edgekit.generate.device.decoder import DecoderRunner, DecoderShape
from edgekit.generate.host.adapters import JudgedAdapter, adapted_weights
from edgekit.generate.host.judge.evaluation import (
    GREEDY_TOKENS,
    TextReference,
    VariantTexts,
    figures_by_kind,
    float_choices,
    missed,
    perplexity,
    six_digits,
    written_by,
)
from edgekit.generate.host.judge.texts import calibration_tokens
from edgekit.generate.host.pipeline.generation import run_variant
from edgekit.generate.host.readers.language.language_model import LanguageModel
from edgekit.generate.host.readers.language.reference_decoder import ReferenceDecoder
from edgekit.generate.host.weights.language import quantize_decoder
from edgekit.generate.host.weights.language.decoder_weights import PRECISIONS
from edgekit.target.precisions import FULL_PRECISION, LanguageBar, precision_of

FEW_WINDOWS = 1
"""Windows of each kind of text that a decoder with a fixed cache reads, which takes one token at a time."""


@dataclass(eq=False)
class LanguageJob:
    """Build job of a language model.

    Attributes:
        reference: Results of that decoder on the text and the golden prompts.
        bars: Accuracy that each precision must reach.
        force: Whether to ship variants that miss their bar, marked as such.
        weights: Precision -> its integers, shared by the targets.
        answers: Variant name -> tokens that it generated after each golden prompt.
        drafted: Whether a draft will propose its tokens.
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
    drafted: bool = False


def compile_language_variant(job: LanguageJob, variant: VariantBuild) -> Compiled:
    """Compile one variant. It is judged by the text and the golden prompts, and rejected below its bar."""
    target, precision = variant.target, variant.precision
    compiler, weights = decoder_registry.decoder_compiler(target.name), _weights(job, precision)
    adapted = adapted_weights(job.model, job.adapters)
    artifact = compiler.compile_decoder(job.model, precision, weights, job.context, adapted, job.drafted)
    capacity = min(job.context, _longest(job.reference))

    def open_runner(files: Mapping[str, Path], threads: int) -> DecoderRunner:
        return decoder_registry.open_decoder(target.name, files, artifact.options, threads, capacity)

    def judge(variant: VariantBuild) -> None:
        run_variant(variant, "generate", open_runner, partial(_run, job, variant))

    return Compiled(artifact, judge)


def _weights(job: LanguageJob, precision: str) -> Mapping[str, Any]:
    if precision not in PRECISIONS:
        return {}
    if precision not in job.weights:
        tokens = calibration_tokens(job.model) if job.bars[precision].fitted else ()
        job.weights[precision] = quantize_decoder(job.model, precision, tokens)
    return job.weights[precision]


def _run(
    job: LanguageJob, variant: VariantBuild, runner: DecoderRunner
) -> tuple[list[float], dict[str, float]]:
    """Run a variant and judge it. Return the seconds of its tokens, and the time of a prompt's token."""
    bar, fixed = job.bars[variant.precision], DecoderShape.from_options(variant.artifact.options).fixed
    windows = FEW_WINDOWS if fixed else None
    written = written_by(runner, job.reference, job.model.stop_ids, windows)
    accuracy, generation = _judge(variant, job.reference, written, bar)
    variant.evidence["accuracy"] = {"logits": accuracy}
    variant.evidence["generation"] = {**generation, "answers": written.answers}
    job.answers[variant.name] = written.answers
    for name, (adapter, reference) in job.adapters.items():
        assert isinstance(runner, AdapterRunner)
        runner.adapt(name, adapter.matrices)
        texts = written_by(runner, reference, job.model.stop_ids, windows)
        accuracy, generation = _judge(variant, reference, texts, bar, f"adapter {name}: ")
        variant.evidence.setdefault("adapters", {})[name] = {"logits": accuracy, "generation": generation}
    return written.token_seconds, {"prompt_token_ms": float(f"{1000 * written.prompt_token_seconds:.6g}")}


def _longest(reference: TextReference) -> int:
    longest = max(map(len, reference.prompts)) + GREEDY_TOKENS
    return max(longest, *(len(window) for window in reference.windows))


def _judge(
    variant: VariantBuild, reference: TextReference, written: VariantTexts, bar: LanguageBar, label: str = ""
) -> tuple[OutputAccuracy, Generation]:
    """Reject a variant whose texts miss the bar. Return the evidence."""
    accuracy = compare([reference.logits], [written.logits], bar.logits_db)
    kinds = figures_by_kind(reference, written)
    if not accuracy.within_limit:
        variant.reject(f"{label}logits of the golden prompts: {accuracy}; {bar.logits_db:g} dB is required")
    elif reason := missed(kinds, bar.perplexity):
        variant.reject(label + reason)
    expected = [reference.likelihoods[index] for index in written.windows]
    return accuracy.as_json(), {
        "perplexity": six_digits(perplexity(written.likelihoods)),
        "float_perplexity": six_digits(perplexity(expected)),
        "limit": bar.perplexity,
        "kinds": kinds,
        "tokens": sum(map(len, expected)),
        "agreement": six_digits(written.agreement),
    }


def add_float_choices(job: LanguageJob, variants: Sequence[VariantBuild]) -> None:
    """Record how many generated tokens of each variant in floats are the reference's likeliest. Reject an
    fp32 variant that generates others. ``agreement`` says the same of integers, on more tokens."""
    ran = [v for v in variants if v.name in job.answers and precision_of(v.precision).is_float]
    if not ran:
        return
    counts = float_choices(job.decoder, job.reference.prompts, [job.answers[v.name] for v in ran])
    for variant, count in zip(ran, counts, strict=True):
        total = sum(map(len, job.answers[variant.name]))
        variant.evidence["generation"]["greedy"] = {"likeliest": count, "of": total}
        if variant.precision == FULL_PRECISION and count < total:
            variant.reject(f"{total - count} of {total} generated tokens differ from the float model's")
