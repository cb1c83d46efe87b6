"""``--shape image=1x3x320x320,1x3x640x640`` and ``--lengths 16,64``: a model compiled at several shapes.

opened         the model at each shape; what a text's output has at the padding is zero from here on
compiled       every variant at each shape, as one artifact (target/shapes.py)
checked        the source model runs at each shape; it gives a text the same outputs at each length
evaluated      each kept variant at each shape: accuracy against the source model, and time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import Source
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.lowering.shape_adaptation import zero_padding
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.shape_sets import compiled_sizes, further_shapes, largest_shapes, range_of
from edgekit.compiler.passes import run_passes
from edgekit.compiler.pipeline.build_job import BuildJob
from edgekit.compiler.pipeline.build_request import BuildRequest
from edgekit.compiler.pipeline.model_shapes import Further, Shapes, Text
from edgekit.compiler.pipeline.shape_compilers import RangeCompiler, ShapesCompiler
from edgekit.compiler.pipeline.shape_ranges import (
    proof_sizes,
    range_through,
    ranged_text,
    refuse_without_range,
    sized,
    text_parts,
)
from edgekit.compiler.pipeline.stages import importing
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.text import PAD_FROM_TOKENIZER, TextInput
from edgekit.system.progress import listener, stage
from edgekit.system.size_range import range_text
from edgekit.target.shapes import TokenAxes, elements, shapes_text
from edgekit.tensor_spec import Signature

TRIED_SAMPLES = 2
"""Samples that are run at each shape; each costs a run of the source model for each of them."""


def with_shapes(job: BuildJob, model: Source, request: BuildRequest) -> tuple[BuildJob, Shapes]:
    """Return the job with targets that compile at each shape, and the model at each shape.

    Raises:
        UsageError: an option cannot be combined with several shapes, two shapes are the same, or the model
            can't be opened at one. For ``lengths``: the card has no text with a mask, or a length is not
            below the card's.
    """
    flag, card, requested = "--lengths" if request.lengths else "--shape", job.card, request.shapes or {}
    if request.io:
        raise UsageError(f"{flag} cannot be combined with --io; leave one of them out")
    sizes = range_of(requested)
    if sizes is not None:
        refuse_without_range(job.targets, requested)
    parts = _parts(card, request) if request.lengths else ranged_text(card, requested)
    largest, opened = Signature(job.inputs, job.outputs), dict[int, Further]()
    compiled, tested = (compiled_sizes(sizes)[:-1], proof_sizes(sizes)) if sizes else ([], [])
    if request.lengths or sizes:
        numbers = [*(request.lengths or ()), *dict.fromkeys((*compiled, *tested))]
        sets = {n: {**sized(requested, n), **{e.name: (*e.shape[:-1], n) for e in parts}} for n in numbers}
    else:
        sets = dict(enumerate(further_shapes(requested)))
    with stage(listener(request.progress), "shapes") as report:
        for number, shapes in sets.items():
            fixed = {**(card.shapes() if card else {}), **largest_shapes(requested), **shapes}
            opened[number] = _opened(model, fixed, flag, shapes, request, largest)
        further = [opened[number] for number in compiled] or list(opened.values())
        further.sort(key=lambda item: elements(item.signature.inputs))
        proofs = [opened[number] for number in tested] or further
        text = _text(job, parts, list(opened.values())) if parts else None
        if text is not None:
            names = {spec.name for spec in job.outputs}
            ends = {name: token_axes for name, token_axes in text.axes.axes.items() if name in names}
            models = (model for item in opened.values() for model in (item.source, item.canonical))
            for item in (job.source, job.canonical, *models):
                zero_padding(item, text.axes.mask, ends)
        multi = Shapes(largest, job.canonical, further, proofs, text)
        if sizes is not None:
            signatures = {size: item.signature for size, item in opened.items()} | {sizes[-1]: largest}
            multi = replace(multi, of_range=range_through(sizes, signatures))
        kind = ShapesCompiler if sizes is None else RangeCompiler
        targets = [replace(target, compiler=kind(target.compiler, multi)) for target in job.targets]
        text_of_shapes = "; ".join(labels([*(item.signature for item in proofs), largest]))
        report(text_of_shapes if sizes is None else f"all of {range_text(sizes)}; tested at {text_of_shapes}")
    return replace(job, targets=targets), multi


def _opened(
    model: Source, fixed: Mapping[str, tuple[int, ...]], flag: str, shapes: Mapping[str, tuple[int, ...]],
    request: BuildRequest, largest: Signature,
) -> Further:  # fmt: skip
    description = ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
    try:
        source, _ = open_source_model(model, fixed, importing(request))
        actual = Signature(*map(tuple, signature(source)))
        for spec, whole in zip(
            (*actual.inputs, *actual.outputs), (*largest.inputs, *largest.outputs), strict=True
        ):
            if (spec.name, spec.dtype, len(spec.shape)) != (whole.name, whole.dtype, len(whole.shape)):
                raise UsageError(f"{spec} is not another shape of {whole}")
            if spec.is_open != whole.is_open:
                raise UsageError(f"the size of output {spec.name} depends on the data at one shape only")
        canonical = source.clone()
        run_passes(canonical)
    except EdgeKitError as problem:
        raise UsageError(f"{flag}: the model cannot be opened with {description}: {problem}") from None
    if actual.inputs == largest.inputs:
        raise UsageError(f"{flag}: {description} is given more than once, or is the shape of the card")
    return Further(actual, source, canonical)


def labels(signatures: Sequence[Signature]) -> list[str]:
    """Return the shapes of the inputs that have several, e.g. ``1x3x320x320``; with names if they differ."""
    by_input = list(zip(*(entry.inputs for entry in signatures), strict=True))
    varied = [specs for specs in by_input if len(set(specs)) > 1]
    texts = []
    for specs in zip(*varied, strict=True):
        alike = {spec.shape for spec in specs}
        texts.append("x".join(map(str, alike.pop())) if len(alike) == 1 else shapes_text(specs))
    return texts


def _parts(card: Card | None, request: BuildRequest) -> list[TextInput]:
    parts = text_parts(card)
    if not any(entry.part == "mask" for entry in parts):
        raise UsageError(
            '--lengths needs the text\'s mask: add a card with an input of kind = "text" and part = "mask" '
            "(edgekit model card MODEL -o card.toml drafts one)"
        )
    if further_shapes(request.shapes or {}):
        raise UsageError("--lengths cannot be combined with several shapes of --shape; leave one of them out")
    lengths, whole = list(request.lengths or ()), parts[0].tokens
    if not all(0 < length < whole for length in lengths) or lengths != sorted(set(lengths)):
        raise UsageError(
            f"--lengths is {','.join(map(str, lengths))}; it must be numbers of tokens, ascending, "
            f"below the card's {whole}"
        )
    return parts


def _text(job: BuildJob, parts: Sequence[TextInput], further: Sequence[Further]) -> Text:
    """Find the axes that follow the number of tokens at every length."""
    mask = next(entry for entry in parts if entry.part == "mask")
    axes: dict[str, tuple[int, ...]] = {}
    for smaller in further:
        inputs, outputs = smaller.signature
        length = next(spec.shape[-1] for spec in inputs if spec.name == mask.name)
        for spec, whole in zip((*inputs, *outputs), (*job.inputs, *job.outputs), strict=True):
            pairs = list(enumerate(zip(spec.shape, whole.shape, strict=True)))
            token_axes = tuple(axis for axis, (ours, theirs) in pairs if ours != theirs)
            if (
                any(pairs[axis][1] != (length, mask.tokens) for axis in token_axes)
                or axes.get(spec.name, token_axes) != token_axes
            ):
                raise UsageError(f"--lengths: with {length} tokens {spec} is not the shorter form of {whole}")
            if token_axes:
                axes[spec.name] = token_axes
    ids = next(entry for entry in parts if entry.part == "ids")
    assert job.card is not None
    return Text(TokenAxes(mask.name, ids.padding == "left", axes), mask.tokens, _fills(job.card, parts))


def _fills(card: Card, parts: Sequence[TextInput]) -> dict[str, int]:
    from edgekit.processing.text_preparation import tokenizer_of
    from edgekit.processing.tokenizer import padding_id

    ids = next(entry for entry in parts if entry.part == "ids")
    pad_id = padding_id(tokenizer_of(ids, card.files)) if ids.pad_id == PAD_FROM_TOKENIZER else ids.pad_id
    return {entry.name: pad_id if entry.part == "ids" else 0 for entry in parts}


def shape_references(
    job: BuildJob, shapes: Shapes, reference: ReferenceOutputs
) -> list[tuple[Signature, ReferenceOutputs]]:
    """Return samples of each shape and the source model's outputs for them, the largest shape last.

    Raises:
        UsageError: the source model can't run at a shape, or a text's outputs depend on its padding.
    """
    references, models = [], [(item.signature, item.source) for item in shapes.tested]
    for signature_, source in [*models, (shapes.largest, job.source)]:
        samples = [shapes.cut(item, signature_) for item in reference.samples[:TRIED_SAMPLES]]
        try:
            model = Reference(source)
            expected = [model.run(sample) for sample in samples]
        except EdgeKitError as problem:
            description = shapes_text(signature_.inputs)
            raise UsageError(f"--shape: {job.name} does not run with {description}: {problem}") from None
        references.append((signature_, replace(reference, samples=samples, expected=expected)))
    if shapes.text is not None:
        _check_mask(job, shapes, shapes.text, reference)
    return references


def _check_mask(job: BuildJob, shapes: Shapes, text: Text, reference: ReferenceOutputs) -> None:
    """Run the source model on texts with more and with less padding.

    Raises:
        UsageError: an output differs by more than fp32's limit.
    """
    limits = verify.limits_db(job.outputs, reference.saturating, reference.floors_db, "fp32")
    longest = Reference(job.source)
    for smaller in shapes.further:
        length = next(spec.shape[-1] for spec in smaller.signature.inputs if spec.name == text.axes.mask)
        samples = [
            text.shortened(text.filled(sample), tokens)
            for sample in reference.samples[:TRIED_SAMPLES]
            for tokens in dict.fromkeys((length, length // 2 + 1))
        ]
        expected = replace(reference, samples=samples, expected=[longest.run(sample) for sample in samples])
        shorter = Reference(smaller.source)
        outputs = [
            text.axes.put_back(shorter.run(text.axes.cut(sample, length)), length, job.outputs)
            for sample in samples
        ]
        for name, error in verify.compare_outputs(expected, outputs, limits).items():
            if not error.within_limit:
                way_out = "leave --lengths out"
                if shapes.of_range is not None:
                    way_out = "leave the card out, and fit your arrays"
                raise UsageError(
                    f"{job.name} ignores its mask: output {name} for {length} tokens changes with padding "
                    f"up to {text.whole} ({error}; {error.limit_db:g} dB is required); {way_out}"
                )
