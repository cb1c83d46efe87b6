"""``--lengths 16,64``: a text encoder that is compiled at several lengths, and runs a text at the shortest.

opened         the model at each length; what an output has at the padding is zero from here on
compiled       every variant at each length, as one artifact (target/text_lengths.py)
honoured       the source model gives a text the same outputs at each length, or the build ends
evaluated      each kept variant at each length: accuracy against the source model at the whole, and time
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from edgekit.compiler.build.build_request import BuildRequest
from edgekit.compiler.build.stages import BuildJob, importing
from edgekit.compiler.evaluate import verify
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.evaluate.verify import ReferenceOutputs
from edgekit.compiler.importers.contract import Source
from edgekit.compiler.importers.conversion import open_source_model
from edgekit.compiler.lowering.token_lengths import at_length, zero_padding
from edgekit.compiler.model.onnx_file import signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError, UsageError
from edgekit.processing.inputs.text import PAD_FROM_TOKENIZER, TextInput
from edgekit.system.progress import stage
from edgekit.target.contract import Artifact, Compiler, TargetInfo
from edgekit.target.profile import Profile
from edgekit.target.text_lengths import FOLDER, OPTION, TokenAxes
from edgekit.tensor_spec import Array, Json

if TYPE_CHECKING:
    import onnx_ir as ir

    from edgekit.diagnostics import Finding
    from edgekit.processing.card import Card

TRIED_SAMPLES = 2
"""Texts that a model has to give the same outputs at each length; each costs a run for each of them."""


@dataclass(frozen=True, eq=False)
class TextLengths:
    """A model at several lengths.

    Attributes:
        axes: Axis of the tokens in each input.
        whole: Tokens of the longest.
        sources: Tokens -> the model as it was opened, of the shorter ones, ascending.
        canonical: The same after the passes.
        longest: The longest after the passes.
        fills: Input -> what it holds at the padding.
    """

    axes: TokenAxes
    whole: int
    sources: Mapping[int, ir.Model]
    canonical: Mapping[int, ir.Model]
    longest: ir.Model
    fills: Mapping[str, int]

    def together(self, whole: Artifact, shorter: Mapping[int, Artifact]) -> Artifact:
        """One artifact: the files of the shorter ones are in folders of their own, unless they have the
        content of one of the whole's."""
        files, parts = dict(whole.files), dict[str, Json]()
        for length, artifact in shorter.items():
            names = {}
            for name, content in artifact.files.items():
                alike = (other for other, theirs in whole.files.items() if theirs == content)
                names[name] = stored = next(alike, f"{FOLDER}{length}/{name}")
                files[stored] = content
            parts[str(length)] = {"files": names, "options": dict(artifact.options)}
        table = {
            "mask": self.axes.mask,
            "padding": "left" if self.axes.left else "right",
            "axes": {name: list(own) for name, own in self.axes.axes.items()},
            "shorter": parts,
        }
        return Artifact(files, {**whole.options, OPTION: table}, whole.facts)

    def filled(self, sample: Sample) -> dict[str, Array]:
        """A text whose tokens are repeated until there is no padding; of no tokens, padding that counts."""
        count = self.axes.needed(sample) or self.whole
        found = dict(sample)
        for name in self.fills:
            array = sample[name].reshape(-1)
            own = array[-count:] if self.axes.left else array[:count]
            found[name] = np.resize(own, self.whole).reshape(sample[name].shape)
        found[self.axes.mask] = np.ones_like(sample[self.axes.mask])
        return found

    def shortened(self, sample: Sample, length: int) -> dict[str, Array]:
        """The first tokens of a text, or with padding on the left its last, so that it fits a length."""
        found, beyond = dict(sample), self.whole - length
        for name, fill in self.fills.items():
            found[name] = sample[name].copy()
            found[name][..., slice(0, beyond) if self.axes.left else slice(length, None)] = fill
        return found


def with_lengths(job: BuildJob, model: Source, request: BuildRequest) -> tuple[BuildJob, TextLengths]:
    """The job with targets that compile at each length, and the model at each.

    Raises:
        UsageError: there is no text with a mask, a length is not below the whole, another option does not go
            with it, or the model can't be opened at a length.
    """
    lengths = request.lengths or ()
    parts = _parts(job.card, lengths, request.io)
    mask = next(entry for entry in parts if entry.part == "mask")
    card = job.card
    assert card is not None
    with stage(request.progress, "lengths") as say:
        sources: dict[int, ir.Model] = {}
        for length in lengths:
            given = {
                **(request.shapes or {}),
                **card.shapes(),
                **{e.name: (*e.shape[:-1], length) for e in parts},
            }
            try:
                sources[length], _ = open_source_model(model, given, importing(request))
            except EdgeKitError as problem:
                raise UsageError(
                    f"--lengths: the model cannot be opened with {length} tokens: {problem}"
                ) from None
        axes = _axes(job, mask, parts, sources)
        ends = {name: own for name, own in axes.axes.items() if name in {spec.name for spec in job.outputs}}
        canonical = {}
        for length, source in sources.items():
            canonical[length] = source.clone()
            run_passes(canonical[length])
        for each in (job.source, job.canonical, *sources.values(), *canonical.values()):
            zero_padding(each, mask.name, ends)
        texts = TextLengths(axes, mask.tokens, sources, canonical, job.canonical, _fills(card, parts))
        targets = [
            replace(target, compiler=LengthsCompiler(target.compiler, texts)) for target in job.targets
        ]
        say(f"{', '.join(map(str, lengths))} tokens, in addition to {mask.tokens}")
    return replace(job, targets=targets), texts


