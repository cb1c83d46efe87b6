"""Verification: run a compiled variant on its engine and compare it with the reference.

For each output, over all samples together, with x the reference and y the variant:

    max abs         max |x - y|
    relative norm   |x - y| / |x|                     (Euclidean norms)
    SNR             20 log10(|x| / |x - y|)  in dB    None if y equals x exactly
    cosine          x . y / (|x| |y|)

A variant is verified if the SNR of every output reaches the limit of its precision. The limit is lower

- if an output saturates (softmax, sigmoid ...): a tiny difference before the saturation is large relative to
  a score near zero, but does not matter;
- if it saturates and no value is off by more than 1e-5;
- if the model amplifies rounding errors on these samples. Its noise floor is the SNR of the reference against
  itself with half of the float inputs perturbed by one unit in the last place; another order of summation can
  have the same effect. For other inputs (token ids, bytes, pixels) half of the values of every sum in the
  model are perturbed instead.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from edgekit.bundle.evidence import Evidence, OutputAccuracy
from edgekit.bundle.variant import Status, status_text
from edgekit.compiler.evaluate.golden_limit import golden_limits_db
from edgekit.compiler.evaluate.kept_outputs import keep_outputs
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.saturation import SATURATED_MAX_ABS, negligible_limit_db
from edgekit.errors import EdgeKitError, EngineError, MissingDependency, text_for_bundles
from edgekit.system import cpu
from edgekit.system.progress import counted
from edgekit.target import contract
from edgekit.target.contract import Artifact, Engine
from edgekit.target.precisions import FULL_PRECISION, TABLE, precision_of
from edgekit.target.registry import open_ready
from edgekit.target.tensor_checks import wrong_answer
from edgekit.tensor_spec import Array, Json, TensorSpec

SNR_LIMITS_DB: Mapping[str, float] = {row.name: row.snr_limit_db for row in TABLE}
"""Lowest SNR that verifies, by precision."""
FP16_SNR_LIMIT_DB = 40.0
"""For fp16 arithmetic, where every node rounds to 11 bits; not for fp16 weights alone."""
FP16_FLOOR_DB = 78.0
"""How much lower the noise floor of fp16 arithmetic is than that of fp32: 13 bits, 20 log10(2^13)."""
FP16_LOWEST_LIMIT_DB = 30.0
"""Least limit of fp16 arithmetic, whatever the noise floor: a difference of 3 %."""
SATURATED_SNR_LIMIT_DB = 60.0
"""The fp32 limit of a saturating output."""
FLOOR_MARGIN_DB = 20.0
"""How far the limit is below the noise floor. The floor includes the rounding of the input only; the rounding
of a hundred nodes adds up to a hundred times its power (measured: 1 to 15 dB below)."""
LOWEST_LIMIT_DB = 40.0
"""Least limit, whatever the noise floor: a verification that tolerates more than 1 % of difference is
useless."""


@dataclass(frozen=True)
class OutputError:
    """Error of one output of a variant against the reference, over all samples (formulas above)."""

    max_abs: float
    relative_norm: float
    snr_db: float | None
    cosine: float
    limit_db: float

    @property
    def within_limit(self) -> bool:
        return self.snr_db is None or self.snr_db >= self.limit_db

    def as_json(self) -> OutputAccuracy:
        """Convert to JSON; infinity and NaN become None."""
        return {
            "max_abs": _finite(self.max_abs),
            "relative_norm": _finite(self.relative_norm),
            "snr_db": _finite(self.snr_db),
            "cosine": _finite(self.cosine),
            "limit_db": self.limit_db,
        }

    def __str__(self) -> str:
        """Return the figure, or the reason that there is none."""
        if self.snr_db != -math.inf:
            return "exact" if self.snr_db is None else f"SNR {self.snr_db} dB"
        if math.isfinite(self.max_abs):
            return f"off by {self.max_abs:.4g} where the reference is zero everywhere"
        return "it differs from the reference in shape, or in which values are finite"


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None


@dataclass(frozen=True)
class Verification:
    """Result of running a variant on this machine.

    Attributes:
        reason: Engine that verified it, or the reason that it was not verified.
        evidence: Manifest entry: accuracy by output, size, engine, facts.
    """

    outcome: Status
    reason: str
    evidence: Evidence

    @property
    def status(self) -> str:
        """Return outcome and reason in the manifest's form."""
        return status_text(self.outcome, self.reason)

    @property
    def rejected(self) -> bool:
        return self.outcome is Status.REJECTED


