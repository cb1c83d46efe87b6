"""The pipeline: one model in, one verified bundle out. One function, one line per stage.

open -> passes -> check -> samples -> reference -> compile -> verify -> bundle
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit import target, verify
from edgekit._version import __version__
from edgekit.bundle import Bundle, npy_bytes
from edgekit.errors import UsageError
from edgekit.model_file import open_model, signature, source_digest
from edgekit.passes import run_passes
from edgekit.profile import Profile, find_profile
from edgekit.reference import Reference
from edgekit.samples import Sample, Samples, load_samples
from edgekit.support import refuse_unsupported
from edgekit.target import Array, Artifact, Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.card import Card

PRECISIONS: Mapping[str, tuple[str, ...]] = {
    "fp32": ("fp32",),
    "fp16": ("fp16",),  # weights in fp16, arithmetic in fp32
    "int8": ("int8",),  # for models that come with Q/DQ pairs: compiled as they are
    "auto": ("fp32", "fp16"),
}
"""What is asked for -> what is tried, the parent first."""

SLOWER_LIMIT = 1.10
"""A variant whose p50 is more than this times its parent's is rejected. Shared machines wobble by several per
cent between runs; a real loss (a cast that stays in the graph, an op that leaves the fast path) is larger."""

VERIFIED_SAMPLES = 8
"""At most so many of the user's samples are run on every variant; spread evenly over all of them."""

FLOOR_SAMPLES = 2
"""Samples that the noise floor is measured on; each costs one more run of the reference."""

TOOLS = (
    "onnx",
    "onnx-ir",
    "onnxscript",
    "onnxruntime",
    "openvino",
    "ai-edge-litert",
    "tflite-runtime",
    "numpy",
)
"""Whose versions the provenance names: each can change the bytes of an artifact."""


@dataclass(frozen=True)
class Stage:
    """Progress: a stage began (``seconds`` is None) or ended, with the words that describe it."""

    name: str
    detail: str
    seconds: float | None = None


Progress = Callable[[Stage], None]


