"""Stages of a build: one function each, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from edgekit.compiler.evaluate.card_check import check_decoding, check_labels
from edgekit.compiler.evaluate.proof import USED_SAMPLES
from edgekit.compiler.evaluate.samples import (
    Sample,
    Samples,
    SampleSource,
    load_samples,
    need_answers,
    need_variation,
    spread,
)
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import ImportOptions, Source
from edgekit.compiler.importers.conversion import Imported, open_source_model, source_name
from edgekit.compiler.lowering.byte_input import byte_card, find_byte_input, fold_bytes, take_bytes
from edgekit.compiler.lowering.io_layouts import by_target, lay_out, refuse_integers_in_float
from edgekit.compiler.model.input_ranges import input_ranges
from edgekit.compiler.model.onnx_file import opened_digest, signature
from edgekit.compiler.model.shape_sets import largest_shapes
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.build_job import BuildJob, BuildSamples
from edgekit.compiler.pipeline.build_options import BuildOptions, precisions_to_compile
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.causes import add_float16_causes
from edgekit.compiler.pipeline.distilled import distillation, split_for_training
from edgekit.compiler.pipeline.estimates import estimate_costs, hold_to_memory
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.float8 import add_float8, refuse_without_float8
from edgekit.compiler.pipeline.held_out import evaluate_held_out
from edgekit.compiler.pipeline.import_check import check_import
from edgekit.compiler.pipeline.int8 import add_int8, int8_profiles
from edgekit.compiler.pipeline.quantization_data import (
    QuantizationData,
    collect_quantization_data,
    data_without_samples,
)
from edgekit.compiler.pipeline.select_variants import select, time_variants
from edgekit.compiler.pipeline.shrunk import add_shrunk, refuse_what_cannot_shrink
from edgekit.compiler.pipeline.try_variant import compile_float, try_variant
from edgekit.compiler.pipeline.variant_build import (
    VariantBuild,
    refuse_if_all_are_lost,
    run_reference,
    runs_here,
)
from edgekit.compiler.pipeline.ways_out import with_ways_out
from edgekit.compiler.pipeline.weight_only import add_weight_only, find_weight_forms
from edgekit.compiler.quantize.observe.calibrate import split
from edgekit.diagnostics import Finding
from edgekit.errors import EngineError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.image_preparation import from_bytes
from edgekit.processing.inputs.image import ImageInput
from edgekit.system import cpu
from edgekit.system.memory import left_out_of_collections
from edgekit.system.progress import Notify, Progress, listener, stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.check_support import check_canonical, refuse_unsupported
from edgekit.target.precisions import AUTO, FULL_PRECISION, precision_of

VERIFIED_SAMPLES = 8
"""The most samples of the user that every variant is run on, spread evenly over all of them."""


def open_source(
    model: Source,
    card: Card | None,
    targets: Sequence[BuildTarget],
    options: BuildOptions,
    request: BuildRequest,
) -> BuildJob:
    """Open the model, run the passes, and find the precisions to build."""
    io, has_samples = request.io, request.samples is not None
    with stage(listener(request.progress), "opened") as notify:
        source, imported = _opened(model, card, request)
        name = source_name(model)
        inputs, outputs = signature(source)
        if card:
            card.check(inputs, outputs)
            check_labels(card, outputs)
        image, nodes = find_byte_input(io, card), len(source.graph)
        canonical = source.clone()
        passes = run_passes(canonical)
        layouts = lay_out(canonical, io, targets, image.name if image else "")
        targets = by_target(layouts, targets)
        if image is not None and card is not None:
            take_bytes(source, image)
            fold_bytes(canonical, image)
            card = byte_card(card, image.name)
        quantized = any(node.op_type == "QuantizeLinear" for node in canonical.graph)
        precisions = precisions_to_compile(options.precision, name, quantized, targets)
        refuse_without_float8(options, targets, has_samples)
        refuse_what_cannot_shrink(options, canonical, has_samples, quantized)
        searched, no_int8 = ((), "") if quantized else int8_profiles(options, targets, has_samples)
        refuse_integers_in_float(layouts, quantized or bool(searched))
        forms = {} if quantized else find_weight_forms(options, targets)
        opset = source.opset_imports[""]
        origin = f"{imported.importer.source_format}, as ONNX " if imported else ""
        notify(f"{name}  {origin}opset {opset}, {nodes} nodes -> {len(canonical.graph)}")
    return BuildJob(
        name=name, source=source, nodes=nodes, imported=imported, canonical=canonical, passes=passes,
        card=card, image=image, layouts=layouts, targets=targets, request=request, options=options,
        precisions=precisions, int8_profiles=searched, no_int8=no_int8, weight_forms=forms,
        faults=Faults(opened_digest(source)),
    )  # fmt: skip


def importing(request: BuildRequest) -> ImportOptions:
    """Return the options of the importer."""
    return ImportOptions(example_inputs=request.example_inputs, trust_pickle=request.trust_pickle)


def check_targets(job: BuildJob, progress: Progress) -> None:
    """Check that every target can express the model's nodes."""
    with stage(progress, "checked") as notify:
        findings: list[Finding] = []
        for target in job.targets:
            name = target.profile.name
            outcome = job.faults.contain(name, name, partial(check_canonical, job.canonical, [target]))
            findings += with_ways_out(job.canonical, outcome) if not isinstance(outcome, Fault) else []
        refuse_unsupported(job.name, job.canonical, findings)
        notify(", ".join(target.profile.name for target in job.targets))


