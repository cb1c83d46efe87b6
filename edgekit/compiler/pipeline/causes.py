"""Causes of accuracy loss in int8 and float16, each variant's remedy, and the result of plain int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from edgekit.bundle.evidence import Cause as CauseRecord
from edgekit.bundle.evidence import Causes
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.pipeline.variant_build import VariantBuild
from edgekit.compiler.quantize.causes import (
    HALF_MAX,
    PER_TENSOR,
    LossCause,
    float16_causes,
    snr_db,
    without_repairs,
)
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.search.candidates import Candidates
from edgekit.compiler.quantize.search.measurement import BASELINE, CandidateConfig, Measurement
from edgekit.target.precisions import precision_of

MOST_OF_A_KIND = 4
"""So many causes of a kind are kept in the bundle, the worst; the others are counted."""
PLAIN = CandidateConfig("all", BASELINE)


def causes_of_int8(candidates: Candidates, config: CandidateConfig) -> Causes:
    """Return the causes for a variant that was compiled from this candidate."""
    return _worst_of_each_kind(
        [(_record(cause, done, left), cause) for cause, done, left in candidates.causes(config)]
    )


def plain_int8(candidates: Candidates, variant_causes: Sequence[Causes]) -> Measurement | None:
    """Measure plain int8 if a variant repairs something in it; None if there is nothing to compare, or the
    engine does not run it."""
    if all(cause["kind"] == PER_TENSOR for causes in variant_causes for cause in causes["found"]):
        return None
    try:
        with candidates.under(without_repairs(candidates.rules)) as plain:
            measured = plain.measure(PLAIN)
    except Exception:  # it is for comparison: whatever an engine throws at it costs no variant
        return None
    return measured if measured.fidelity is not None else None


def add_float16_causes(
    variants: Sequence[VariantBuild],
    model: ir.Model,
    samples: Sequence[Sample],
    observations: Mapping[str, Observation] | None,
) -> None:
    """Record the values that overflow, or nearly do, in the evidence of variants that compute in float16.

    Without calibration the model is observed on the samples that variants are verified with, if some float16
    variant failed.
    """
    ran = [(v, v.evidence.get("executed", {}).get("precision", "")) for v in variants]
    halves = [v for v, executed in ran if precision_of(executed).element == "float16"]
    failing = [v for v in halves if v.rejected or v.evidence.get("compile", {}).get("float32_nodes")]
    if not (failing if observations is None else halves):
        return
    causes = float16_causes(observe(model, samples) if observations is None else observations)
    makers = {str(o.name): node_name(node) for node in model.graph for o in node.outputs}
    for variant in halves if causes else ():
        wide = {str(row["node"]) for row in variant.evidence.get("compile", {}).get("float32_nodes") or ()}
        rows = []
        for cause in causes:
            done = "fits on the samples"
            if makers.get(cause.value) in wide:
                done = "computed in float32"
            elif cause.narrow > HALF_MAX:
                done = "rejected" if variant.rejected else "kept: its outputs are still good enough"
            rows.append((_record(cause, done, None), cause))
        variant.evidence["causes"] = _worst_of_each_kind(rows)


def _record(cause: LossCause, done: str, remaining: float | None) -> CauseRecord:
    return {
        "kind": cause.kind,
        "value": cause.value,
        "nodes": list(cause.nodes),
        "narrow": float(f"{cause.narrow:.4g}"),
        "wide": float(f"{cause.wide:.5g}"),
        "plain_db": snr_db(cause.noise) if cause.wide != HALF_MAX else None,
        "done": done,
        "left_db": None if remaining is None else snr_db(remaining),
    }


def _worst_of_each_kind(rows: Sequence[tuple[CauseRecord, LossCause]]) -> Causes:
    counts: dict[str, int] = {}
    records = []
    for record, cause in rows:
        counts[cause.kind] = counts.get(cause.kind, 0) + 1
        if counts[cause.kind] <= MOST_OF_A_KIND:
            records.append(record)
    more = {kind: count - MOST_OF_A_KIND for kind, count in counts.items() if count > MOST_OF_A_KIND}
    return {"found": records, "more": more}