@dataclass
class _Job:
    """What the stages hand to one another."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    samples: Samples
    expected: list[dict[str, Array]]
    saturating: set[str]
    floors_db: Mapping[str, float | None]
    verified: dict[tuple[str, str, str], verify.Verification] = field(default_factory=dict)
    entries: dict[str, bytes] = field(default_factory=dict)
    entry_by_digest: dict[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)


def build(
    model: str | Path,
    *,
    targets: Sequence[str],
    precision: str = "fp32",
    samples: str | Path | Sequence[Sample] | None = None,
    card: Card | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    progress: Progress = lambda stage: None,
) -> Bundle:
    """Build a model for targets and devices, and prove each result by running it here.

    Args:
        model: Path of an ``.onnx`` file.
        targets: Targets (``ort``) or device profiles (``rpi5``).
        precision: ``fp32``, ``fp16`` (weights), or ``auto``: all of them, dominated ones rejected.
        samples: What variants are verified with: a folder or glob, or dicts of arrays; None for random ones.
        card: How photographs become inputs and outputs become answers; it travels in the bundle.
        shapes: Static shapes by input name, for inputs whose dimensions are dynamic or stale. The card's
            shapes are used where none is given here.
        progress: Called as each stage begins and ends.

    Returns:
        The bundle, in memory. Variants that were rejected or could not be run are in it with the reason.

    Raises:
        UsageError: wrong precision, no or repeated targets.
        ModelError: the file is not a model, or has dynamic dimensions that nothing freezes.
        UnsupportedError: a target cannot express some nodes; every reason for every target is named.
        MissingDependency: a tool that compiles for a target is not installed.
    """
    profiles = _profiles(targets)
    if precision not in PRECISIONS:
        raise UsageError(f"precision {precision!r} is unknown; there are {', '.join(PRECISIONS)}")
    path, card = Path(model), _card(card)

    with _stage(progress, "opened") as say:
        source = open_model(path, {**(card.shapes() if card else {}), **(shapes or {})})
        inputs, outputs = signature(source)
        if card:
            card.check(inputs, outputs)
        opset, nodes = source.opset_imports[""], len(source.graph)
        canonical = source.clone()
        passes = run_passes(canonical)
        quantized = any(node.op_type == "QuantizeLinear" for node in canonical.graph)
        tried = _tried(precision, path.name, quantized)
        say(f"{path.name}  opset {opset}, {nodes} nodes -> {len(canonical.graph)}")
    with _stage(progress, "checked") as say:
        refuse_unsupported(path.name, canonical, profiles)
        say(", ".join(p.name for p in profiles))
    with _stage(progress, "reference") as say:
        found = load_samples(samples, inputs, card, limit=VERIFIED_SAMPLES)
        reference = Reference(source)
        expected = [reference.run(sample) for sample in found.arrays]
        floors = _noise_floors(reference, outputs, found.arrays, expected)
        job = _Job(inputs, outputs, found, expected, verify.saturating_outputs(source), floors)
        del reference  # its weights are not needed beside the engines'
        say(found.origin)
    variants = []
    for profile in profiles:
        parent: _Tried | None = None
        for each in tried:
            with _stage(progress, "tried") as say:
                made = _try(job, canonical, profile, each, parent)
                parent = parent or made
                say(f"{made.variant['name']}  {made.variant['status']}")
            variants.append(made.variant)
        if tried == ("fp16",) and str(variants[-1]["status"]).startswith("rejected"):
            # Asked for by name and refused: the target still gets a model that works.
            variants.append(_try(job, canonical, profile, "fp32", None).variant)
    golden = _golden(job)
    manifest: dict[str, Json] = {
        "edgekit": __version__,
        "tools": _tool_versions(),
        "source": {"file": path.name, "sha256": source_digest(path), "opset": opset, "nodes": nodes},
        "options": {
            "targets": [p.name for p in profiles],
            "precision": precision,
            "shapes": {spec.name: list(spec.shape) for spec in inputs},
        },
        "samples": found.as_json(),
        "inputs": [_spec_json(spec) for spec in inputs],
        "outputs": [_spec_json(spec) for spec in outputs],
        "card": card.as_json() if card else None,
        "profiles": {p.name: p.as_json() for p in profiles},
        "passes": passes,
        "variants": variants,
        "golden": golden,
    }
    return Bundle.create(manifest, job.entries)


@dataclass(frozen=True)
class _Tried:
    """A variant as the manifest has it, and the artifact it was compiled to."""

    variant: dict[str, Json]
    artifact: Artifact


def _try(job: _Job, canonical: ir.Model, profile: Profile, precision: str, parent: _Tried | None) -> _Tried:
    """Compile and verify one variant; keep its files unless it is rejected."""
    compiled_as = "fp32" if precision == "int8" else precision  # Q/DQ pairs say themselves what is int8
    artifact = target.compiler(profile.target).compile_model(canonical, profile, compiled_as)
    digest = verify.artifact_digest(artifact)
    key = (profile.target, precision, digest)
    if key not in job.verified:  # two profiles of a target often compile to the same bytes
        with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
            job.verified[key] = verify.verify(
                artifact,
                profile.target,
                precision,
                Path(folder),
                job.inputs,
                job.outputs,
                job.samples.arrays,
                job.expected,
                verify.limits_db(job.outputs, job.saturating, job.floors_db, precision),
            )
    result = job.verified[key]
    name = f"{profile.name}-{precision}"
    variant: dict[str, Json] = {
        "name": name,
        "target": profile.target,
        "profile": profile.name,
        "precision": precision,
        "files": {},
        "options": dict(artifact.options),
        "status": result.status,
        "evidence": dict(result.evidence),
    }
    made = _Tried(variant, artifact)
    if parent is not None and not result.rejected:
        variant["status"] = _dominated(job, made, parent) or result.status
    if not str(variant["status"]).startswith("rejected"):
        variant["files"] = _keep(job, name, artifact, digest)
    return made


def _dominated(job: _Job, made: _Tried, parent: _Tried) -> str | None:
    """The reason to reject a variant that verified: it is its parent once more, or slower than it."""
    name = parent.variant["name"]
    if made.artifact.files == parent.artifact.files:
        return f"rejected: the same bytes as {name}"
    timings = [tried.variant["evidence"].get("timing") for tried in (parent, made)]
    if None in timings:
        return None
    if _ratio(timings) > SLOWER_LIMIT:  # the two were timed apart; the verdict wants them timed in turns
        with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
            timings = list(
                verify.time_in_turns(
                    [parent.artifact, made.artifact],
                    made.variant["target"],
                    Path(folder),
                    job.inputs,
                    job.outputs,
                    job.samples.arrays[0],
                )
            )
        for tried, timing in zip((parent, made), timings, strict=True):
            tried.variant["evidence"]["timing"] = timing
    ratio = _ratio(timings)
    return f"rejected: {ratio:.2f}x the time of {name}" if ratio > SLOWER_LIMIT else None


def _ratio(timings: Sequence[Json]) -> float:
    return float(timings[1]["min_ms"] / timings[0]["min_ms"])


def _noise_floors(
    reference: Reference,
    outputs: Sequence[TensorSpec],
    samples: Sequence[Sample],
    expected: Sequence[Mapping[str, Array]],
) -> dict[str, float | None]:
    """The noise floor of each output in dB on the first samples; None where a nudge changes nothing."""
    few = samples[:FLOOR_SAMPLES]
    answers = [reference.run(verify.nudged(sample, seed)) for seed, sample in enumerate(few)]
    return {
        o.name: verify.compare(
            [e[o.name] for e in expected[: len(few)]], [a[o.name] for a in answers], 0
        ).snr_db
        for o in outputs
    }


def _keep(job: _Job, name: str, artifact: Artifact, digest: str) -> Mapping[str, str]:
    """Add an artifact's files to the entries, once however many variants share them."""
    key = (",".join(sorted(artifact.files)), digest)
    if key not in job.entry_by_digest:
        files = {file: f"variants/{name}/{file}" for file in artifact.files}
        job.entries.update({files[file]: content for file, content in artifact.files.items()})
        job.entry_by_digest[key] = files
    return job.entry_by_digest[key]


