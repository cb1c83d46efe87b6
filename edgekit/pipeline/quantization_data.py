"""What the int8 of every target stands on: the split samples, what was observed of the float model, and its
answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.evaluate.fidelity import Evaluator, Score
from edgekit.evaluate.labels import Label, find_labels
from edgekit.evaluate.samples import FileSamples, Sample, Samples, load_into_memory, sample_digests
from edgekit.evaluate.verify import ReferenceOutputs
from edgekit.model.reference import Reference
from edgekit.pipeline.held_out import HeldOut
from edgekit.quantize.observe.calibrate import Split, graph_digest, observe
from edgekit.quantize.placement.float_weights import with_float_weights
from edgekit.quantize.search import measurement_cache
from edgekit.quantize.search.candidates import SearchContext
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.tensors import Json

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.cards.card import Card

CALIBRATION_SAMPLES = 128
"""At most so many of the user's samples are used, spread evenly over all of them."""


@dataclass(frozen=True, eq=False)
class QuantizationData:
    """What the int8 of every target stands on.

    Attributes:
        bench: What candidates are made from and chosen with.
        held_out: What variants are judged on in the end: no choice is made on these samples.
        labelled: The task's own metric of the float model on the validation samples, where they are labelled.
        counts: Samples in each part, and which part is not held out.
    """

    bench: SearchContext
    held_out: HeldOut
    labelled: Score | None
    counts: Mapping[str, Json]

    def words(self) -> str:
        """Of the stage that made this."""
        counts = self.counts
        text = f"{counts['fit']} samples to fit, {counts['choose']} to choose, {counts['prove']} held out"
        shared = counts["not_held_out"]
        return f"{text} ({' and '.join(shared)} not held out: too few samples)" if shared else text


def collect_quantization_data(
    source: ir.Model,
    canonical: ir.Model,
    reference: ReferenceOutputs,
    samples: Samples,
    parts: Split,
    card: Card | None,
    progress: Callable[[int, int], None] | None = None,
) -> QuantizationData:
    """Observe the canonical graph, and run the float model on the validation and the held-out samples.

    Args:
        source: The source model.
        canonical: What is quantized.
        reference: The source model's outputs for some of the held-out samples, which it is not run on again.
        samples: All samples.
        parts: The same, split.
        card: What the outputs mean.
        progress: Called with (done, total) as samples are observed.

    Raises:
        SampleError: no samples, or labels that are malformed.
        ModelError: a value of the model is not a number.
    """
    canonical = with_float_weights(canonical)
    observations = observe(canonical, parts.calibration, progress)
    runner = Reference(source)
    known = dict(zip(sample_digests(reference.samples), reference.expected, strict=True))
    evaluators = []
    for part in (parts.validation, parts.test):
        digests = sample_digests(part)
        expected = [
            known[digest] if digest in known else runner.run(part[index])
            for index, digest in enumerate(digests)
        ]
        evaluators.append(Evaluator(card, expected, _labels(part, card)))
    validation, test = evaluators
    digest = measurement_cache.key(
        graph_digest(canonical),
        samples.digest,
        card.as_json() if card else None,
        [[_label_json(label) for label in each.labels or ()] for each in evaluators],
    )
    again = load_into_memory(parts.validation)  # every candidate is run on these
    inputs, outputs = tuple(reference.inputs), tuple(reference.outputs)
    bench = SearchContext(
        canonical, inputs, outputs, observations, parts.calibration, again, validation, digest, WeightCache()
    )
    # The keys are the manifest's.
    counts = {"fit": len(parts.calibration), "choose": len(parts.validation), "prove": len(parts.test)}
    held_out = HeldOut(
        ReferenceOutputs(inputs, outputs, parts.test, test.expected),
        test,
        test.evaluate(test.expected).task,
    )
    return QuantizationData(
        bench,
        held_out,
        validation.evaluate(validation.expected).task,
        {**counts, "not_held_out": list(parts.shared)},
    )


def _labels(part: Sequence[Sample], card: Card | None) -> list[Label] | None:
    return find_labels(part.paths, card) if isinstance(part, FileSamples) else None


def _label_json(label: Label) -> Json:
    return [label.index, label.boxes.boxes.tolist(), label.boxes.classes.tolist()]
