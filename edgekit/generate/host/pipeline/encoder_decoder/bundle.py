"""Build of a speech or text-to-text model: from one folder to a bundle with a verified encoder and decoder
per target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import entry_of
from edgekit.bundle.shape_entries import EXTENSION, as_json, golden_json
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.bundle_contents import manifest_of
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.memory_need import Claim, unclaimed
from edgekit.compiler.pipeline.variant_build import VariantBuild, refuse_if_all_are_lost
from edgekit.errors import UsageError
from edgekit.generate.host.pipeline.encoder_decoder.job import FORMS, EncoderDecoderJob, Kind, ends_of
from edgekit.generate.host.pipeline.encoder_decoder.speech import SPEECH
from edgekit.generate.host.pipeline.encoder_decoder.text2text import TEXT2TEXT
from edgekit.generate.host.pipeline.encoder_decoder.variants import compile_variant, form_of
from edgekit.generate.host.pipeline.generation import build_in_turn, source_entry
from edgekit.system.progress import listener, stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, FULL_PRECISION, precision_of
from edgekit.tensor_spec import Content

TRIED: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in FORMS},
    AUTO: tuple(name for name in FORMS if name == FULL_PRECISION or not precision_of(name).is_float),
}
"""Requested precision -> the precisions that are built."""
WEIGHT_COPIES = 6
"""Copies of the float weights: the reference's, a graph's, the compiled one's, the engine's."""
SCORE_COPIES = 4
"""Copies of one layer's attention scores in the reference's encoder."""


def build_speech(
    path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim = unclaimed
) -> Bundle:
    """Build the bundle of a speech model; arguments and errors as ``build_encoder_decoder``."""
    return build_encoder_decoder(SPEECH, path, targets, request, claim)


def build_text2text(
    path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim = unclaimed
) -> Bundle:
    """Build the bundle of a text-to-text model; arguments and errors as ``build_encoder_decoder``."""
    return build_encoder_decoder(TEXT2TEXT, path, targets, request, claim)


def build_encoder_decoder(
    kind: Kind, path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim = unclaimed
) -> Bundle:
    """Build the bundle of a speech or text-to-text model.

    Args:
        request: Arguments of the build; ``samples`` are recordings or texts. ``max_drop`` is the largest
            share of words that an int8 variant may write otherwise than the float model, or by which its
            perplexity may exceed the float model's.
        claim: Called with the memory in bytes that the build needs, before it is used.

    Raises:
        UsageError: the precision is unknown, or max_drop is not a percentage.
        ModelError: the folder is damaged, or has a form that EdgeKit does not run.
        SampleError: a sample cannot be read, or is too long.
        MissingDependency: a compiler or the package ``tokenizers`` is not installed.
        BuildFault: every target met a fault.
    """
    _check_precision(kind.models, targets, request.requested_precision)
    limits = kind.checked_limits(request)
    with stage(listener(request.progress), "opened") as notify:
        model = kind.open(path, request.context)
        config, copies = model.config, WEIGHT_COPIES + 2 * (len(model.at_shapes()) - 1)
        parameters = sum(math.prod(shape) for shape in config.weight_shapes().values())
        notify(f"{path.name}  {model.source_format}, {model.family}, {parameters / 1e6:.1f} M parameters")
        claim(4 * (copies * parameters + SCORE_COPIES * config.heads * config.positions**2), 0.0)
    with stage(listener(request.progress), "reference") as notify:
        sources = kind.read(request.samples, model)
        job = EncoderDecoderJob(kind, model, limits, request.force, Faults(model.sha256), sources)
        notify(f"{kind.described(job)}; {sources.origin}")
    precisions, variants = TRIED[request.requested_precision], list[VariantBuild]()
    further = [name for name in (FULL_PRECISION,) if name not in precisions]
    compiled = partial(compile_variant, job)
    for target in targets:
        variants += build_in_turn(
            compiled,
            target,
            precisions,
            further,
            job.force,
            job.faults,
            listener(request.progress),
            job.described,
        )
    refuse_if_all_are_lost(path.name, job.faults, targets, variants)
    return _bundle(job, path, targets, variants, request)


def _check_precision(kind: str, targets: Sequence[BuildTarget], precision: str) -> None:
    """Check that the targets have the requested precision of such models."""
    if precision not in TRIED:
        raise UsageError(f"{kind} cannot be built as {precision!r}; available: {', '.join(TRIED)}")
    for target in targets:
        for name in TRIED[precision]:
            if form_of(target, name) is None:
                forms = " or ".join(FORMS[name].forms)
                raise UsageError(
                    f"{target.name} does not compile {forms}, which {name} of {kind} needs; use ort, "
                    "openvino or tflite"
                )


def _bundle(
    job: EncoderDecoderJob,
    path: Path,
    targets: Sequence[BuildTarget],
    variants: Sequence[VariantBuild],
    request: BuildRequest,
) -> Bundle:
    model, card = job.model, job.kind.card(job.model)
    config, signatures = model.config, [ends_of(shape.config) for shape in model.at_shapes()]
    entries: dict[str, Content] = {entry_of(name): content for name, content in card.files.items()}
    golden = [job.golden(number) for number in range(len(signatures))]
    names = golden_json(0, golden[-1], entries)
    extensions = {EXTENSION: as_json(signatures, golden, entries)} if len(signatures) > 1 else {}
    architecture = model.family if config.reads_text else model.family.lower()
    about = {"format": model.source_format, "architecture": architecture, "sizes": config.sizes()}
    inputs, outputs = signatures[-1]
    manifest = manifest_of(
        request, targets, variants, entries,
        source=source_entry(path, model.sha256, variants, {job.kind.entry: about}),
        samples={"origin": job.sources.origin}, inputs=inputs, outputs=outputs, card=card.as_json(),
    )  # fmt: skip
    return Bundle.create({**manifest, "golden": [names], "extensions": extensions}, entries)
