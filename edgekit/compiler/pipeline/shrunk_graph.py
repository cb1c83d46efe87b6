"""Smaller model of a build: its graph, its outputs, and the result of each step that made it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from edgekit.bundle.evidence import PathStep
from edgekit.compiler.compress.network_cost import multiplications, weight_bytes
from edgekit.compiler.compress.prune import PruningPlan, allocate, pruned_model
from edgekit.compiler.evaluate.fidelity import Fidelity
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.held_out import HeldOut, record_scores
from edgekit.compiler.pipeline.variant_build import Shrunk, VariantBuild, run_reference
from edgekit.system.cpu import default_threads
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array

PRUNED, DISTILLED, INT8, TRAINED_INT8 = "channels removed", "distilled", "int8", "int8, trained"
"""The steps, as they are called in manifests and tables."""


@dataclass(frozen=True, eq=False)
class ShrunkGraph:
    """Model with fewer channels.

    Attributes:
        model: The canonical float model.
        shrunk: Manifest data for its variants.
        weight_bytes: Bytes of the weights, before and after.
        reference: Its own outputs for the samples that variants are verified with.
        held_out: Its own outputs for the test samples; the evaluator and the labels are the whole model's.
        fidelity: Fidelity to the whole model, on the test samples.
        path: Steps so far, with their figures; the last one's figures are ``fidelity``.
    """

    model: ir.Model
    shrunk: Shrunk
    weight_bytes: tuple[int, int]
    reference: ReferenceOutputs
    held_out: HeldOut
    fidelity: Fidelity
    path: tuple[PathStep, ...]

    def trained(self, model: ir.Model, epochs: float, seconds: float) -> ShrunkGraph:
        """Return the graph with trained weights."""
        graph = _graph(model, self.shrunk, self.weight_bytes, self.reference, self.held_out, DISTILLED)
        last: PathStep = {**graph.path[-1], "epochs": round(epochs, 2), "seconds": round(seconds, 1)}
        return replace(graph, path=(*self.path, last))


def shrunk_graph(
    plan: PruningPlan, share: float, reference: ReferenceOutputs, held_out: HeldOut
) -> ShrunkGraph | None:
    """Return the model without a share of its multiplications; None if its channels have too few."""
    before = multiplications(plan.model)
    removed = allocate(plan, "multiplications", share, before)
    if removed is None:
        return None
    model = pruned_model(plan, removed)
    shrunk = Shrunk((before, multiplications(model)), share, {})
    return _graph(model, shrunk, (weight_bytes(plan.model), weight_bytes(model)), reference, held_out, PRUNED)


def _graph(
    model: ir.Model,
    shrunk: Shrunk,
    sizes: tuple[int, int],
    reference: ReferenceOutputs,
    held_out: HeldOut,
    step: str,
) -> ShrunkGraph:
    """Run a smaller model on the samples of the references, whose outputs are the whole model's."""
    shrunk_reference = run_reference(model, reference.inputs, reference.outputs, reference.samples)
    outputs = run_test_samples(model, held_out)
    fidelity = held_out.evaluator.evaluate(outputs)
    return ShrunkGraph(
        model,
        replace(shrunk, golden=shrunk_reference.expected[0]),
        sizes,
        shrunk_reference,
        with_outputs(held_out, outputs),
        fidelity,
        (path_step(step, fidelity),),
    )


def run_test_samples(model: ir.Model, held_out: HeldOut) -> Sequence[Mapping[str, Array]]:
    """Compute the outputs of a model, or of its Q/DQ graph, for the test samples."""
    run = Reference(model, threads=default_threads(), optimize=True).run
    return keep_outputs(map(run, counted(held_out.reference.samples, "samples")))


def with_outputs(held_out: HeldOut, outputs: Sequence[Mapping[str, Array]]) -> HeldOut:
    """Return the test samples with a smaller model's own outputs, which its variants are verified against."""
    return replace(held_out, reference=replace(held_out.reference, expected=outputs))


def path_step(name: str, fidelity: Fidelity) -> PathStep:
    """Return a step with its figures on the test samples."""
    task = fidelity.task.as_json() if fidelity.task is not None else None
    return {"step": name, "agreement": fidelity.score.as_json(), "task": task}


def with_fidelity(variant: VariantBuild, graph: ShrunkGraph) -> VariantBuild:
    """Record the fidelity of the smaller model to the whole one, and return the variant."""
    record_scores(variant, graph.fidelity, len(graph.held_out.reference.samples), graph.held_out)
    record_path(variant, graph, graph.fidelity.snr_db, graph.path)
    return variant


def record_path(variant: VariantBuild, graph: ShrunkGraph, snr_db: float, path: Sequence[PathStep]) -> None:
    """Record the steps that made a variant in its evidence."""
    variant.evidence["shrunk"] = {
        "weight_bytes": list(graph.weight_bytes),
        "snr_db": round(snr_db, 1) if math.isfinite(snr_db) else None,
        "parent": variant.parent.name if variant.parent is not None else "",
        "path": list(path),
    }


def smaller_variant(whole: VariantBuild, shrunk: Shrunk) -> VariantBuild:
    """Return a smaller model's variant, not compiled yet, for a variant of the whole model."""
    return VariantBuild(whole.target, whole.precision, whole, shrunk=shrunk, config=whole.config)


def rejected(whole: VariantBuild, shrunk: Shrunk, reason: str) -> VariantBuild:
    """Return a rejected variant without an artifact."""
    variant = smaller_variant(whole, shrunk)
    variant.reject(reason)
    return variant
