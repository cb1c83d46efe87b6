"""The quantization data of a build: the split samples, the float model's observed ranges and its outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from edgekit.bundle.evidence import Evidence
from edgekit.compiler.evaluate.fidelity import Evaluator, Score
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.labels import Label, find_labels
from edgekit.compiler.evaluate.output_channels import find_channels
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.evaluate.samples import FileSamples, Samples, load_into_memory, sample_digests
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.held_out import HeldOut
from edgekit.compiler.quantize.equalization import Equalization, equalize
from edgekit.compiler.quantize.observe.calibrate import Split, graph_digest, observe
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.search import measurement_cache
from edgekit.compiler.quantize.search.search_context import SearchContext
from edgekit.compiler.quantize.weights.value_digests import WeightCache
from edgekit.processing.card import Card
from edgekit.system.progress import counted
from edgekit.tensor_spec import Json

MEASURED = 8
"""Counts up when what is measured of a candidate changes: older records in the cache are then of no use."""
PARTS = {"fit": "calibration", "choose": "validation", "prove": "test"}
"""Part of the samples, as the manifest calls it -> its name."""


@dataclass(frozen=True, eq=False)
class QuantizationData:
    """The data that int8 is built from, shared by all targets.

    Attributes:
        search_context: Data that candidates are compiled from and compared with in the search. Its model is
            the canonical float graph with equalized layers.
        held_out: The test samples: variants are tested on them, and nothing is selected on them.
        labelled: The float model's score on the validation samples by the task's own metric; None where they
            have no labels.
        counts: Samples in each part, and the names of the parts that are not held out; the manifest's keys.
        observations: Observations of the canonical float graph, before equalization.
        equalization: The equalized layers.
    """

    search_context: SearchContext
    held_out: HeldOut
    labelled: Score | None
    counts: Mapping[str, Json]
    observations: Mapping[str, Observation]
    equalization: Equalization

    def equalized(self) -> Evidence:
        """Return the evidence on equalized layers; empty if there are none."""
        layers = self.equalization.layers
        return {"equalized": list(layers)} if layers else {}

    def summary(self) -> str:
        """Return the sizes of the parts and what was equalized, as text for the progress output."""
        counts = self.counts
        text = f"samples: {counts['fit']} calibration, {counts['choose']} validation, {counts['prove']} test"
        shared = [PARTS[part] for part in counts["not_held_out"]]
        text = f"{text} ({' and '.join(shared)} not held out: too few samples)" if shared else text
        return "; ".join(filter(None, [text, self.equalization.summary()]))


def collect_quantization_data(
    source: ir.Model,
    canonical: ir.Model,
    reference: ReferenceOutputs,
    samples: Samples,
    parts: Split,
    card: Card | None,
    progress: Callable[[int, int], None] | None = None,
    uses_labels: bool = True,
) -> QuantizationData:
    """Observe the canonical graph, run the float model on the validation and the held-out samples, and
    equalize layers of the graph.

    Args:
        reference: The source model's outputs for some of the held-out samples; it is not run on these again.
        progress: Called with (done, total) as samples are observed.
        uses_labels: Whether variants are scored on the labels of the samples too, if they have some.

    Raises:
        SampleError: no samples, or labels that are malformed.
        ModelError: a value of the model is not a number.
    """
    canonical = with_float_weights(canonical)
    observations = observe(canonical, parts.calibration, progress)
    runner = Reference(source)
    output_by_digest = dict(zip(sample_digests(reference.samples), reference.expected, strict=True))
    evaluators, channels = [], find_channels(canonical.graph)
    for part in (parts.validation, parts.test):
        digests = sample_digests(part)
        expected = keep_outputs(
            output_by_digest[digest] if digest in output_by_digest else runner.run(part[index])
            for index, digest in enumerate(counted(digests, "samples"))
        )
        placed = text_placements(card, part)
        labels = find_labels(part.paths, card) if uses_labels and isinstance(part, FileSamples) else None
        evaluators.append(Evaluator(card, expected, labels, channels, placed))
    validation, test = evaluators
    equalization = Equalization(canonical, observations)
    if "choose" not in parts.shared:  # else there is no sample that was not observed
        equalization = equalize(canonical, observations, parts.validation, validation.expected)
    digest = measurement_cache.key(
        graph_digest(equalization.model),
        samples.digest,
        card.as_json() if card else None,
        [[_label_json(label) for label in evaluator.labels or ()] for evaluator in evaluators],
        validation.metric,
        MEASURED,
    )
    in_memory = load_into_memory(parts.validation)  # every candidate is run on these
    inputs, outputs = tuple(reference.inputs), tuple(reference.outputs)
    search_context = SearchContext(
        equalization.model,
        inputs,
        outputs,
        equalization.observations,
        parts.calibration,
        in_memory,
        validation,
        digest,
        WeightCache(),
    )
    # The keys are the manifest's.
    counts = {"fit": len(parts.calibration), "choose": len(parts.validation), "prove": len(parts.test)}
    held_out = HeldOut(
        ReferenceOutputs(inputs, outputs, parts.test, test.expected),
        test,
        test.evaluate(test.expected).task,
    )
    return QuantizationData(
        search_context,
        held_out,
        validation.evaluate(validation.expected).task,
        {**counts, "not_held_out": list(parts.shared)},
        observations,
        equalization,
    )


def data_without_samples(canonical: ir.Model, reference: ReferenceOutputs) -> QuantizationData:
    """Return data of a build without samples: nothing is fitted, and variants are tested on the random
    samples that every variant is verified with."""
    channels = find_channels(canonical.graph)
    evaluator = Evaluator(None, reference.expected, channels=channels)
    inputs, outputs, model = tuple(reference.inputs), tuple(reference.outputs), with_float_weights(canonical)
    context = SearchContext(model, inputs, outputs, {}, (), (), evaluator, "", WeightCache())
    held_out = HeldOut(reference, evaluator, None)
    return QuantizationData(context, held_out, None, {}, {}, Equalization(model, {}))


def _label_json(label: Label) -> Json:
    return [label.index, label.boxes.boxes.tolist(), label.boxes.classes.tolist()]
