"""Check of an imported model against the original, which its own framework runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from edgekit.compiler.evaluate.noise_floor import with_broken_ties, with_perturbed_sums
from edgekit.compiler.evaluate.verify import (
    FLOOR_MARGIN_DB,
    OutputError,
    ReferenceOutputs,
    compare,
    compare_outputs,
    limits_db,
    perturbed,
)
from edgekit.compiler.importers.conversion import Imported
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.pipeline.variant_build import run_reference
from edgekit.errors import EngineError, MissingDependency, ModelError
from edgekit.tensor_spec import Array, Json, TensorSpec

NOISE_RUNS = 4
"""Number of perturbations by rounding errors, from which the noise of an output is estimated."""
NEGLIGIBLE = 1e-6
"""Largest difference of a saturating output, of 0 to 1 or -1 to 1, that counts as none whatever its ratio is:
engines approximate a sigmoid near zero in their own ways (of -30, ONNX Runtime and LiteRT differ by all of
1e-13)."""


@dataclass(frozen=True)
class ImportCheck:
    """Comparison of the ONNX model's outputs with the original's.

    Attributes:
        engine: Engine that ran the original; "" if it was not run.
        not_run: Reason that it was not run, or "".
        samples: Number of samples compared.
        outputs: Error of each output of the model, by name.
        negligible: Names of the outputs that differ by no more than NEGLIGIBLE.
    """

    engine: str
    not_run: str = ""
    samples: int = 0
    outputs: Mapping[str, OutputError] = field(default_factory=dict)
    negligible: frozenset[str] = frozenset()

    def as_json(self) -> dict[str, Json]:
        if self.not_run:
            return {"not_run": self.not_run}
        return {
            "engine": self.engine,
            "samples": self.samples,
            "outputs": {name: error.as_json() for name, error in self.outputs.items()},
        }

    def __str__(self) -> str:
        if self.not_run:
            return f"not compared with the original: {self.not_run}"
        significant = [error for name, error in self.outputs.items() if name not in self.negligible]
        worst = str(min(significant, key=_snr)) if significant else f"within {NEGLIGIBLE:g}"
        return f"ONNX Runtime and {self.engine} on the original: {worst}"


def check_import(
    imported: Imported, model: ir.Model, reference: ReferenceOutputs, are_random: bool = False
) -> ImportCheck:
    """Compare an imported model with its original on the user's samples, or else on the user's example.

    The limits are those of a variant of its precision (edgekit/compiler/evaluate/verify.py), or the model's
    own noise: if rounding errors change an output of the same model as much, the importer is not at fault.

    Args:
        imported: The original.
        model: The ONNX model that was converted from it.
        reference: Samples, and the ONNX model's outputs for them on ONNX Runtime.
        are_random: Whether the samples are random. Then the user's example is used instead, if there is one.

    Raises:
        ModelError: the outputs differ by more than the limits, so the conversion is wrong.
    """
    if are_random and (example := _fitting(imported.example, reference.inputs)):
        reference = run_reference(model, reference.inputs, reference.outputs, example)
        are_random = False
    if imported.answers is None:
        return ImportCheck("", f"no package that runs {imported.importer.source_format} models is installed")
    try:
        answers = imported.answers(reference.samples)
    except MissingDependency as missing:
        return ImportCheck("", missing.for_bundles)
    except EngineError as problem:
        return ImportCheck("", str(problem))
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph)
    precision = imported.precision or ("int8" if quantized else "fp32")
    limits = limits_db(reference.outputs, reference.saturating, reference.floors_db, precision)
    errors = compare_outputs(reference, answers.outputs, limits)
    beyond = [name for name, error in errors.items() if not error.within_limit]
    if beyond:
        errors = compare_outputs(
            reference, answers.outputs, {**limits, **_noisy(model, reference, beyond, limits)}
        )
    negligible = frozenset(
        name for name in reference.saturating & errors.keys() if errors[name].max_abs <= NEGLIGIBLE
    )
    wrong = [
        f"output {name}: {error}; {error.limit_db:g} dB is required"
        for name, error in errors.items()
        if not error.within_limit and name not in negligible
    ]
    if wrong:
        raise ModelError(
            f"{imported.name}: the imported ONNX model gives other results than {answers.engine}:\n"
            + "\n".join(f"  {line}" for line in wrong)
            + f"\n  {_advice(imported, are_random)}"
        )
    return ImportCheck(answers.engine, "", len(reference.samples), errors, negligible)


def _advice(imported: Imported, are_random: bool) -> str:
    """Return what to do about other results: the framework's exporter may be wrong, or the inputs unfair."""
    if imported.importer.answers is not None:  # EdgeKit's own conversion, or that of an installed importer
        return "this is a bug of the importer: please report it with the model"
    tools = ", ".join(f"{name} {number}" for name, number in imported.tools.items() if name != "edgekit-sdk")
    if are_random:
        return (
            "the inputs were random: pass some that the model is made for, as samples or example_inputs. If "
            f"the results differ on those too, the framework's exporter is wrong ({tools})"
        )
    return (
        f"the framework's exporter is wrong on your inputs ({tools}): try another version of it, or export "
        "the model to ONNX yourself and build the .onnx file"
    )


def _fitting(example: Mapping[str, Array] | None, inputs: Sequence[TensorSpec]) -> list[dict[str, Array]]:
    """Return the example as samples: one, or one for each row of a table. [] if ``shapes`` or ``io`` gave the
    model other shapes or types."""
    if example is None or not all(
        spec.name in example
        and str(example[spec.name].dtype) == spec.dtype
        and len(example[spec.name].shape) == len(spec.shape)
        for spec in inputs
    ):
        return []
    arrays = {spec.name: example[spec.name] for spec in inputs}
    if all(arrays[spec.name].shape == spec.shape for spec in inputs):
        return [arrays]
    if len(inputs) != 1 or len(inputs[0].shape) != 2 or inputs[0].shape[0] != 1:
        return []
    (spec,) = inputs
    rows = arrays[spec.name]
    return [{spec.name: row[None]} for row in rows] if rows.shape[1:] == spec.shape[1:] else []


def _noisy(
    model: ir.Model, reference: ReferenceOutputs, names: Sequence[str], limits: Mapping[str, float]
) -> dict[str, float]:
    """Return the limits of outputs that amplify rounding errors on these samples.

    An output's noise is its change when half of the values of every input and sum move by one unit in the
    last place. Queries that a detector sorts by score may swap.
    """
    lowered = dict.fromkeys(names, math.inf)
    for seed in range(NOISE_RUNS):
        perturbed_reference = Reference(with_broken_ties(with_perturbed_sums(model, seed), seed))
        for sample, expected in zip(reference.samples, reference.expected, strict=True):
            outputs = perturbed_reference.run(perturbed(sample, seed))
            for name in names:
                snr_db = compare([expected[name]], [outputs[name]], 0).snr_db
                lowered[name] = min(lowered[name], math.inf if snr_db is None else snr_db)
    return {name: min(limits[name], noise_db - FLOOR_MARGIN_DB) for name, noise_db in lowered.items()}


def _snr(error: OutputError) -> float:
    return math.inf if error.snr_db is None else error.snr_db
