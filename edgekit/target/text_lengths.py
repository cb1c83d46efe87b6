"""A text encoder at several lengths as one variant: a text runs at the shortest length that holds its tokens.

The artifact's own files and options are of the whole length; ``options["lengths"]`` has the rest:

    {"mask": "attention_mask", "padding": "right",
     "axes": {"input_ids": [1], "attention_mask": [1], "tokens": [1]},
     "shorter": {"16": {"files": {"model.onnx": "lengths/16/model.onnx"}, "options": {...}}}}

``axes``: the axes of each input and output that are as long as the text. ``files``: the engine's name of a
file -> the artifact's. A runtime that does not know the option runs every text at the whole length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from edgekit.errors import EngineError, reason_of
from edgekit.tensor_spec import Array, Json, TensorSpec

if TYPE_CHECKING:
    from edgekit.target.contract import Engine, Runner

T = TypeVar("T")
OPTION = "lengths"
PADDING = ("right", "left")
FOLDER = "lengths/"
"""Where an artifact has the files of its shorter lengths."""


def whole_length(files: Mapping[str, T]) -> dict[str, T]:
    """Return the files of the whole length, which are an artifact of their own."""
    return {name: entry for name, entry in files.items() if not name.startswith(FOLDER)}


class TokenAxes(NamedTuple):
    """Axes of a text's tokens in a model's inputs and outputs.

    Attributes:
        mask: Name of the input that is 1 for a token and 0 for padding, [1, tokens] or [tokens].
        left: Whether the padding is before the text.
        axes: Input or output -> its axes that are as long as the text.
    """

    mask: str
    left: bool
    axes: Mapping[str, tuple[int, ...]]

    def needed(self, feeds: Mapping[str, Array]) -> int:
        """Return the shortest length that holds all tokens; 0 if there is none."""
        found = np.flatnonzero(feeds[self.mask].reshape(-1, feeds[self.mask].shape[-1]).any(axis=0))
        if not found.size:
            return 0
        return feeds[self.mask].shape[-1] - int(found[0]) if self.left else int(found[-1]) + 1

    def cut(self, arrays: Mapping[str, Array], length: int) -> dict[str, Array]:
        """Return the arrays without what is beyond this length: padding."""
        return {
            name: np.ascontiguousarray(array[self._part(name, array.ndim, length)])
            if name in self.axes
            else array
            for name, array in arrays.items()
        }

    def put_back(
        self, arrays: Mapping[str, Array], length: int, outputs: Sequence[TensorSpec]
    ) -> dict[str, Array]:
        """Outputs of this length in those of the whole: zero at the padding."""
        whole = {}
        for spec in outputs:
            array = arrays[spec.name]
            if spec.name in self.axes:
                part, array = array, spec.zeros()
                array[self._part(spec.name, array.ndim, length)] = part
            whole[spec.name] = array
        return whole

    def at(self, specs: Sequence[TensorSpec], length: int) -> list[TensorSpec]:
        """Inputs or outputs of the model at this length."""
        return [
            spec._replace(
                shape=tuple(
                    length if axis in self.axes.get(spec.name, ()) else size
                    for axis, size in enumerate(spec.shape)
                )
            )
            for spec in specs
        ]

    def _part(self, name: str, rank: int, length: int) -> tuple[slice, ...]:
        kept = slice(-length, None) if self.left else slice(0, length)
        return tuple(kept if axis in self.axes[name] else slice(None) for axis in range(rank))


def open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> LengthsRunner:
    """Load an artifact at each of its lengths; arguments and errors as ``Engine.open_runner``.

    Raises:
        EngineError: the option is malformed.
    """
    own = {key: value for key, value in options.items() if key != OPTION}
    try:
        axes, parts = _parsed(options[OPTION], files, inputs, outputs)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise EngineError(f"the lengths of a variant are malformed: {reason_of(problem)}") from None
    whole = engine.open_runner(files, inputs, outputs, own, threads)
    opened: dict[int, Runner] = {}
    try:
        for length, (its_files, its_options) in parts.items():
            at = axes.at(inputs, length), axes.at(outputs, length)
            if all(files.get(name) == path for name, path in its_files.items()):
                opened[length] = whole.another(*at, its_options)  # type: ignore[attr-defined]
            else:
                opened[length] = engine.open_runner(its_files, *at, its_options, threads)
    except BaseException:
        for runner in (*opened.values(), whole):
            runner.close()
        raise
    return LengthsRunner(axes, opened, whole, outputs)


_Part = tuple[dict[str, Path], dict[str, Json]]


def _parsed(
    table: Json, files: Mapping[str, Path], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
) -> tuple[TokenAxes, dict[int, _Part]]:
    """Return the axes, and files and options by length, the shortest first."""
    if table["padding"] not in PADDING:
        raise ValueError(f"padding {table['padding']!r}")
    shapes = {spec.name: spec.shape for spec in (*inputs, *outputs)}
    found = {str(name): tuple(int(axis) for axis in own) for name, own in table["axes"].items()}
    axes = TokenAxes(str(table["mask"]), table["padding"] == "left", found)
    if any(not 0 <= axis < len(shapes[name]) for name, own in found.items() for axis in own):
        raise ValueError(f"axes {found}")
    whole = {shapes[name][axis] for name, own in found.items() for axis in own}
    if len(whole) != 1 or axes.mask not in found or axes.mask not in {spec.name for spec in inputs}:
        raise ValueError(f"mask {axes.mask}")
    lengths = sorted(int(length) for length in table["shorter"])
    if not lengths or not 0 < lengths[0] <= lengths[-1] < min(whole):
        raise ValueError(f"{lengths} of {sorted(whole)}")
    parts: dict[int, _Part] = {}
    for length in lengths:
        own = table["shorter"][str(length)]
        parts[length] = {str(n): files[f] for n, f in own["files"].items()}, dict(own["options"])
    return axes, parts


class LengthsRunner:
    """One model loaded at several lengths.

    Attributes:
        runs: Length -> how many texts ran at it.
    """

    def __init__(
        self, axes: TokenAxes, shorter: Mapping[int, Runner], whole: Runner, outputs: Sequence[TensorSpec]
    ) -> None:
        self.device, self.precision = whole.device, whole.precision
        self.stands_in_for = str(getattr(whole, "stands_in_for", ""))
        self.stands_in_by = str(getattr(whole, "stands_in_by", ""))
        self.runs: dict[int, int] = dict.fromkeys(shorter, 0)
        self._axes, self._shorter, self._whole = axes, dict(shorter), whole
        self._outputs = outputs

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run at the shortest length that holds the tokens; where nothing is a token, at the whole one, so
        that a run of zeros takes as long as the longest text."""
        needed = self._axes.needed(feeds)
        for length, runner in self._shorter.items():
            if 0 < needed <= length:
                self.runs[length] += 1
                outputs = runner.run(self._axes.cut(feeds, length))
                return self._axes.put_back(outputs, length, self._outputs)
        return self._whole.run(feeds)

    def facts(self) -> dict[str, Json]:
        """Those of the whole length."""
        return self._whole.facts()

    def close(self) -> None:
        """Free all of them."""
        runners = [*self._shorter.values(), self._whole]
        self._shorter = {}
        for runner in runners:
            runner.close()
