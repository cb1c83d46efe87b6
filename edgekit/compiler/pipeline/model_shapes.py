"""A model at several shapes: the parts of a build that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.bundle.shape_entries import shapes_json
from edgekit.compiler.evaluate.samples import Sample
from edgekit.target.contract import Artifact
from edgekit.target.shape_range import ShapeRange
from edgekit.target.shapes import FOLDER, OPTION, TokenAxes
from edgekit.tensor_spec import Array, Json, Signature, cut_to


@dataclass(frozen=True, eq=False)
class Further:
    """A model at a further shape.

    Attributes:
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
        """Repeat a text's tokens in place of its padding. Without tokens, its padding is repeated."""
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


def stored_names(artifact: Artifact, whole: Artifact, folder: str, shared: bool) -> dict[str, str]:
    """Return the name under which each file of a further shape is stored.

    Args:
        artifact: Artifact of the further shape.
        whole: Artifact of the largest one.
        folder: Folder of the further shape.
        shared: Whether a file with the content of one of ``whole`` is that file; one in a folder, which is
            whole by itself, only if all of them are.
    """
    names = {}
    for name, content in artifact.files.items():
        same = shared and ("/" not in name or artifact.files == whole.files)
        alike = (other for other, theirs in whole.files.items() if same and theirs == content)
        names[name] = next(alike, f"{folder}{name}")
    return names


def further_entry(signature: Signature, names: Mapping[str, str], options: Mapping[str, Json]) -> Json:
    """Return the entry of a further shape in the option: its shapes, files and options."""
    shapes = {side: shapes_json(specs) for side, specs in signature._asdict().items()}
    return {**shapes, "files": dict(names), "options": dict(options)}


def with_further(whole: Artifact, entries: Sequence[Json], axes: TokenAxes | None) -> Artifact:
    """Return an artifact with the option of further shapes.

    Args:
        whole: Artifact of the largest shape.
        entries: Results of ``further_entry``.
        axes: Axes that are as long as a padded text or sound; None: a run names its shape.
    """
    table: dict[str, Json] = {"further": list(entries)}
    if axes is not None:
        table["text"] = axes.as_json()
    return whole._replace(options={**whole.options, OPTION: table})


@dataclass(frozen=True, eq=False)
class Shapes:
    """A model at several shapes.

    Attributes:
        largest: Inputs and outputs at the largest shape.
        canonical: The model at the largest shape, after the passes.
        further: The model at the others, smallest first.
        tested: The model at the shapes that variants are run at, besides the largest.
        text: Its tokens, if the shapes are lengths of a text.
        of_range: The range, if each variant takes all shapes of one.
    """

    largest: Signature
    canonical: ir.Model
    further: Sequence[Further]
    tested: Sequence[Further]
    text: Text | None
    of_range: ShapeRange | None = None

    def together(self, whole: Artifact, further: Sequence[Artifact], shared: bool) -> Artifact:
        """Return one artifact with the files of all shapes."""
        files, parts = dict(whole.files), list[Json]()
        for number, (smaller, artifact) in enumerate(zip(self.further, further, strict=True)):
            names = stored_names(artifact, whole, f"{FOLDER}{number}/", shared)
            files |= {stored: artifact.files[name] for name, stored in names.items()}
            parts.append(further_entry(smaller.signature, names, artifact.options))
        return with_further(
            Artifact(files, whole.options, whole.facts), parts, self.text.axes if self.text else None
        )

    def cut(self, sample: Sample, target: Signature) -> dict[str, Array]:
        """Return a sample of the largest shape at another: a part of it, repeated where it is too small; of a
        text its tokens without padding."""
        if self.text is not None:
            sample = self.text.filled(sample)
        return {spec.name: cut_to(sample[spec.name], spec.shape) for spec in target.inputs}
