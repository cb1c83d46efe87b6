"""The build: one model in, one verified bundle out; one line per stage (pipeline/stages.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import UsageError
from edgekit.evaluate.samples import Sample
from edgekit.importers.contract import ImportOptions, Source
from edgekit.importers.conversion import as_source
from edgekit.pipeline.build_options import build_options
from edgekit.pipeline.bundle_contents import make_bundle
from edgekit.pipeline.progress import Progress, Stage
from edgekit.pipeline.stages import (
    add_quantized_variants,
    build_float_variants,
    check_targets,
    open_source,
    prepare_samples,
    time_and_select,
)
from edgekit.target.build_target import BuildTarget, resolve
from edgekit.target.installed_profiles import find_profile

if TYPE_CHECKING:
    from edgekit.cards.card import Card

__all__ = ["Progress", "Stage", "build"]


def build(
    model: str | Path | Source,
    *,
    targets: Sequence[str],
    precision: str = "fp32",
    samples: str | Path | Sequence[Sample] | None = None,
    card: Card | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    example_inputs: Sequence[Any] | None = None,
    trust_pickle: bool = False,
    io: str | Mapping[str, str] | None = None,
    max_drop: str | None = None,
    time_budget: float | None = None,
    force: bool = False,
    fallback: bool = True,
    progress: Progress = lambda stage: None,
) -> Bundle:
    """Build a model for targets and devices, and verify each variant by running it here.

    Args:
        model: Path of an ``.onnx`` file, or of another framework's that an importer takes
            (docs/importing.md).
        targets: Targets (``ort``) or device profiles (``rpi5``).
        precision: ``fp32``, ``fp16`` (weights), ``int8``, ``int8-weights``, ``int8-dynamic``, or ``auto``:
            all of these, and of int8 every variant with a gain. int8 needs samples, unless the model has Q/DQ
            pairs, which are kept as they are. A variant that is slower than fp32, or the same, is rejected.
            ``palette6``, ``palette4``: palettized weights for Core ML. ``bf16``, ``fp16-arithmetic``: floats
            computed in a narrower type, where the processor has it; ``auto`` tries them where this one does.
            ``fp8``: for TensorRT on Thor; needs samples.
        samples: What int8 is calibrated on and variants are verified with: a folder or glob, or dicts of
            arrays; None for random ones. A third of them is held out for testing.
        card: Describes pre- and postprocessing; it is stored in the bundle.
        shapes: Static shapes by input name, for inputs whose dimensions are dynamic or stale. The card's
            shapes are used where none is given here. The name "" stands for the only input, or the only one
            of four dimensions. A batch that is left open is 1, which the report says.
        example_inputs: What a PyTorch module or a JAX function is called with: both trace it.
        trust_pickle: Whether a model file that is a Python pickle may be loaded, which runs code in it.
        io: How artifacts store their inputs and outputs, for use without our runtime: ``nchw``, as the source
            has them, or ``nhwc``, axis 1 last (only tflite has it); for every one of four axes, or by name.
            ``uint8``: the card's image input takes uint8 [1, H, W, C] in RGB, from sessions too; mean, std,
            colour order and layout are folded into the model (ort, openvino, tflite).
        max_drop: What int8 may lose: ``2%`` of the task's own metric where the samples are labelled, else of
            the fidelity to the float model; or the least SNR, ``24dB``. None: docs/quantization.md.
        time_budget: Seconds to search for int8, for all targets together; None: 60, for auto 180.
        force: Ship a rejected int8 variant, marked as such.
        fallback: Whether the float parent of an int8 variant is in the bundle too.
        progress: Called as each stage begins and ends.

    Returns:
        The bundle, in memory. Rejected variants and those that could not be run are listed with the reason.

    Raises:
        UsageError: wrong precision, no or repeated targets, a layout that is not available.
        ProfileError: unknown target.
        CardError: the card is malformed or does not describe the model.
        SampleError: no samples are found, or one does not fit the inputs.
        ModelError: the file is not a model, or has dynamic dimensions that nothing freezes.
        UnsupportedError: a target cannot express some nodes; every reason for every target is named.
        MissingDependency: a tool that compiles for a target is not installed.
    """
    resolved = _targets(targets)
    options = build_options(precision, max_drop, time_budget, force, fallback)
    source, card, has_samples = as_source(model), _card(card), samples is not None
    importing = ImportOptions(example_inputs=example_inputs, trust_pickle=trust_pickle)
    job = open_source(source, card, shapes or {}, importing, io, resolved, options, has_samples, progress)
    check_targets(job, progress)
    data = prepare_samples(job, samples, progress)
    variants = build_float_variants(job, data.reference, progress)
    variants = add_quantized_variants(job, data, variants, progress)
    variants = time_and_select(job, data.reference, variants, progress)
    return make_bundle(job, data.all, data.reference, variants, data.import_check)


def _targets(targets: Sequence[str]) -> list[BuildTarget]:
    if isinstance(targets, str) or not targets:
        raise UsageError("targets is a list of one or more targets or profiles, e.g. ['ort', 'rpi5']")
    repeated = sorted({t for t in targets if list(targets).count(t) > 1})
    if repeated:
        raise UsageError(f"{', '.join(repeated)} is given more than once")
    return [resolve(find_profile(name)) for name in targets]


def _card(card: Card | str | Path | None) -> Card | None:
    if not isinstance(card, str | Path):
        return card
    from edgekit.cards.card import load_card

    return load_card(card)
