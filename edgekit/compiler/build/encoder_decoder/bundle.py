"""The bundle of an encoder-decoder: its variants in the requested precisions, card, golden vector and
manifest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.card_files import entry_of
from edgekit.bundle.shape_entries import EXTENSION, as_json, golden_json
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.bundle_contents import tool_versions, variant_entry
from edgekit.compiler.build.encoder_decoder.variants import FORMS, EncoderDecoderJob, build_variant, form_of
from edgekit.compiler.build.variant_build import VariantBuild, refuse_if_all_are_lost
from edgekit.compiler.lowering.language.graph_writer import OPSET
from edgekit.errors import UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.tensor import TensorInput
from edgekit.system.declared_options import stored_options
from edgekit.system.progress import Progress, stage
from edgekit.target.build_target import BuildTarget
from edgekit.target.precisions import AUTO, FULL_PRECISION, precision_of
from edgekit.tensor_spec import Array, Content, Json, Signature

TRIED: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in FORMS},
    AUTO: tuple(name for name in FORMS if name == FULL_PRECISION or not precision_of(name).is_float),
}
"""Requested precision -> the precisions that are built."""
WEIGHT_COPIES = 6
"""Copies of the float weights: the reference's, a graph's, the compiled one's, the engine's."""
SCORE_COPIES = 4
"""Copies of one layer's attention scores in the reference's encoder."""


def check_precision(kind: str, targets: Sequence[BuildTarget], precision: str) -> None:
    """Check that the targets have the requested precision.

    Args:
        kind: Name of such models in messages.
        targets: The targets to build for.
        precision: The requested one.

    Raises:
        UsageError: it is unknown, or a target does not have it.
    """
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


def build_variants(
    job: EncoderDecoderJob,
    path: Path,
    targets: Sequence[BuildTarget],
    request: BuildRequest,
    describe: Callable[[VariantBuild], str],
) -> list[VariantBuild]:
    """Build the requested precisions for each target; fp32 too where the only one is not good enough.

    Args:
        job: The job.
        path: Path of the model.
        targets: The targets to build for.
        request: Arguments of the build.
        describe: Returns what the progress shows of a variant beside its status.

    Raises:
        BuildFault: every target met a fault.
    """
    variants: list[VariantBuild] = []
    for target in targets:
        variants += _variants_of(
            job, target, request.requested_precision, job.faults.passing(request.progress), describe
        )
    refuse_if_all_are_lost(path.name, job.faults, targets, variants)
    return variants


def _variants_of(
    job: EncoderDecoderJob, target: BuildTarget, precision: str, progress: Progress,
    describe: Callable[[VariantBuild], str],
) -> list[VariantBuild]:  # fmt: skip
    variants: list[VariantBuild] = []
    waiting = list(TRIED[precision])
    while waiting:
        with stage(progress, "compiled") as notify:
            variants.append(build_variant(job, target, waiting.pop(0)))
            notify(f"{variants[-1].name}  {variants[-1].status}{describe(variants[-1])}")
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


def constant(name: str, value: Array) -> TensorInput:
    """Return a constant input of a card."""
    return TensorInput(name, value.shape, value=tuple(map(float, value.ravel())), dtype="int64")


def assembled(
    job: EncoderDecoderJob,
    card: Card,
    path: Path,
    targets: Sequence[BuildTarget],
    variants: Sequence[VariantBuild],
    request: BuildRequest,
    *,
    source: Mapping[str, Json],
    origin: str,
    golden: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
) -> Bundle:
    """Assemble the bundle.

    Args:
        job: The job.
        card: The card, with its files.
        path: Path of the model.
        targets: The targets that it was built for.
        variants: All variants.
        request: Arguments of the build.
        source: Facts of the model, by their key in the manifest's ``source``.
        origin: Description of the samples.
        golden: Inputs and outputs of the golden vector of each shape, by name, the largest last.
    """
    entries: dict[str, Content] = {entry_of(name): content for name, content in card.files.items()}
    *_, (feeds, results) = golden
    names = golden_json(0, (dict(feeds), dict(results)), entries)
    nodes = [variant.artifact.facts.get("nodes", 0) for variant in variants]
    inputs, outputs = job.ends()
    shapes = [*job.further(), Signature(tuple(inputs), tuple(outputs))]
    extensions = {EXTENSION: as_json(shapes, golden, entries)} if len(shapes) > 1 else {}
    manifest: dict[str, Json] = {
        "edgekit": __version__,
        "tools": tool_versions(),
        "source": {
            "file": path.name,
            "sha256": job.model.sha256,
            "opset": OPSET,
            "nodes": max(nodes, default=0),
            **source,
        },
        "options": {
            "targets": [target.profile.name for target in targets],
            "precision": request.requested_precision,
            **stored_options(request),
        },
        "samples": {"origin": origin},
        "inputs": [spec.as_json() for spec in inputs],
        "outputs": [spec.as_json() for spec in outputs],
        "card": card.as_json(),
        "profiles": {target.profile.name: target.profile.as_json() for target in targets},
        "variants": [variant_entry(variant, entries) for variant in variants],
        "golden": [names],
        "extensions": extensions,
    }
    return Bundle.create(manifest, entries)
