"""A model of another framework as an ONNX file, compared with the original."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.compiler.evaluate.samples import random_samples
from edgekit.compiler.importers.contract import ImportOptions, Source
from edgekit.compiler.importers.conversion import Imported, as_source, open_source_model, source_name
from edgekit.compiler.model.input_ranges import input_ranges
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.pipeline.import_check import ImportCheck, check_import
from edgekit.compiler.pipeline.variant_build import run_reference
from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats.plain_text import size
from edgekit.tensor_spec import Json, TensorSpec


@dataclass(frozen=True, eq=False)
class ImportedModel:
    """An imported model: ``save`` writes the ONNX file.

    Attributes:
        imported: The ONNX file, and where it came from.
        compared: Comparison of its outputs with the original's, on random inputs.
    """

    imported: Imported
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    nodes: int
    opset: int
    compared: ImportCheck

    def save(self, path: Path | str) -> None:
        """Write the ONNX file, whole or not at all."""
        write_atomically(Path(path), [self.imported.onnx])

    def as_json(self) -> dict[str, Json]:
        return {
            "source": {"file": self.imported.name, "sha256": self.imported.source_sha256 or None},
            **self.imported.as_json(),
            "opset": self.opset,
            "nodes": self.nodes,
            "inputs": [spec.as_json() for spec in self.inputs],
            "outputs": [spec.as_json() for spec in self.outputs],
            "compared": self.compared.as_json(),
        }

    def text(self) -> str:
        imported = self.imported
        digest = f"  sha256 {imported.source_sha256[:16]}..." if imported.source_sha256 else ""
        return "\n".join(
            [
                f"  from      {imported.name}  {imported}{digest}",
                f"  to        ONNX opset {self.opset}, {self.nodes} nodes, {size(len(imported.onnx))}",
                *(f"  input     {spec}" for spec in self.inputs),
                *(f"  output    {spec}" for spec in self.outputs),
                f"  compared  {self.compared}",
                *(f"  note      {note}" for note in imported.notes),
            ]
        )


def import_model(
    model: str | Path | Source,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
    trust_pickle: bool = False,
) -> ImportedModel:
    """Convert a model of another framework to ONNX, and compare it with the original on random inputs.

    The comparison runs the original in its own framework, where that is installed.

    Returns:
        The ONNX model, in memory: ``save`` writes it.

    Raises:
        UsageError: the model is ONNX already, or an object of no framework.
        ModelError: it can't be converted, or the ONNX model's outputs differ from the original's.
        MissingDependency: what converts it is not installed.
    """
    source = as_source(model)
    opened, imported = open_source_model(source, shapes, ImportOptions({}, example_inputs, trust_pickle))
    if imported is None:
        raise UsageError(f"{source_name(source)} is already an ONNX model; pass it to edgekit build as it is")
    inputs, outputs = signature(opened)
    samples = random_samples(inputs, graph_ranges=input_ranges(opened))
    reference = run_reference(opened, inputs, outputs, samples.arrays)
    compared = check_import(imported, opened, reference, are_random=True)
    opset = opened.opset_imports[""]
    return ImportedModel(imported, inputs, outputs, len(opened.graph), opset, compared)