def _parts(card: Card | None, lengths: Sequence[int], io: object) -> list[TextInput]:
    """The parts of the card's text."""
    parts = [entry for entry in card.inputs.values() if isinstance(entry, TextInput)] if card else []
    if not any(entry.part == "mask" for entry in parts):
        raise UsageError(
            '--lengths needs the text\'s mask: add a card with an input of kind = "text" and part = "mask" '
            "(edgekit model card MODEL -o card.toml drafts one)"
        )
    if io:
        raise UsageError("--lengths cannot be combined with --io; leave one of them out")
    whole = parts[0].tokens
    wrong = [length for length in lengths if not 0 < length < whole]
    if wrong or list(lengths) != sorted(set(lengths)):
        raise UsageError(
            f"--lengths is {','.join(map(str, lengths))}; it must be numbers of tokens, ascending, "
            f"below the card's {whole}"
        )
    return parts


def _axes(
    job: BuildJob, mask: TextInput, parts: Sequence[TextInput], sources: Mapping[int, ir.Model]
) -> TokenAxes:
    """The axes that follow the number of tokens, at every length."""
    axes: dict[str, tuple[int, ...]] = {}
    for length, source in sources.items():
        inputs, outputs = signature(source)
        for spec, whole in zip((*inputs, *outputs), (*job.inputs, *job.outputs), strict=True):
            pairs = list(enumerate(zip(spec.shape, whole.shape, strict=True)))
            own = tuple(axis for axis, (ours, theirs) in pairs if ours != theirs)
            if (
                any(pairs[axis][1] != (length, mask.tokens) for axis in own)
                or axes.get(spec.name, own) != own
            ):
                raise UsageError(f"--lengths: with {length} tokens {spec} is not the shorter form of {whole}")
            if own:
                axes[spec.name] = own
    ids = next(entry for entry in parts if entry.part == "ids")
    return TokenAxes(mask.name, ids.padding == "left", axes)


def _fills(card: Card, parts: Sequence[TextInput]) -> dict[str, int]:
    from edgekit.processing.text_preparation import tokenizer_of
    from edgekit.processing.tokenizer import padding_id

    ids = next(entry for entry in parts if entry.part == "ids")
    pad_id = padding_id(tokenizer_of(ids, card.files)) if ids.pad_id == PAD_FROM_TOKENIZER else ids.pad_id
    return {entry.name: pad_id if entry.part == "ids" else 0 for entry in parts}


class LengthsCompiler:
    """A target's compiler that compiles at each length.

    Args:
        compiler: The target's own.
        texts: The model.
    """

    def __init__(self, compiler: Compiler, texts: TextLengths) -> None:
        info = compiler.TARGET
        self.TARGET: TargetInfo = info._replace(refine=self._refined if info.refine is not None else None)
        self._compiler, self._texts = compiler, texts

    def check_model(self, model: ir.Model, profile: Profile) -> list[Finding]:
        return self._compiler.check_model(model, profile)

    def compile_model(self, model: ir.Model, profile: Profile, precision: str) -> Artifact:
        """One artifact with the files of all lengths; errors as the target's."""
        return self._together(*self._compiled(model, profile, precision))

    def _compiled(
        self, model: ir.Model, profile: Profile, precision: str
    ) -> tuple[Artifact, dict[int, Artifact]]:
        whole = self._compiler.compile_model(model, profile, precision)
        return whole, {
            length: self._compiler.compile_model(self._with_length(model, length), profile, precision)
            for length in self._texts.canonical
        }

    def _with_length(self, model: ir.Model, length: int) -> ir.Model:
        return at_length(model, self._texts.longest, self._texts.canonical[length])

    def _refined(
        self,
        model: ir.Model,
        profile: Profile,
        precision: str,
        artifact: Artifact,
        samples: Sequence[Mapping[str, Array]],
    ) -> Artifact:
        """Each length refined with samples of that length; ``artifact`` holds all of them, so they are
        compiled again."""
        refine, texts = self._compiler.TARGET.refine, self._texts
        assert refine is not None
        whole, shorter = self._compiled(model, profile, precision)
        for length, own in shorter.items():
            short = [texts.axes.cut(texts.shortened(sample, length), length) for sample in samples]
            shorter[length] = refine(self._with_length(model, length), profile, precision, own, short)
        return self._together(refine(model, profile, precision, whole, samples), shorter)

    def _together(self, whole: Artifact, shorter: Mapping[int, Artifact]) -> Artifact:
        if (share := self.TARGET.share_weights) is not None:
            whole, own = share(whole, list(shorter.values()))
            shorter = dict(zip(shorter, own, strict=True))
        return self._texts.together(whole, shorter)


def check_mask(job: BuildJob, texts: TextLengths, reference: ReferenceOutputs) -> None:
    """Run the source model on texts with more and with less padding.

    Raises:
        UsageError: an output differs by more than fp32's limit.
    """
    limits = verify.limits_db(job.outputs, reference.saturating, reference.floors_db, "fp32")
    longest = Reference(job.source)
    for length, source in texts.sources.items():
        samples = [
            texts.shortened(texts.filled(sample), tokens)
            for sample in reference.samples[:TRIED_SAMPLES]
            for tokens in dict.fromkeys((length, length // 2 + 1))
        ]
        expected = replace(reference, samples=samples, expected=[longest.run(sample) for sample in samples])
        shorter = Reference(source)
        found = [
            texts.axes.put_back(shorter.run(texts.axes.cut(sample, length)), length, job.outputs)
            for sample in samples
        ]
        for name, error in verify.compare_outputs(expected, found, limits).items():
            if not error.within_limit:
                raise UsageError(
                    f"{job.name} ignores its mask: output {name} for {length} tokens changes with padding "
                    f"up to {texts.whole} ({error}; {error.limit_db:g} dB is required); leave --lengths out"
                )