def prepare_samples(job: BuildJob, source: SampleSource, progress: Progress) -> BuildSamples:
    """Load and split the samples, and run the source model on those that variants are verified with."""
    with stage(progress, "reference") as notify:
        limit = USED_SAMPLES if job.holds_out else VERIFIED_SAMPLES
        ranges = input_ranges(job.canonical) if source is None else {}
        samples = load_samples(source, job.inputs, job.card, None if job.options.distil else limit, ranges)
        if job.holds_out:
            need_variation(samples)
        training = split_for_training(samples) if job.options.distil else None
        parts = training.split if training else split(samples.arrays) if job.holds_out else None
        held_out = parts.test if parts is not None else samples.arrays
        verified = [held_out[i] for i in spread(range(len(held_out)), VERIFIED_SAMPLES)]  # each is read once
        reference = _reference(job, samples, verified)
        if source is not None:
            need_answers(samples.origin, reference.expected)
        if job.card:
            check_decoding(job.card, reference.expected)
        notify(samples.origin)
    if job.imported is None:
        return BuildSamples(samples, parts, reference, None, training)
    with stage(progress, "compared") as notify:
        compared = check_import(job.imported, job.source, _of_pixels(reference, job.image), source is None)
        notify(str(compared))
    return BuildSamples(samples, parts, reference, compared, training)


def _of_pixels(reference: ReferenceOutputs, image: ImageInput | None) -> ReferenceOutputs:
    """Return the reference with the original's inputs: the card's floats instead of bytes."""
    if image is None:
        return reference
    feeds = [{**sample, image.name: from_bytes(image, sample[image.name])} for sample in reference.samples]
    return replace(reference, samples=feeds)


def _reference(job: BuildJob, samples: Samples, chosen: Sequence[Sample]) -> ReferenceOutputs:
    try:
        return run_reference(job.source, job.inputs, job.outputs, chosen)
    except EngineError as problem:
        ranges = samples.ranges.items()
        if not ranges:
            raise
        notes = [f"{name} from {limits.low:g} to {limits.high:g}: {limits.reason}" for name, limits in ranges]
        raise EngineError("\n  ".join([f"{problem}; the inputs were random", *notes])) from problem


def build_float_variants(
    job: BuildJob, reference: ReferenceOutputs, progress: Progress
) -> list[VariantBuild]:
    """Compile and verify the variants that need no calibration, for every target."""
    variants: list[VariantBuild] = []

    def build(target: BuildTarget, precision: str, parent: VariantBuild | None) -> VariantBuild:
        variant = VariantBuild(target, precision, parent)
        return try_variant(variant, job.faults, compile_float, job.canonical, reference, variants)

    for target in job.targets:
        parent, offered = None, _offered(job, target)
        fault = job.faults.by_profile.get(target.profile.name)  # in the check of the model
        for precision in offered[:1] if fault else offered:
            with stage(progress, "compiled") as notify:
                variant = VariantBuild(target, precision) if fault else build(target, precision, parent)
                if fault:
                    variant.lose(fault)
                variants.append(variant)
                parent = parent or (variant if variant.artifact.files else None)
                notify(f"{variant.name}  {variant.status}")
        is_float = precision_of(variants[-1].precision).is_float
        if FULL_PRECISION not in offered and is_float and variants[-1].rejected and not fault:
            # fp16 alone was compiled, and rejected: the target still gets a model that works.
            variants.append(build(target, FULL_PRECISION, None))
    return variants


