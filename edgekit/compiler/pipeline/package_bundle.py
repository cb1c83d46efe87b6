"""A model package of an engine as a bundle: every variant is opened, judged and timed like one of a build."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import onnx_ir as ir

from edgekit.bundle import card_files, shape_entries
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.variant import Status
from edgekit.compiler.evaluate.samples import Samples, load_samples
from edgekit.compiler.evaluate.verify import ReferenceOutputs, verify, write_files
from edgekit.compiler.evaluate.verify_bundle import ELSEWHERE, PACKAGE
from edgekit.compiler.model.input_ranges import input_ranges
from edgekit.compiler.model.onnx_file import open_model, opened_digest, signature
from edgekit.compiler.model.shape_sets import largest_shapes
from edgekit.compiler.model.suggested_shapes import DynamicShapesError
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.bundle_contents import manifest_of
from edgekit.compiler.pipeline.faults import Faults
from edgekit.compiler.pipeline.memory_need import Claim
from edgekit.compiler.pipeline.select_variants import time_variants
from edgekit.compiler.pipeline.variant_build import VariantBuild, run_reference
from edgekit.errors import ModelError, UsageError
from edgekit.processing.card import Card, load_card
from edgekit.system.progress import listener, stage
from edgekit.system.timings import files_digest
from edgekit.target.build_target import BuildTarget
from edgekit.target.contract import Artifact
from edgekit.target.model_packages import ModelPackage, PackagedVariant, package_target, packages_of
from edgekit.tensor_spec import Content, Json

VERIFIED_SAMPLES = 8


def build_package(path: Path, targets: Sequence[BuildTarget], request: BuildRequest, claim: Claim) -> Bundle:
    """Judge the variants of a package against its reference, and return them as a bundle.

    The reference is ``request.reference``, or the package's most exact variant for the CPU. If EdgeKit wrote
    the package, it is the bundle that it was written from, unless a reference, samples or a card are given.

    Raises:
        ModelError: the package or its reference can't be opened.
        UsageError: a target that is not the package's, or a reference of another form.
    """
    target = _target(path, targets, request)
    with stage(listener(request.progress), "opened") as notify:
        package = packages_of(target.name).read_package(path)
        if package.bundle is not None and not (request.reference or request.samples or request.card):
            notify(f"{package.name}  as EdgeKit exported it")
            return Bundle.create(*package.bundle)
        source, assumed = _reference_model(package, request)
        given = request.card
        card = load_card(given) if isinstance(given, str | Path) else cast("Card | None", given)
        inputs, outputs = signature(source)
        if card is not None:
            card.check(inputs, outputs)
        notify(f"{package.name}  {len(package.variants)} variants")
    with stage(listener(request.progress), "reference") as notify:
        samples = _samples(request, source, card)
        reference = run_reference(source, inputs, outputs, samples.arrays[:VERIFIED_SAMPLES])
        notify(samples.origin)
    faults, variants = Faults(package.digest), []
    for packaged in package.variants:
        with stage(listener(request.progress), "compared") as notify:
            variants.append(_judged(packaged, target, reference, faults))
            notify(f"{packaged.name}  {variants[-1].status}")
    with stage(listener(request.progress), "timed") as notify:
        time_variants(variants, reference, faults)
        notify(f"{sum(v.ran for v in variants)} of {len(variants)} variants ran")
    entries: dict[str, Content] = {
        card_files.entry_of(name): content for name, content in (card.files if card else {}).items()
    }
    manifest = manifest_of(
        request, [target], variants, entries,
        source={
            "file": path.name, "sha256": package.digest, "opset": source.opset_imports[""],
            "nodes": len(source.graph),
            PACKAGE: {"name": package.name, "reference": opened_digest(source)},
        },
        samples=samples.as_json(), inputs=inputs, outputs=outputs, card=card and card.as_json(),
    )  # fmt: skip
    manifest["options"] |= {"shapes": {spec.name: list(spec.shape) for spec in inputs}}
    manifest["options"] |= {"assumed_shapes": assumed} if assumed else {}
    _store_once(manifest, entries)
    pair = (reference.samples[0], reference.expected[0])
    manifest["golden"] = [shape_entries.golden_json(0, pair, entries)]
    return Bundle.create(manifest, entries)


def _store_once(manifest: Mapping[str, Json], entries: dict[str, Content]) -> None:
    """Let variants with equal files, such as shared weights, share an entry."""
    first: dict[Content, str] = {}
    for variant in manifest["variants"]:
        for file, entry in variant["files"].items():
            if (same := first.setdefault(entries[entry], entry)) != entry:
                variant["files"][file] = same
    kept = {entry for variant in manifest["variants"] for entry in variant["files"].values()}
    for entry in [name for name in entries if name.startswith("artifacts/") and name not in kept]:
        del entries[entry]


def _target(path: Path, targets: Sequence[BuildTarget], request: BuildRequest) -> BuildTarget:
    name = package_target(path)
    for option in ("precision", "max_drop", "force"):
        if getattr(request, option):
            raise UsageError(f"--{option.replace('_', '-')} does not apply to model packages; leave it out")
    other = next((target.profile.name for target in targets if target.name != name), None)
    if other is not None or len(targets) != 1:
        raise UsageError(
            f"{path.name} is a model package, whose variants are compiled already: give -t {name} alone, or "
            "build the .onnx file of one of its variants"
        )
    return targets[0]


def _reference_model(package: ModelPackage, request: BuildRequest) -> tuple[ir.Model, str]:
    """Open the reference. Dimensions that nothing gives get the sizes that a check would suggest."""
    best = next(variant for variant in package.variants if variant.name == package.reference)
    if best.only_there and request.reference is None:
        raise ModelError(
            f"{package.name}: no variant runs on the CPU; give the source model: --reference MODEL.onnx"
        )
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = write_files(Artifact(best.files), Path(folder))
        path = Path(request.reference or next(iter(files.values())))
        shapes = largest_shapes(request.shapes or {})
        try:
            try:
                return open_model(path, shapes), ""
            except DynamicShapesError as problem:
                suggested = problem.suggested.shapes
                text = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in suggested.items())
                return open_model(path, {**suggested, **shapes}), f"suggested: {text}"
        except ModelError as problem:
            if request.reference is not None:
                raise
            raise ModelError(
                f"{package.name}: variant {best.name} can't be the reference: {problem}\n"
                "  give the source model: edgekit build PACKAGE --reference MODEL.onnx"
            ) from None


def _samples(request: BuildRequest, source: ir.Model, card: Card | None) -> Samples:
    inputs, ranges = signature(source)[0], {}
    if request.samples is None and any(not spec.dtype.startswith("float") for spec in inputs):
        canonical = source.clone()
        run_passes(canonical)
        ranges = input_ranges(canonical)
    return load_samples(request.samples, inputs, card, VERIFIED_SAMPLES, ranges)


def _judged(
    packaged: PackagedVariant, target: BuildTarget, reference: ReferenceOutputs, faults: Faults
) -> VariantBuild:
    variant = VariantBuild(target, packaged.precision, title=packaged.name)
    artifact = Artifact(packaged.files, packaged.options)
    if packaged.only_there:
        variant.evidence = {"size_bytes": artifact.size_bytes}
        variant.reason = f"made for {packaged.provider}: {packaged.only_there}"
        return variant
    variant.artifact, variant.digest = artifact, files_digest(artifact.files)
    variant.evidence = {"size_bytes": artifact.size_bytes}
    run = partial(verify, artifact, target.executor(), packaged.precision, reference)
    if (result := variant.attempt(faults, run)) is not None:
        variant.outcome, variant.reason, variant.evidence = result.outcome, result.reason, result.evidence
        if not packaged.on_cpu and variant.outcome is Status.VERIFIED:
            variant.reason += f"{ELSEWHERE}{packaged.provider}, not run there"
    return variant
