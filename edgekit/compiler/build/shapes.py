"""``--shape image=1x3x320x320,1x3x640x640`` and ``--lengths 16,64``: a model compiled at several shapes.

opened         the model at each shape; what a text's output has at the padding is zero from here on
compiled       every variant at each shape, as one artifact (target/shapes.py)
checked        the source model runs at each shape; it gives a text the same outputs at each length
evaluated      each kept variant at each shape: accuracy against the source model, and time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.bundle.shape_entries import shapes_json
from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.stages import BuildJob, importing
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import Source
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.lowering.shape_adaptation import at_shape, zero_padding
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.shape_sets import further_shapes, largest_shapes
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.inputs.text import PAD_FROM_TOKENIZER, TextInput
from edgekit.system.progress import stage
from edgekit.target.contract import Artifact, Compiler, TargetInfo
from edgekit.target.profile import Profile
from edgekit.target.shapes import FOLDER, OPTION, TokenAxes, elements, shapes_text
from edgekit.tensor_spec import Array, Json, Signature, cut_to

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.diagnostics import Finding
    from edgekit.processing.card import Card

TRIED_SAMPLES = 2
"""Samples that are run at each shape; each costs a run of the source model for each of them."""


@dataclass(frozen=True, eq=False)
class Further:
    """A model at a further shape.

    Attributes:
        signature: Its inputs and outputs.
        source: The model as it was opened.
        canonical: The same after the passes.
    """

    signature: Signature
    source: ir.Model
    canonical: ir.Model


@dataclass(frozen=True, eq=False)
class Text:
    """A text encoder's tokens.

    Attributes:
        axes: Axis of the tokens in each input and output.
        whole: Tokens of the longest.
        fills: Input -> what it holds at the padding.
    """

    axes: TokenAxes
    whole: int
    fills: Mapping[str, int]

    def filled(self, sample: Sample) -> dict[str, Array]:
        """Return a text whose tokens are repeated until there is no padding. If it has no tokens, its padding
        counts as tokens."""
        count = self.axes.needed(sample) or self.whole
        arrays = dict(sample)
        for name in self.fills:
            array = sample[name].reshape(-1)
            tokens = array[-count:] if self.axes.left else array[:count]
            arrays[name] = np.resize(tokens, self.whole).reshape(sample[name].shape)
        arrays[self.axes.mask] = np.ones_like(sample[self.axes.mask])
        return arrays

    def shortened(self, sample: Sample, length: int) -> dict[str, Array]:
        """Return a text cut to a length: its first tokens, or with padding on the left its last ones. Padding
        replaces the other tokens."""
        arrays, beyond = dict(sample), self.whole - length
        for name, fill in self.fills.items():
            arrays[name] = sample[name].copy()
            arrays[name][..., slice(0, beyond) if self.axes.left else slice(length, None)] = fill
        return arrays


@dataclass(frozen=True, eq=False)
class Shapes:
    """A model at several shapes.

    Attributes:
        largest: Inputs and outputs at the largest shape.
        canonical: The model at the largest shape, after the passes.
        further: The model at the others, smallest first.
        text: Its tokens, if the shapes are lengths of a text.
    """

    largest: Signature
    canonical: ir.Model
    further: Sequence[Further]
    text: Text | None

    def together(self, whole: Artifact, further: Sequence[Artifact], shared: bool) -> Artifact:
        """Return one artifact with the files of all shapes. Files of each further shape are in a folder
        for that shape. If ``shared``, a file with the content of one of the largest shape's files is that
        file; one in a folder, which is whole by itself, only if all of them are."""
        files, parts = dict(whole.files), list[Json]()
        for number, (smaller, artifact) in enumerate(zip(self.further, further, strict=True)):
            names = {}
            for name, content in artifact.files.items():
                same = shared and ("/" not in name or artifact.files == whole.files)
                alike = (other for other, theirs in whole.files.items() if same and theirs == content)
                names[name] = stored = next(alike, f"{FOLDER}{number}/{name}")
                files[stored] = content
            shapes = {side: shapes_json(specs) for side, specs in smaller.signature._asdict().items()}
            parts.append({**shapes, "files": names, "options": dict(artifact.options)})
        table: dict[str, Json] = {"further": parts}
        if self.text is not None:
            axes = self.text.axes
            table["text"] = {
                "mask": axes.mask,
                "padding": "left" if axes.left else "right",
                "axes": {name: list(token_axes) for name, token_axes in axes.axes.items()},
            }
        return Artifact(files, {**whole.options, OPTION: table}, whole.facts)

    def cut(self, sample: Sample, target: Signature) -> dict[str, Array]:
        """Return a sample of the largest shape at another: a part of it, repeated where it is too small; of a
        text its tokens without padding."""
        if self.text is not None:
            sample = self.text.filled(sample)
        return {spec.name: cut_to(sample[spec.name], spec.shape) for spec in target.inputs}


def with_shapes(job: BuildJob, model: Source, request: BuildRequest) -> tuple[BuildJob, Shapes]:
    """Return the job with targets that compile at each shape, and the model at each shape.

    Raises:
        UsageError: an option cannot be combined with several shapes, two shapes are the same, or the model
            can't be opened at one. For ``lengths``: the card has no text with a mask, or a length is not
            below the card's.
    """
    flag, card = "--lengths" if request.lengths else "--shape", job.card
    if request.io:
        raise UsageError(f"{flag} cannot be combined with --io; leave one of them out")
    parts = _parts(card, request) if request.lengths else []
    sets = [{e.name: (*e.shape[:-1], n) for e in parts} for n in request.lengths or ()] or further_shapes(
        request.shapes or {}
    )
    largest, further = Signature(job.inputs, job.outputs), list[Further]()
    with stage(request.progress, "shapes") as report:
        for shapes in sets:
            fixed = {**(card.shapes() if card else {}), **largest_shapes(request.shapes or {}), **shapes}
            further.append(_opened(model, fixed, flag, shapes, request, largest))
        further.sort(key=lambda item: elements(item.signature.inputs))
        text = _text(job, parts, further) if parts else None
        if text is not None:
            names = {spec.name for spec in job.outputs}
            ends = {name: token_axes for name, token_axes in text.axes.axes.items() if name in names}
            models = (model for item in further for model in (item.source, item.canonical))
            for item in (job.source, job.canonical, *models):
                zero_padding(item, text.axes.mask, ends)
        multi = Shapes(largest, job.canonical, further, text)
        targets = [replace(target, compiler=ShapesCompiler(target.compiler, multi)) for target in job.targets]
        report("; ".join(labels([*(item.signature for item in further), largest])))
    return replace(job, targets=targets), multi


def _opened(
    model: Source, fixed: Mapping[str, tuple[int, ...]], flag: str, shapes: Mapping[str, tuple[int, ...]],
    request: BuildRequest, largest: Signature,
) -> Further:  # fmt: skip
    """Open the model at a further shape."""
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
    """Return the parts of the card's text."""
    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)] if card else []
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