def _golden(job: _Job) -> list[dict[str, Json]]:
    """The golden vector: the first sample and the reference's answer, for re-verification on the device."""
    golden: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
    for kind, arrays in (("inputs", job.samples.arrays[0]), ("outputs", job.expected[0])):
        for number, (name, array) in enumerate(arrays.items()):
            golden[kind][name] = f"golden/0/{kind}-{number}.npy"
            job.entries[golden[kind][name]] = npy_bytes(array)
    return [dict(golden)]


def _profiles(targets: Sequence[str]) -> list[Profile]:
    if isinstance(targets, str) or not targets:
        raise UsageError("targets is a list of one or more targets or profiles, e.g. ['ort', 'rpi5']")
    repeated = sorted({t for t in targets if list(targets).count(t) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)} is asked for more than once")
    return [find_profile(name) for name in targets]


def _tried(precision: str, name: str, quantized: bool) -> tuple[str, ...]:
    """The precisions to try, the parent first. A model that comes quantized is compiled as it is."""
    if quantized:
        if precision == "fp16":
            raise UsageError(f"{name} is quantized already; build it with --precision int8 or auto")
        return ("int8",)
    if precision == "int8":
        raise UsageError(
            f"{name} holds no Q/DQ pairs, and this version does not quantize; use fp32, fp16 or auto"
        )
    return PRECISIONS[precision]


def _card(card: Card | str | Path | None) -> Card | None:
    if not isinstance(card, str | Path):
        return card
    from edgekit.card import load_card

    return load_card(card)


def _spec_json(spec: TensorSpec) -> dict[str, Json]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _tool_versions() -> dict[str, str]:
    found = {}
    for tool in TOOLS:
        try:
            found[tool] = version(tool)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def _stage(progress: Progress, name: str) -> Iterator[Callable[[str], None]]:
    """Tell ``progress`` that a stage begins and, with the last words it said, that it ended."""
    words = [""]
    started = time.perf_counter()
    progress(Stage(name, ""))
    yield words.append
    progress(Stage(name, words[-1], time.perf_counter() - started))