def compare(expected: Iterable[Array], actual: Iterable[Array], limit_db: float) -> OutputError:
    """Compare one output over all samples; formulas in the module's docstring.

    A value that is not finite in only one of the two counts as infinitely wrong.

    >>> compare([np.array([3.0, 4.0])], [np.array([3.0, 4.5])], 20.0)
    OutputError(max_abs=0.5, relative_norm=0.1, snr_db=20.0, cosine=0.99846, limit_db=20.0)
    """
    max_abs, noise, signal, actual_square, dot = 0.0, 0.0, 0.0, 0.0, 0.0
    for x, y in zip(expected, actual, strict=True):
        wrong = x.shape != y.shape
        x, y = x.astype(np.float64).ravel(), y.astype(np.float64).ravel()
        finite = np.isfinite(x)
        if not wrong and not finite.all():  # rarely: what is finite need not be copied
            wrong = not np.array_equal(x[~finite], y[~finite], equal_nan=True)
            x, y = x[finite], y[finite]
        if wrong or not np.isfinite(y).all():
            return OutputError(math.inf, math.inf, -math.inf, 0.0, limit_db)
        difference = x - y
        max_abs = max(max_abs, float(np.abs(difference).max(initial=0.0)))
        noise += _product(difference, difference)
        signal += _product(x, x)
        actual_square += _product(y, y)
        dot += _product(x, y)
    if noise == 0.0:
        return OutputError(0.0, 0.0, None, 1.0, limit_db)
    if signal == 0.0:
        return OutputError(max_abs, math.inf, -math.inf, 0.0, limit_db)
    snr_db = 10 * math.log10(signal / noise)
    cosine = dot / math.sqrt(signal * actual_square) if actual_square else 0.0
    # Rounded: further digits depend on the order of summation.
    return OutputError(
        float(f"{max_abs:.4g}"),
        float(f"{math.sqrt(noise / signal):.4g}"),
        round(snr_db, 1),
        round(cosine, 6),
        limit_db,
    )


def _product(a: Array, b: Array) -> float:
    """Compute the inner product of two vectors. ``a @ b`` wakes threads, which cost more than they save."""
    return float(np.einsum("i,i->", a, b))


def compare_outputs(
    reference: ReferenceOutputs, results: Sequence[Mapping[str, Array]], limits: Mapping[str, float]
) -> dict[str, OutputError]:
    """Compare each output over all samples."""
    errors = {}
    for name in (spec.name for spec in reference.outputs):
        expected = (outputs[name] for outputs in reference.expected)
        errors[name] = compare(expected, (outputs[name] for outputs in results), limits[name])
    return errors