def _offered(job: BuildJob, target: BuildTarget) -> list[str]:
    """Return the precisions to compile for a target: ``auto`` tries bf16 and fp16 arithmetic only if this
    machine's processor has it, to time it. Without a request it is the profile's own."""
    if job.options.by_profile and FULL_PRECISION in job.precisions:
        return [target.profile.own_precision]
    if job.options.precision != AUTO:
        return list(job.precisions)
    features = set(cpu.instruction_sets() if runs_here(target.profile) else ())
    needed = target.info.instruction_sets
    rows = [precision_of(precision) for precision in job.precisions]
    return [row.name for row in rows if not row.is_narrow or features.intersection(needed.get(row.name, ()))]


def add_quantized_variants(
    job: BuildJob, samples: BuildSamples, variants: list[VariantBuild], progress: Progress
) -> list[VariantBuild]:
    """Calibrate, search for int8, and add weight-only variants, as far as the options request them.

    The calibration data is shared by all of them, and its memory is freed on return.
    """
    progress = job.faults.passing(progress)
    data = _calibrate(job, samples, progress)
    for narrow in [v for v in variants if v.is_narrow and v.ran] if data is not None else []:
        assert data is not None
        test = partial(evaluate_held_out, narrow, job.canonical, data.held_out, job.options)
        narrow.attempt(job.faults, test)
    observed = data.observations if data is not None else None
    add_float16_causes(variants, job.canonical, samples.reference.samples, observed)
    if job.int8_profiles and data is not None:
        with left_out_of_collections(), stage(progress, "searched", live=True) as notify:
            variants = add_int8(job, variants, data, notify)
    if job.options.makes("quantized") and data is not None:
        with stage(progress, "quantized") as notify:
            variants = add_float8(job, variants, data)
            notify(", ".join(v.name for v in variants if v.precision == job.options.precision))
    if job.weight_forms:
        with stage(progress, "weights", live=True) as notify:
            data = data or data_without_samples(job.canonical, samples.reference)
            variants = add_weight_only(job, variants, data, notify)
            added = (v.precision for v in variants if "stored_weights" in v.evidence)
            notify(", ".join(dict.fromkeys(added)) or "no weights are large enough")
    if job.options.shrink and data is not None:
        with stage(progress, "shrunk", live=True) as notify:
            teaching = distillation(job.options, data.search_context.model, job.card, samples.training)
            variants = add_shrunk(job, variants, data, samples.reference, teaching, notify)
            notify(f"{sum(v.shrunk is not None for v in variants)} smaller variants to time")
    return variants


def _calibrate(job: BuildJob, samples: BuildSamples, progress: Progress) -> QuantizationData | None:
    if samples.parts is None:
        return None
    with stage(progress, "calibrated", live=True) as report:

        def observed(done: int, total: int, notify: Notify = report) -> None:
            notify("", done, total, "samples")

        observed_samples = samples.training.samples if samples.training else samples.all
        data = collect_quantization_data(
            job.source, job.canonical, samples.reference, observed_samples, samples.parts, job.card, observed,
            samples.uses_labels,
        )  # fmt: skip
        report(data.summary())
    return data


def estimate_variants(job: BuildJob, variants: Sequence[VariantBuild], progress: Progress) -> None:
    """Estimate the costs of variants with their target's own tool, if it has one, and reject those that do
    not fit their device's memories."""
    if any(target.info.estimate is not None for target in job.targets):
        with stage(progress, "estimated") as notify:
            notify(f"{estimate_costs(variants, job.faults)} variants")
    hold_to_memory(variants)


def time_and_select(
    job: BuildJob, reference: ReferenceOutputs, variants: list[VariantBuild], progress: Progress
) -> list[VariantBuild]:
    """Time the variants that run here, and reject or drop those without a gain."""
    with stage(progress, "timed") as notify:
        time_variants(variants, reference, job.faults)
        variants = select(variants, job.options, reference)
        notify(f"{sum(not v.rejected for v in variants)} of {len(variants)} variants kept")
    refuse_if_all_are_lost(job.name, job.faults, job.targets, variants)
    return variants


def _opened(model: Source, card: Card | None, request: BuildRequest) -> tuple[ir.Model, Imported | None]:
    shapes = {**(card.shapes() if card else {}), **largest_shapes(request.shapes or {})}
    try:
        return open_source_model(model, shapes, importing(request))
    except UsageError as problem:
        hint = f"; the shapes of the card {card.title!r} count as --shape" if card else ""
        raise UsageError(f"{problem}{hint}") from None
