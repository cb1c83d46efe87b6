"""Trial of a variant: contained, compiled, run and judged, in one place.

Producers (float, int8, weight-only, fp8, smaller models) only say how a variant is compiled and judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Concatenate, ParamSpec

import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.pipeline.faults import Fault, Faults
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.errors import EdgeKitError, reason_of
from edgekit.system.timings import files_digest
from edgekit.target.contract import Artifact

P = ParamSpec("P")


@dataclass(frozen=True, eq=False)
class Compiled:
    """Compiled variant.

    Attributes:
        artifact: Output of the target's compiler.
        judge: Runs the variant, and writes its outcome and evidence.
        evidence: Evidence that is known before it runs, in addition to its size and the compiler's facts.
    """

    artifact: Artifact
    judge: Callable[[VariantBuild], object]
    evidence: Evidence = field(default_factory=Evidence)


def try_variant(
    variant: VariantBuild,
    faults: Faults,
    compile_variant: Callable[Concatenate[VariantBuild, P], Compiled | None],
    *args: P.args,
    **options: P.kwargs,
) -> VariantBuild:
    """Compile a variant, run it and judge it; a fault costs this variant alone.

    Args:
        variant: The variant, which is changed and returned.
        compile_variant: Compiles it. If it returns None, the variant stays as it is, without files.

    Raises:
        EdgeKitError: the user can fix it, and the variant has no parent to fall back to.
    """
    trial = partial(compile_and_judge, variant, compile_variant, *args, **options)
    tried = faults.contain(variant.profile.name, variant.name, trial)
    if isinstance(tried, Fault):
        variant.artifact, variant.digest, variant.evidence = Artifact({}), "", {"size_bytes": 0}
        variant.lose(tried)
    return variant


def compile_and_judge(
    variant: VariantBuild,
    compile_variant: Callable[Concatenate[VariantBuild, P], Compiled | None],
    *args: P.args,
    **options: P.kwargs,
) -> None:
    """Do the work of :func:`try_variant`, whose arguments it has; faults are raised."""
    try:
        compiled = compile_variant(variant, *args, **options)
    except EdgeKitError as problem:
        if variant.parent is None:
            raise
        variant.lose(Fault(reason_of(problem, for_bundles=True), is_bug=False))
        return
    if compiled is None:
        return
    artifact = variant.artifact = compiled.artifact
    variant.digest = files_digest(artifact.files)
    variant.evidence = {"size_bytes": artifact.size_bytes, "compile": dict(artifact.facts)}
    variant.evidence |= compiled.evidence
    compiled.judge(variant)


def compile_float(
    variant: VariantBuild,
    model: ir.Model,
    reference: ReferenceOutputs,
    before: Sequence[VariantBuild] = (),
) -> Compiled:
    """Compile the canonical graph as it is; the variant is compared with the source model.

    The result of a variant in ``before`` with the same target, precision and bytes is copied.
    """
    target = variant.target
    profile, compiled_as = target.profile, target.compiled_as(variant.precision)
    artifact = target.compiler.compile_model(model, profile, compiled_as)
    if target.info.refine is not None:
        artifact = target.info.refine(model, profile, compiled_as, artifact, reference.samples)
    return Compiled(artifact, partial(_verify, reference, before))


def _verify(reference: ReferenceOutputs, before: Sequence[VariantBuild], variant: VariantBuild) -> None:
    parent = variant.parent
    if parent is not None and _has_same_bytes(variant, parent):
        variant.evidence = deepcopy(parent.evidence)
        variant.reject(f"identical to {parent.name}")
        return
    key = (variant.target.name, variant.precision)
    alike = (other for other in before if (other.target.name, other.precision) == key)
    same = next((other for other in alike if _has_same_bytes(variant, other)), None)
    result = same or verify.verify(variant.artifact, variant.target.executor(), variant.precision, reference)
    variant.outcome, variant.reason = result.outcome, result.reason
    variant.evidence = deepcopy(result.evidence)


def _has_same_bytes(one: VariantBuild, other: VariantBuild) -> bool:
    return (one.digest, one.artifact.options) == (other.digest, other.artifact.options)
