"""What the int8 of every target stands on: the split samples, what was observed of the float model, and its
answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgekit.evaluate.fidelity import Evaluator, Score
from edgekit.evaluate.labels import Label, find_labels
from edgekit.evaluate.samples import FileSamples, Sample, Samples, load_into_memory
from edgekit.model.reference import Reference
from edgekit.quantize.observe.calibrate import graph_digest, observe, split
from edgekit.quantize.placement.float_weights import with_float_weights
from edgekit.quantize.search import measurement_cache
from edgekit.quantize.search.candidates import SearchContext
from edgekit.quantize.weights.value_digests import WeightCache
from edgekit.tensors import Json, TensorSpec

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
        prove: Samples that no choice is made on.
        judge: Scores outputs for ``prove``.
        labelled: The task's own metric of the float model on choose and on prove, where they are labelled.
        counts: Samples in each part, and which part is not held out.
    """

    bench: SearchContext
    prove: Sequence[Sample]
    judge: Evaluator
    labelled: tuple[Score | None, Score | None]
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
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    samples: Samples,
    card: Card | None,
    progress: Callable[[int, int], None] | None = None,
) -> QuantizationData:
    """Split, observe, and ask the float model.

    Raises:
        SampleError: no samples, or labels that are malformed.
        ModelError: a value of the model is not a number.
    """
    parts = split(samples.arrays)
    canonical = with_float_weights(canonical)
    observations = observe(canonical, parts.calibration, progress)
    reference = Reference(source)
    judges = []
    for part in (parts.validation, parts.test):
        expected = [reference.run(sample) for sample in part]
        judges.append(Evaluator(card, expected, _labels(part, card)))
    choose, prove = judges
    digest = measurement_cache.key(
        graph_digest(canonical),
        samples.digest,
        card.as_json() if card else None,
        [[_label_json(label) for label in judge.labels or ()] for judge in judges],
    )
    again = load_into_memory(parts.validation)  # every candidate is run on these
    bench = SearchContext(
        canonical, inputs, outputs, observations, parts.calibration, again, choose, digest, WeightCache()
    )
    # The keys are the manifest's.
    counts = {"fit": len(parts.calibration), "choose": len(parts.validation), "prove": len(parts.test)}
    labelled = (choose.evaluate(choose.expected).task, prove.evaluate(prove.expected).task)
    return QuantizationData(
        bench, parts.test, prove, labelled, {**counts, "not_held_out": list(parts.shared)}
    )


def _labels(part: Sequence[Sample], card: Card | None) -> list[Label] | None:
    return find_labels(part.paths, card) if isinstance(part, FileSamples) else None


def _label_json(label: Label) -> Json:
    return [label.index, label.boxes.boxes.tolist(), label.boxes.classes.tolist()]
