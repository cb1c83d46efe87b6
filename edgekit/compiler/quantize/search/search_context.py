"""Common data of a build's candidates: the float graph, its observations, and the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.quantize.observe.calibrate import structure_digest
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.qdq_placement import RangeCache
from edgekit.compiler.quantize.search.sensitivity import Parts
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.system.cpu import default_threads
from edgekit.system.progress import counted
from edgekit.tensor_spec import Array, TensorSpec


@dataclass(frozen=True, eq=False)
class SearchContext:
    """Data that every candidate of a build is compiled from and measured with.

    Attributes:
        observations: Observations of every value of ``model``, on the calibration set.
        calibration: Samples to fit weights on.
        validation: Samples to compare candidates on.
        evaluator: Scores outputs for ``validation``.
        digest: Digest of the model, the samples and the card; a part of the key of each cached measurement.
        weight_cache, range_cache, noise: Results that candidates share; ``noise`` by the names of the blocks.
        inaccurate: Placements that were far from accurate enough on an earlier target of the build.
    """

    model: ir.Model
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    observations: Mapping[str, Observation]
    calibration: Sequence[Sample]
    validation: Sequence[Sample]
    evaluator: Evaluator
    digest: str
    weight_cache: WeightCache
    range_cache: RangeCache = field(default_factory=dict)
    noise: dict[tuple[str, ...], Parts] = field(default_factory=dict)
    inaccurate: set[str] = field(default_factory=set)

    @cached_property
    def structure(self) -> str:
        """Return the digest of the model without its weights."""
        return structure_digest(self.model)


@dataclass(frozen=True, eq=False)
class PreparedGraph:
    """Rewritten graph with the observations of its values."""

    model: ir.Model
    observations: Mapping[str, Observation]


def run_qdq_graph(model: ir.Model, samples: Sequence[Sample]) -> Sequence[Mapping[str, Array]]:
    """Run a Q/DQ graph in float on the reference executor, and return its outputs."""
    reference = Reference(model, threads=default_threads(), optimize=True)
    return keep_outputs(map(reference.run, counted(samples, "samples")))
