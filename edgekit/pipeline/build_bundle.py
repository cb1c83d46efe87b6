"""The pipeline: one model in, one verified bundle out. One function, one line per stage.

open -> passes -> check -> reference on the samples -> compile and verify -> int8: calibrate, search, prove
-> weights alone in int8 -> time -> bundle
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit._version import __version__
from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.evaluate.samples import Sample, load_samples, spread
from edgekit.formats.npy import npy_bytes
from edgekit.lowering.io_layouts import lay_out
from edgekit.model.onnx_file import open_model, opened_digest, signature
from edgekit.passes import run_passes
from edgekit.pipeline.build_options import PRECISIONS, WEIGHT_FORMS, build_options
from edgekit.pipeline.int8 import add_int8, find_all_rules, without_fallbacks
from edgekit.pipeline.quantization_data import CALIBRATION_SAMPLES, collect_quantization_data
from edgekit.pipeline.variant_build import (
    ReferenceOutputs,
    VariantBuild,
    build_variant,
    run_reference,
    time_variants,
)
from edgekit.pipeline.weight_only import (
    add_weight_only,
    find_weight_forms,
    select_variants,
    weight_only_context,
)
from edgekit.quantize.observe.calibrate import split
from edgekit.target import registry
from edgekit.target.check_support import refuse_unsupported
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from edgekit.tensors import Json, TensorSpec

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.cards.card import Card

VERIFIED_SAMPLES = 8
"""At most so many of the user's samples are run on every variant; spread evenly over all of them."""

PACKAGES = ("onnx", "onnx-ir", "onnxruntime", "numpy")
"""Distributions of the core whose versions can change the bytes of an artifact; targets name their own."""


@dataclass(frozen=True)
class Stage:
    """Progress: a stage begins or goes on (``seconds`` is None) or ended, and words that describe it."""

    name: str
    detail: str
    seconds: float | None = None


Progress = Callable[[Stage], None]