def perturbed(sample: Sample, seed: int = 0) -> dict[str, Array]:
    """Move half of a sample's float values, chosen by the seed, by a unit in the last place."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, array in sample.items():
        if array.dtype.kind == "f":
            towards = np.where(rng.integers(0, 2, array.shape), np.inf, -np.inf).astype(array.dtype)
            array = np.where(rng.integers(0, 2, array.shape), np.nextafter(array, towards), array)
        arrays[name] = array
    return arrays


def limits_db(
    outputs: Sequence[TensorSpec],
    saturating: Set[str],
    floors_db: Mapping[str, float | None],
    precision: str,
) -> dict[str, float]:
    """Return the SNR limit in dB of each output at a precision; a noise floor of None is unknown."""
    limits = {}
    for output in outputs:
        limit = SNR_LIMITS_DB[precision]
        if output.name in saturating:
            limit = min(limit, SATURATED_SNR_LIMIT_DB)
        floor = floors_db.get(output.name)
        if floor is not None:
            limit = min(limit, max(floor - FLOOR_MARGIN_DB, LOWEST_LIMIT_DB))
        limits[output.name] = limit
    return limits


def fp16_limits_db(outputs: Sequence[TensorSpec], floors_db: Mapping[str, float | None]) -> dict[str, float]:
    """Return the SNR limit in dB of each output for fp16 arithmetic.

    A model that amplifies the last bit of float32 amplifies that of float16 as much.
    """
    limits = {}
    for output in outputs:
        floor = floors_db.get(output.name)
        expected = FP16_SNR_LIMIT_DB if floor is None else floor - FP16_FLOOR_DB
        limits[output.name] = min(FP16_SNR_LIMIT_DB, max(expected, FP16_LOWEST_LIMIT_DB))
    return limits


@dataclass(frozen=True)
class ReferenceOutputs:
    """Reference for variants: samples, and the source model's outputs for them.

    Attributes:
        saturating: Names of the outputs that saturate.
        floors_db: The noise floor of each output in dB; None if it is unknown.
    """

    inputs: Sequence[TensorSpec]
    outputs: Sequence[TensorSpec]
    samples: Sequence[Sample]
    expected: Sequence[Mapping[str, Array]] = ()
    saturating: Set[str] = frozenset()
    floors_db: Mapping[str, float | None] = field(default_factory=dict)


def verify(artifact: Artifact, engine: Engine, precision: str, reference: ReferenceOutputs) -> Verification:
    """Run an artifact on one thread and compare it with the reference.

    Args:
        precision: Precision that determines the SNR limit of each output.
        reference: Reference to compare with. If the runner reports fp16 arithmetic, its limits apply.
    """
    limits = limits_db(reference.outputs, reference.saturating, reference.floors_db, precision)
    evidence: Evidence = {
        "size_bytes": artifact.size_bytes,
        "compile": dict(artifact.facts),
    }
    try:
        version = engine.engine_version()
    except MissingDependency as missing:
        # What the machine that can run it must hold it to.
        return Verification(Status.NOT_RUN, missing.for_bundles, {**evidence, "limits_db": dict(limits)})
    evidence["engine"] = version
    try:
        ran = run_artifact(artifact, engine, reference, evidence)
    except EdgeKitError as problem:
        return Verification(Status.REJECTED, text_for_bundles(problem), evidence)
    if reason := not_as_declared(artifact.options, ran.precision):
        return Verification(Status.NOT_RUN, reason, {**evidence, "limits_db": dict(limits)})
    if precision_of(ran.precision).element == "float16":
        limits = fp16_limits_db(reference.outputs, reference.floors_db)
    accuracy = compare_outputs(reference, ran.outputs, limits)
    evidence["accuracy"] = {name: error.as_json() for name, error in accuracy.items()}
    failed = {name: error for name, error in accuracy.items() if not error.within_limit}
    for name in sorted(set(failed) & reference.saturating):
        if failed[name].max_abs <= SATURATED_MAX_ABS:
            lowered = replace(failed.pop(name), limit_db=negligible_limit_db(reference.expected, name))
            evidence["accuracy"][name] = lowered.as_json()
    if failed:
        return Verification(Status.REJECTED, _worst(failed, precision), evidence)
    recorded = {name: error["limit_db"] for name, error in evidence["accuracy"].items()}
    for name, limit_db in golden_limits_db(reference.expected[0], ran.outputs[0], recorded).items():
        evidence["accuracy"][name]["limit_db"] = limit_db
    return Verification(Status.VERIFIED, verified_on(version, ran.absent, ran.emulation), evidence)


@dataclass(frozen=True)
class Ran:
    """Result of a run of an artifact.

    Attributes:
        outputs: Outputs by name, for each sample.
        precision: The arithmetic that was executed.
        absent: The hardware that the engine emulates, or "".
        emulation: Name of the emulation.
    """

    outputs: Sequence[Mapping[str, Array]]
    precision: str
    absent: str
    emulation: str = "reference execution"


def run_artifact(artifact: Artifact, engine: Engine, reference: ReferenceOutputs, evidence: Evidence) -> Ran:
    """Run an artifact on its engine on one thread, and record the engine in the evidence.

    Raises:
        EngineError: the artifact can't be loaded or run, or its outputs do not have the model's form. The
            message names the engine and its version.
        MissingDependency: the engine is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        return _run_files(artifact, write_files(artifact, Path(folder)), engine, reference, evidence)