class ShapesCompiler:
    """A target's compiler that compiles at each shape.

    Args:
        compiler: The target's own.
        shapes: The model.
    """

    def __init__(self, compiler: Compiler, shapes: Shapes) -> None:
        info = compiler.TARGET
        self.TARGET: TargetInfo = info._replace(refine=self._refined if info.refine is not None else None)
        self._compiler, self._shapes = compiler, shapes

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        return self._compiler.check_model(model, profile)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """Return one artifact with the files of all shapes. Errors are those of the target's compiler."""
        return self._together(*self._compiled(model, profile, precision))

    def _compiled(self, model: ir.Model, profile: Profile, precision: str) -> tuple[Artifact, list[Artifact]]:
        whole = self._compiler.compile_model(model, profile, precision)
        return whole, [
            self._compiler.compile_model(self._at(model, smaller), profile, precision)
            for smaller in self._shapes.further
        ]

    def _at(self, model: ir.Model, further: Further) -> ir.Model:
        return at_shape(model, self._shapes.canonical, further.canonical)

    def _refined(
        self,
        model: ir.Model,
        profile: Profile,
        precision: str,
        artifact: Artifact,
        samples: Sequence[Mapping[str, Array]],
    ) -> Artifact:
        """Refine each shape with samples of that shape. The shapes are compiled again, because ``artifact``
        holds all of them."""
        refine, shapes = self._compiler.TARGET.refine, self._shapes
        assert refine is not None
        whole, further = self._compiled(model, profile, precision)
        for number, (smaller, compiled) in enumerate(zip(shapes.further, further, strict=True)):
            cut = [shapes.cut(sample, smaller.signature) for sample in samples]
            further[number] = refine(self._at(model, smaller), profile, precision, compiled, cut)
        return self._together(refine(model, profile, precision, whole, samples), further)

    def _together(self, whole: Artifact, further: Sequence[Artifact]) -> Artifact:
        if (share := self.TARGET.share_weights) is not None:
            whole, further = share(whole, further)
        return self._shapes.together(whole, further, share is not None)


def shape_references(
    job: BuildJob, shapes: Shapes, reference: ReferenceOutputs
) -> list[tuple[Signature, ReferenceOutputs]]:
    """Return samples of each shape and the source model's outputs for them, the largest shape last.

    Raises:
        UsageError: the source model can't run at a shape, or a text's outputs depend on its padding.
    """
    references, models = [], [(item.signature, item.source) for item in shapes.further]
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
                raise UsageError(
                    f"{job.name} ignores its mask: output {name} for {length} tokens changes with padding "
                    f"up to {text.whole} ({error}; {error.limit_db:g} dB is required); leave --lengths out"
                )