def build(
    model: str | Path,
    *,
    targets: Sequence[str],
    precision: str = "fp32",
    samples: str | Path | Sequence[Sample] | None = None,
    card: Card | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    io: str | Mapping[str, str] | None = None,
    max_drop: str | None = None,
    time_budget: float | None = None,
    force: bool = False,
    fallback: bool = True,
    progress: Progress = lambda stage: None,
) -> Bundle:
    """Build a model for targets and devices, and prove each result by running it here.

    Args:
        model: Path of an ``.onnx`` file.
        targets: Targets (``ort``) or device profiles (``rpi5``).
        precision: ``fp32``, ``fp16`` (weights), ``int8``, ``int8-weights``, ``int8-dynamic``, or ``auto``:
            all of these, and of int8 everything that is worth it. int8 needs samples, unless the model holds
            Q/DQ pairs: these are kept as they are. What is slower than fp32, or the same, is rejected.
            ``palette6``, ``palette4``: Core ML's weights as numbers of a table.
        samples: What int8 is calibrated on and variants are verified with: a folder or glob, or dicts of
            arrays; None for random ones. A third of them is held out of every choice.
        card: How photographs become inputs and outputs become answers; it travels in the bundle.
        shapes: Static shapes by input name, for inputs whose dimensions are dynamic or stale. The card's
            shapes are used where none is given here.
        io: How artifacts store their inputs and outputs, for use without our runtime: ``nchw``, as the source
            has them, or ``nhwc``, axis 1 last; for every one of four axes, or by name. Only tflite has nhwc.
        max_drop: What int8 may lose: ``2%`` of the task's own metric where the samples are labelled, else of
            the agreement with the float model; or the least SNR, ``24dB``. None: docs/quantization.md.
        time_budget: Seconds to search for int8, for all targets together; None: 60, for auto 180.
        force: Ship int8 that is rejected, marked as such.
        fallback: Whether the float parent of an int8 variant is in the bundle too.
        progress: Called as each stage begins and ends.

    Returns:
        The bundle, in memory. Variants that were rejected or could not be run are in it with the reason.

    Raises:
        UsageError: wrong precision, no or repeated targets, a layout that can't be had.
        ProfileError: a target that is unknown.
        CardError: the card is malformed or does not describe the model.
        SampleError: no samples are found, or one does not fit the inputs.
        ModelError: the file is not a model, or has dynamic dimensions that nothing freezes.
        UnsupportedError: a target cannot express some nodes; every reason for every target is named.
        MissingDependency: a tool that compiles for a target is not installed.
    """
    profiles = _profiles(targets)
    asked = build_options(precision, max_drop, time_budget, force, fallback)
    path, card = Path(model), _card(card)

    with _stage(progress, "opened") as say:
        source = _open(path, card, shapes or {})
        inputs, outputs = signature(source)
        if card:
            card.check(inputs, outputs)
        opset, nodes = source.opset_imports[""], len(source.graph)
        canonical = source.clone()
        passes = run_passes(canonical)
        layouts = lay_out(canonical, io, profiles)
        quantized = any(node.op_type == "QuantizeLinear" for node in canonical.graph)
        tried = _tried(precision, path.name, quantized)
        rules, no_int8 = ({}, "") if quantized else find_all_rules(asked, profiles, samples is not None)
        forms = {} if quantized else find_weight_forms(asked, profiles)
        proves = bool(rules) or (bool(forms) and samples is not None)
        say(f"{path.name}  opset {opset}, {nodes} nodes -> {len(canonical.graph)}")
    with _stage(progress, "checked") as say:
        refuse_unsupported(path.name, canonical, profiles)
        say(", ".join(p.name for p in profiles))
    with _stage(progress, "reference") as say:
        limit = CALIBRATION_SAMPLES if proves else VERIFIED_SAMPLES
        found = load_samples(samples, inputs, card, limit=limit)
        held_out = split(found.arrays).test if proves else found.arrays
        truth = run_reference(source, inputs, outputs, replace(found, arrays=_few(held_out)))
        say(found.origin)
    trials: list[VariantBuild] = []
    for profile in profiles:
        parent = None
        for each in tried:
            with _stage(progress, "tried") as say:
                trials.append(build_variant(canonical, profile, each, truth, trials, parent))
                parent = parent or trials[-1]
                say(f"{trials[-1].name}  {trials[-1].status}")
        if tried == ("fp16",) and trials[-1].rejected:
            # Asked for by name and refused: the target still gets a model that works.
            trials.append(build_variant(canonical, profile, "fp32", truth, trials))
    ground = None
    if proves:
        with _stage(progress, "calibrated", live=True) as say:

            def seen(done: int, total: int, say: Callable[[str], None] = say) -> None:
                say(f"{done} of {total} samples")

            ground = collect_quantization_data(source, canonical, inputs, outputs, found, card, seen)
            say(ground.words())
    if rules and ground is not None:
        with _stage(progress, "searched", live=True) as say:
            trials = add_int8(trials, ground, rules, asked, say)
    if forms:
        with _stage(progress, "weights") as say:
            trials = add_weight_only(trials, weight_only_context(canonical, truth, ground), forms, asked)
            made = (t.precision for t in trials if "stored_weights" in t.evidence)
            say(", ".join(dict.fromkeys(made)) or "none is large enough")
    ground = None  # its memory is wanted for all variants at once
    with _stage(progress, "timed") as say:
        time_variants(trials, truth)
        trials = select_variants(trials, asked) if forms else trials
        trials = without_fallbacks(trials) if not fallback else trials
        say(f"{sum(not t.rejected for t in trials)} of {len(trials)} variants kept")
    entries: dict[str, bytes] = {}
    variants = [_variant(trial, entries) for trial in trials]
    golden = _golden(truth, entries)
    manifest: dict[str, Json] = {
        "edgekit": __version__,
        "tools": _tool_versions(),
        "source": {"file": path.name, "sha256": opened_digest(source), "opset": opset, "nodes": nodes},
        "options": {
            "targets": [p.name for p in profiles],
            "precision": precision,
            **asked.as_json(),
            **({"no_int8": no_int8} if no_int8 else {}),
            "shapes": {spec.name: list(spec.shape) for spec in inputs},
            **({"io": layouts} if layouts else {}),
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
    return Bundle.create(manifest, entries)


def _variant(trial: VariantBuild, entries: dict[str, bytes]) -> dict[str, Json]:
    """A trial as the manifest has it. Its files go into the entries, unless it is rejected."""
    files = {}
    if not trial.rejected:
        # Named by content: profiles of one target that compile to the same bytes share them.
        files = {file: f"artifacts/{trial.digest[:16]}/{file}" for file in trial.artifact.files}
        entries.update({files[file]: content for file, content in trial.artifact.files.items()})
    return {
        "name": trial.name,
        "target": trial.profile.target,
        "profile": trial.profile.name,
        "precision": trial.precision,
        "files": files,
        "options": dict(trial.artifact.options),
        "status": trial.status,
        "evidence": trial.evidence,
    }


def _golden(truth: ReferenceOutputs, entries: dict[str, bytes]) -> list[dict[str, Json]]:
    """The golden vector: the first sample and the reference's answer, for re-verification on the device."""
    golden: dict[str, dict[str, str]] = {"inputs": {}, "outputs": {}}
    for kind, arrays in (("inputs", truth.samples.arrays[0]), ("outputs", truth.expected[0])):
        for number, (name, array) in enumerate(arrays.items()):
            golden[kind][name] = f"golden/0/{kind}-{number}.npy"
            entries[golden[kind][name]] = npy_bytes(array)
    return [dict(golden)]


def _open(path: Path, card: Card | None, shapes: Mapping[str, tuple[int, ...]]) -> ir.Model:
    try:
        return open_model(path, {**(card.shapes() if card else {}), **shapes})
    except UsageError as problem:
        hint = f"; the shapes of the card {card.title!r} count as --shape" if card else ""
        raise UsageError(f"{problem}{hint}") from None


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
        if precision != "auto" and (precision == "fp16" or precision in WEIGHT_FORMS):
            raise UsageError(f"{name} is quantized already; build it with --precision int8 or auto")
        return ("int8",)
    return PRECISIONS[precision]


def _few(samples: Sequence[Sample]) -> Sequence[Sample]:
    """What every variant is verified on, read once."""
    return [samples[i] for i in spread(range(len(samples)), VERIFIED_SAMPLES)]


def _card(card: Card | str | Path | None) -> Card | None:
    if not isinstance(card, str | Path):
        return card
    from edgekit.cards.card import load_card

    return load_card(card)


def _spec_json(spec: TensorSpec) -> dict[str, Json]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _tool_versions() -> dict[str, str]:
    """Versions of the packages that can change the bytes: the core's, and those of every installed target."""
    packages = [*PACKAGES]
    for name in registry.target_names():
        try:
            packages += registry.engine(name).ENGINE.packages
        except Exception:  # one that is not built for may be broken
            continue
    found = {}
    for package in dict.fromkeys(packages):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def _stage(progress: Progress, name: str, *, live: bool = False) -> Iterator[Callable[[str], None]]:
    """Tell ``progress`` that a stage begins and, with the last words it said, that it ended.

    ``live``: and all that it says in between.
    """
    words = [""]
    started = time.perf_counter()

    def say(text: str) -> None:
        words.append(text)
        if live:
            progress(Stage(name, text))

    progress(Stage(name, ""))
    yield say
    progress(Stage(name, words[-1], time.perf_counter() - started))
