"""Accuracy and interleaved timings of a text encoder's variants at each length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from edgekit.bundle.evidence import LengthFigures
from edgekit.compiler.build.faults import Fault
from edgekit.compiler.build.stages import BuildJob
from edgekit.compiler.build.text_lengths import TRIED_SAMPLES, TextLengths
from edgekit.compiler.build.variant_build import VariantBuild
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.timing import opened, timing_summary, turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.system import json_records
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Progress, stage
from edgekit.target.contract import Runner
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, Json

WORSE_DB = 6.0
"""How much lower the SNR of int8 may be at a length than at the whole: half of the noise more."""


def evaluate_lengths(
    job: BuildJob,
    texts: TextLengths,
    reference: ReferenceOutputs,
    variants: Sequence[VariantBuild],
    progress: Progress,
) -> None:
    """Run each kept variant at each length, and reject variants that are inaccurate at one length."""
    with stage(progress, "by length") as say:
        references = _references(job, texts, reference)
        for variant in (each for each in variants if each.ran and not each.rejected):
            measure = partial(_figures, variant, references)
            found = job.faults.contain(variant.profile.name, variant.name, measure)
            if isinstance(found, Fault):
                variant.lose(found)
                continue
            variant.evidence["lengths"] = found
            _reject_inaccurate(variant, references, found)
        say(f"{', '.join(map(str, references))} tokens")


def _references(
    job: BuildJob, texts: TextLengths, reference: ReferenceOutputs
) -> dict[int, ReferenceOutputs]:
    """Return for each length texts of exactly that length, and the source model's outputs at full length."""
    longest, found = Reference(job.source), {}
    for length in (*texts.sources, texts.whole):
        samples = [texts.shortened(texts.filled(each), length) for each in reference.samples[:TRIED_SAMPLES]]
        expected = [longest.run(sample) for sample in samples]
        found[length] = replace(reference, samples=samples, expected=expected)
    return found


def _figures(variant: VariantBuild, references: Mapping[int, ReferenceOutputs]) -> dict[str, LengthFigures]:
    found: dict[str, LengthFigures] = {}
    threads, first = default_threads(), next(iter(references.values()))
    with ExitStack() as stack:
        timed = replace(variant.to_time, engine=variant.target.executor())
        runner, _ = opened(stack, timed, first, threads)
        for length, reference in references.items():
            results = [runner.run(sample) for sample in reference.samples]
            errors = verify.compare_outputs(reference, results, dict.fromkeys(_names(reference), 0.0))
            worst = min((e.snr_db for e in errors.values() if e.snr_db is not None), default=None)
            found[str(length)] = {"snr_db": None if worst is None or math.isinf(worst) else worst}
            if worst == -math.inf:
                found[str(length)]["unequal"] = True
        if variant.timed:
            times = _times(variant, runner, references, threads)
            for tokens, own in found.items():
                own["p50_ms"], own["min_ms"] = times[tokens]["p50_ms"], times[tokens]["min_ms"]
    return found


def _names(reference: ReferenceOutputs) -> list[str]:
    return [spec.name for spec in reference.outputs]


class _OneText:
    """Runner that ignores its input and runs one text, to interleave lengths."""

    def __init__(self, runner: Runner, sample: Sample) -> None:
        self.device, self.precision = runner.device, runner.precision
        self._runner, self._sample = runner, sample
        self.facts, self.close = runner.facts, runner.close

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._runner.run(self._sample)


def _times(
    variant: VariantBuild, runner: Runner, references: Mapping[int, ReferenceOutputs], threads: int
) -> Json:
    """Return timings by length, cached ones if there are, so that a rebuild has identical bytes."""
    version = variant.target.engine.engine_version()
    name = stored_timings.timing_key(variant.to_time.digest, version, threads, kind="lengths")
    folder, limit = stored_timings.timings_folder(), stored_timings.TIMINGS_LIMIT
    size = stored_timings.TIMING_LIMIT_BYTES
    known = json_records.recall(folder, name, size)
    fields = {"min_ms": float}
    lengths = [str(length) for length in references]
    if isinstance(known, dict) and all(stored_timings.is_whole(known.get(each), fields) for each in lengths):
        return known
    each = [_OneText(runner, reference.samples[0]) for reference in references.values()]
    times = turns(each, {})
    made: Json = {
        length: dict(timing_summary(own, 0.0, threads)) for length, own in zip(lengths, times, strict=True)
    }
    return json_records.record_once(folder, name, made, limit, size)


def _reject_inaccurate(
    variant: VariantBuild, references: Mapping[int, ReferenceOutputs], by_length: Mapping[str, LengthFigures]
) -> None:
    whole = list(references)[-1]
    first = references[whole]
    row = precision_of(variant.precision)
    limits = verify.limits_db(first.outputs, first.saturating, first.floors_db, row.name)
    least = min(min(limits.values()), _snr(by_length[str(whole)]) - WORSE_DB)
    for length, figures in by_length.items():
        if _snr(figures) < least:
            variant.reject(
                f"SNR {_snr(figures):.1f} dB at {length} tokens, "
                f"but {_snr(by_length[str(whole)]):.1f} at {whole}"
            )


def _snr(figures: LengthFigures) -> float:
    """Return the SNR in dB; infinite if the outputs equal the reference's."""
    if figures.get("unequal"):
        return -math.inf
    return math.inf if figures["snr_db"] is None else figures["snr_db"]
