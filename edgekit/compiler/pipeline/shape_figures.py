"""Accuracy and interleaved timings of variants at each shape."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from edgekit.bundle.evidence import ShapeFigures
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.timing import Timed, confirmed_turns, opened, timing_summary, turns
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.evaluate.verify_bundle import limit_elsewhere_db, lowest_snr_db
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.shape_compilers import RangeCompiler
from edgekit.compiler.pipeline.shapes import labels
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.system import json_records
from edgekit.system import timings as stored_timings
from edgekit.system.cpu import default_threads
from edgekit.system.progress import Progress, stage
from edgekit.system.timings import files_digest
from edgekit.target.contract import Runner
from edgekit.target.precisions import precision_of
from edgekit.tensor_spec import Array, Json, Signature

RANGE_SLOWER_LIMIT, RANGE_SLOWER_MS = 1.5, 0.2
"""A file for all sizes of a range is rejected if it takes longer than a file of one shape by this factor and
by so many milliseconds: OpenVINO infers all shapes in each run, some 0.03 to 0.1 ms."""


def evaluate_shapes(
    job: BuildJob,
    shapes: Sequence[tuple[Signature, ReferenceOutputs]],
    variants: Sequence[VariantBuild],
    progress: Progress,
) -> None:
    """Run each kept variant at each shape, the largest last, and reject those that are inaccurate at one."""
    names = labels([signature for signature, _ in shapes])
    references = {name: reference for name, (_, reference) in zip(names, shapes, strict=True)}
    with stage(progress, "by shape") as report:
        for variant in (candidate for candidate in variants if candidate.ran and not candidate.rejected):
            measure = partial(_figures, variant, references)
            figures = variant.attempt(job.faults, measure)
            if figures is None:
                continue
            variant.evidence["shapes"] = figures
            _reject_inaccurate(variant, shapes[-1][1], figures)
            if not variant.rejected:
                _reject_slow(variant, figures)
        report("; ".join(references))


def _figures(variant: VariantBuild, references: Mapping[str, ReferenceOutputs]) -> list[ShapeFigures]:
    figures: list[ShapeFigures] = []
    threads, largest = default_threads(), list(references.values())[-1]
    with ExitStack() as stack:
        timed = replace(variant.to_time, engine=variant.target.executor())
        runner, _ = opened(stack, timed, largest, threads)
        for name, reference in references.items():
            results = [runner.run(sample) for sample in reference.samples]
            worst = lowest_snr_db(reference, results)
            figures.append({"shape": name, "snr_db": worst if math.isfinite(worst) else None})
            if worst == -math.inf:
                figures[-1]["unequal"] = True
        if variant.timed:
            times = _times(variant, runner, references, threads)
            for row in figures:
                record = times[row["shape"]]
                row["p50_ms"], row["min_ms"] = record["p50_ms"], record["min_ms"]
                if "of_one_shape" in record:
                    row["of_one_shape"] = record["of_one_shape"]
    return figures


class _OneSample:
    """Runner that ignores its input and runs one sample."""

    def __init__(self, runner: Runner, sample: Sample) -> None:
        self.device, self.precision = runner.device, runner.precision
        self._runner, self._sample = runner, sample
        self.facts, self.close = runner.facts, runner.close

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._runner.run(self._sample)


def _times(
    variant: VariantBuild, runner: Runner, references: Mapping[str, ReferenceOutputs], threads: int
) -> Json:
    """Return timings by shape, cached ones if there are, so that a rebuild has identical bytes."""
    version = variant.target.engine.engine_version()
    name = stored_timings.timing_key(variant.to_time.digest, version, threads, kind="shapes")
    folder, limit = stored_timings.timings_folder(), stored_timings.TIMINGS_LIMIT
    size = stored_timings.TIMING_LIMIT_BYTES
    cached = json_records.recall(folder, name, size)
    fields = {"min_ms": float}
    if isinstance(cached, dict) and all(
        stored_timings.is_whole(cached.get(shape), fields) for shape in references
    ):
        return cached
    # One shape after the other: in turns, the idle threads of one would disturb the next.
    samples = [reference.samples[0] for reference in references.values()]
    times = [turns([_OneSample(runner, sample)], {})[0] for sample in samples]
    record: Json = {
        shape: dict(timing_summary(runs, 0.0, threads)) for shape, runs in zip(references, times, strict=True)
    }
    for shape, ratio in _of_one_shape(variant, runner, references, threads).items():
        record[shape]["of_one_shape"] = ratio
    return json_records.record_once(folder, name, record, limit, size)


def _of_one_shape(
    variant: VariantBuild, runner: Runner, references: Mapping[str, ReferenceOutputs], threads: int
) -> dict[str, float]:
    """Return the time of a float variant that takes a range, relative to that of files of one shape, by the
    shape: the largest, and a smaller one. Empty for other variants."""
    compiler, precision = variant.target.compiler, precision_of(variant.precision)
    if not isinstance(compiler, RangeCompiler) or not precision.is_float:
        return {}
    ratios, compiled_as = {}, variant.target.compiled_as(precision.name)
    for signature, artifact in compiler.of_one_shape(variant.profile, compiled_as):
        name = next(n for n, at_shape in references.items() if _fits(at_shape.samples[0], signature))
        one_shape = Timed(variant.target.engine, artifact, files_digest(artifact.files))
        with ExitStack() as stack:
            reference = replace(references[name], inputs=signature.inputs, outputs=signature.outputs)
            pair = (runner, opened(stack, one_shape, reference, threads)[0])
            ratios[name] = confirmed_turns(pair, reference.samples[0], RANGE_SLOWER_LIMIT)
    return ratios


def _reject_slow(variant: VariantBuild, by_shape: Sequence[ShapeFigures]) -> None:
    for row in by_shape:
        ratio = row.get("of_one_shape", 0.0)
        if ratio > RANGE_SLOWER_LIMIT and row["min_ms"] * (1 - 1 / ratio) > RANGE_SLOWER_MS:
            variant.reject(f"{ratio:.2f}x the time of a file of one shape at {row['shape']}")


def _fits(sample: Sample, signature: Signature) -> bool:
    return all(sample[spec.name].shape == spec.shape for spec in signature.inputs)


def _reject_inaccurate(
    variant: VariantBuild, largest: ReferenceOutputs, by_shape: Sequence[ShapeFigures]
) -> None:
    last = by_shape[-1]
    limit_db = limit_elsewhere_db(largest, precision_of(variant.precision).name, _snr(last))
    for figures in by_shape:
        if _snr(figures) < limit_db:
            variant.reject(
                f"SNR {_snr(figures):.1f} dB at {figures['shape']}, but {_snr(last):.1f} at {last['shape']}"
            )


def _snr(figures: ShapeFigures) -> float:
    if figures.get("unequal"):
        return -math.inf
    return math.inf if figures["snr_db"] is None else figures["snr_db"]