def _run_files(
    artifact: Artifact,
    files: Mapping[str, Path],
    engine: Engine,
    reference: ReferenceOutputs,
    evidence: Evidence,
) -> Ran:
    version = engine.engine_version()
    try:
        runner = open_ready(engine, files, reference.inputs, reference.outputs, artifact.options, threads=1)
    except EdgeKitError as problem:
        reason = text_for_bundles(problem)
        raise EngineError(reason if version in reason else f"{version} cannot load it: {reason}") from None
    try:
        absent = contract.stands_in_for(runner)
        evidence["executed"] = {"device": runner.device, "precision": runner.precision}
        if absent:
            evidence["executed"]["stands_in_for"] = absent
        outputs = keep_outputs(map(runner.run, counted(reference.samples, "samples")))
        check_output_form(outputs, reference.outputs)
        evidence["runner"] = runner.facts()
        return Ran(outputs, runner.precision, absent, contract.stands_in_by(runner))
    except EdgeKitError as problem:
        raise EngineError(f"{version} cannot run it: {text_for_bundles(problem)}") from None
    finally:
        runner.close()


def not_as_declared(options: Mapping[str, Json], precision: str) -> str:
    """Return why a run does not test a variant: this processor lacks its arithmetic, so fp32 was executed.

    Args:
        precision: The arithmetic that was executed.
    """
    return cpu.lacking(options) if precision == FULL_PRECISION else ""


def verified_on(version: str, missing: str, engine: str = "reference execution") -> str:
    """Return the reason for ``verified``: the engine, or the reference executor, that ran the variant.

    >>> verified_on("LiteRT 2.3.0", ""), verified_on("interpreter", "Apple hardware")
    ('on LiteRT 2.3.0', 'by reference execution; not run on Apple hardware')
    """
    return f"by {engine}; not run on {missing}" if missing else f"on {version}"


def check_output_form(results: Sequence[Mapping[str, Array]], outputs: Sequence[TensorSpec]) -> None:
    """Check that outputs have the model's names, dtypes and shapes, as a Session does.

    Raises:
        EngineError: names, dtypes or shapes are not the model's.
    """
    for result in results:
        if result.keys() != {spec.name for spec in outputs}:
            raise wrong_answer(result, outputs)
        for spec in outputs:
            array = result[spec.name]
            if array.dtype != np.dtype(spec.dtype) or not spec.fits(array.shape):
                raise wrong_answer(result, outputs)


def write_files(artifact: Artifact, folder: Path) -> dict[str, Path]:
    """Write an artifact's files into a folder, for a runner to open."""
    files = {name: folder / name for name in artifact.files}
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(artifact.files[name])
    return files


def _worst(failed: Mapping[str, OutputError], precision: str) -> str:
    """Describe the output that is furthest below its limit."""

    def shortfall(name: str) -> float:
        snr_db = failed[name].snr_db
        return failed[name].limit_db - (math.inf if snr_db is None else snr_db)

    worst = max(failed, key=shortfall)
    others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return f"output {worst}{others}: {failed[worst]}; {precision} needs {failed[worst].limit_db:g} dB"
