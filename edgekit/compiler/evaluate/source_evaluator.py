"""An evaluator of what is made from a model, against the model as it was opened."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.labels import find_labels
from edgekit.compiler.evaluate.output_channels import find_channels
from edgekit.compiler.evaluate.prepared_files import text_placements
from edgekit.compiler.evaluate.samples import FileSamples, Sample
from edgekit.compiler.model.reference import Reference
from edgekit.processing.card import Card
from edgekit.system.progress import counted


def source_evaluator(source: ir.Model, card: Card | None, samples: Sequence[Sample]) -> Evaluator:
    """Return an evaluator that compares with the source model's outputs on these samples, and with labels
    beside their files.

    Raises:
        SampleError: the labels are malformed or incomplete.
    """
    reference = Reference(source)
    labels = find_labels(samples.paths, card) if isinstance(samples, FileSamples) else None
    expected = keep_outputs(map(reference.run, counted(samples, "samples")))
    return Evaluator(card, expected, labels, find_channels(source.graph), text_placements(card, samples))
