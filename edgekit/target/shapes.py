"""A model compiled at several shapes as one variant: each run takes the shape of the arrays it is given.

The artifact's own files and options are of the largest shape; ``options["shapes"]`` has the further ones:

    {"further": [{"inputs": {"image": [1, 3, 320, 320]}, "outputs": {"boxes": [1, 2100, 85]},
                  "files": {"model.onnx": "shapes/0/model.onnx"}, "options": {...}}, ...],
     "text": {"mask": "attention_mask", "padding": "right", "axes": {"input_ids": [1], "tokens": [1]}}}

``files``: the engine's name of a file -> the artifact's. ``text``, of a text encoder: arrays of the largest
shape run at the shortest that holds the text; ``axes`` are those of each input and output that are as long
as the text. A runtime that does not know the option runs the largest shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from edgekit.errors import EngineError, reason_of
from edgekit.target.tensor_checks import wrong_answer
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec, with_shapes

if TYPE_CHECKING:
    from edgekit.target.contract import Engine, Runner

T = TypeVar("T")
OPTION = "shapes"
PADDING = ("right", "left")
FOLDER = "shapes/"
"""Folder of an artifact with the files of its further shapes."""

Key = tuple[tuple[int, ...], ...]


def largest_files(files: Mapping[str, T]) -> dict[str, T]:
    """Return the files of the largest shape, which are an artifact of their own."""
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
        positions = np.flatnonzero(feeds[self.mask].reshape(-1, feeds[self.mask].shape[-1]).any(axis=0))
        if not positions.size:
            return 0
        return feeds[self.mask].shape[-1] - int(positions[0]) if self.left else int(positions[-1]) + 1

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
        """Return outputs of this length in arrays of the largest length, with zeros at the padding."""
        whole = {}
        for spec in outputs:
            array = arrays[spec.name]
            if spec.name in self.axes:
                part, array = array, spec.zeros()
                array[self._part(spec.name, array.ndim, length)] = part
            whole[spec.name] = array
        return whole

    def at(self, specs: Sequence[TensorSpec], length: int) -> dict[str, list[int]]:
        """Return the shapes of inputs or outputs at this length."""
        return {
            spec.name: [
                length if axis in self.axes.get(spec.name, ()) else size
                for axis, size in enumerate(spec.shape)
            ]
            for spec in specs
        }

    def as_json(self) -> Json:
        """Return the form that ``text`` has in an option."""
        axes = {name: list(token_axes) for name, token_axes in self.axes.items()}
        return {"mask": self.mask, "padding": "left" if self.left else "right", "axes": axes}

    def _part(self, name: str, rank: int, length: int) -> tuple[slice, ...]:
        span = slice(-length, None) if self.left else slice(0, length)
        return tuple(span if axis in self.axes[name] else slice(None) for axis in range(rank))


class FurtherShape(NamedTuple):
    """Part of an artifact for one further shape."""

    signature: Signature
    files: Mapping[str, Path]
    options: Mapping[str, Json]


def open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
    open_one: Callable[..., Runner] | None = None,
) -> ShapesRunner:
    """Load an artifact at its largest shape; the others are loaded when they are first used. Engines that are
    built on the device are loaded at once, because a build takes minutes.

    Args:
        open_one: Opens the files of one shape, by the same arguments. None means ``engine.open_runner``.

    Raises:
        EngineError: the option is malformed.
    """
    open_one = open_one or engine.open_runner
    largest, engine_options = Signature(tuple(inputs), tuple(outputs)), dict(options)
    table = engine_options.pop(OPTION, None)
    try:
        further, text = _parsed(table, files, largest)
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise EngineError(f"the shapes of a variant are malformed: {reason_of(problem)}") from None
    opened = open_one(largest_files(files), inputs, outputs, engine_options, threads)

    def open_further(part: FurtherShape) -> Runner:
        if all(files.get(name) == path for name, path in part.files.items()) and hasattr(opened, "another"):
            further_runner: Runner = opened.another(*part.signature, part.options)
            return further_runner
        return open_one(part.files, *part.signature, part.options, threads)

    runner = ShapesRunner(largest, opened, further, text, open_further)
    if engine.ENGINE.prepared_on_device:
        try:
            runner.load()
        except BaseException:
            runner.close()
            raise
    return runner


def _parsed(
    table: Json, files: Mapping[str, Path], largest: Signature
) -> tuple[list[FurtherShape], TokenAxes | None]:
    """Return the further shapes, smallest first, and the axes of a text."""
    further, keys = [], {_key(largest.inputs)}
    for entry in table["further"]:
        signature = signature_at(largest, entry["inputs"], entry["outputs"])
        if (key := _key(signature.inputs)) in keys:
            raise ValueError(f"{shapes_text(signature.inputs)} twice")
        keys.add(key)
        paths = {str(name): files[file] for name, file in entry["files"].items()}
        further.append(FurtherShape(signature, paths, dict(entry["options"])))
    if not further:
        raise ValueError("no further shape")
    text = None if table.get("text") is None else token_axes(table["text"], largest)
    for part in further if text is not None else ():
        assert text is not None
        length = {spec.name: spec for spec in part.signature.inputs}[text.mask].shape[-1]
        if (
            signature_at(largest, text.at(largest.inputs, length), text.at(largest.outputs, length))
            != part[0]
        ):
            raise ValueError(f"{shapes_text(part.signature.inputs)} of {text.axes}")
    return sorted(further, key=lambda part: elements(part.signature.inputs)), text


def token_axes(table: Json, largest: Signature) -> TokenAxes:
    if table["padding"] not in PADDING:
        raise ValueError(f"padding {table['padding']!r}")
    shapes = {spec.name: spec.shape for both in largest for spec in both}
    by_name = {str(name): tuple(int(axis) for axis in dims) for name, dims in table["axes"].items()}
    axes = TokenAxes(str(table["mask"]), table["padding"] == "left", by_name)
    if any(not 0 <= axis < len(shapes[name]) for name, dims in by_name.items() for axis in dims):
        raise ValueError(f"axes {by_name}")
    whole = {shapes[name][axis] for name, dims in by_name.items() for axis in dims}
    if len(whole) != 1 or axes.mask not in by_name or axes.mask not in {s.name for s in largest.inputs}:
        raise ValueError(f"mask {axes.mask}")
    return axes


def signature_at(largest: Signature, inputs: Json, outputs: Json) -> Signature:
    """Return the signature at further shapes, which a file from elsewhere declares.

    Args:
        inputs, outputs: Name -> shape, of every input and output.

    Raises:
        ValueError: a name or a rank is not the model's, a size is not a positive number (of an output also
            not the -1 of the largest), or the inputs have more elements than the largest.
        AttributeError, TypeError: it is not of this form.
    """
    for specs, shapes in zip(largest, (inputs, outputs), strict=True):
        if set(shapes) != {spec.name for spec in specs}:
            raise ValueError(f"names {', '.join(map(str, shapes))}")
        for spec in specs:
            sizes = shapes[spec.name]
            same_rank = isinstance(sizes, list | tuple) and len(sizes) == len(spec.shape)
            if not same_rank or not all(
                type(size) is int and (size == declared or (size > 0 and declared != 0))
                for size, declared in zip(sizes, spec.shape, strict=True)
            ):
                raise ValueError(f"{spec.name} {sizes}")
    further = Signature(with_shapes(largest.inputs, inputs), with_shapes(largest.outputs, outputs))
    if elements(further.inputs) > elements(largest.inputs):
        raise ValueError(f"{shapes_text(further.inputs)} is larger than {shapes_text(largest.inputs)}")
    return further


def elements(specs: Sequence[TensorSpec]) -> int:
    """Return the number of elements of all arrays, by which shapes are ordered."""
    return sum(math.prod(spec.shape) for spec in specs)


def shapes_text(specs: Sequence[TensorSpec]) -> str:
    """Return shapes as text, e.g. ``image=1x3x320x320``."""
    return ", ".join(f"{spec.name}={'x'.join(map(str, spec.shape))}" for spec in specs)


def _key(specs: Sequence[TensorSpec]) -> Key:
    return tuple(spec.shape for spec in specs)


class ShapesRunner:
    """One model at several shapes.

    Attributes:
        runs: Shapes of the inputs -> number of runs at them, of the further shapes.
    """

    def __init__(
        self,
        largest: Signature,
        runner: Runner,
        further: Sequence[FurtherShape],
        text: TokenAxes | None,
        open_further: Callable[[FurtherShape], Runner],
    ) -> None:
        self.device, self.precision = runner.device, runner.precision
        self.stands_in_for = str(getattr(runner, "stands_in_for", ""))
        self.stands_in_by = str(getattr(runner, "stands_in_by", ""))
        self._signature, self._largest, self._text = largest, runner, text
        self._further = {_key(part.signature.inputs): part for part in further}
        self.runs: dict[Key, int] = dict.fromkeys(self._further, 0)
        self._open, self._opened = open_further, dict[Key, "Runner"]()

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run at the shapes of the feeds.

        A text in arrays of the largest shape runs at the shortest that holds its tokens; where nothing is a
        token, at the largest, so that a run of zeros takes as long as the longest text.
        """
        key = tuple(feeds[spec.name].shape for spec in self._signature.inputs)
        if key in self._further:
            return self._run_at(key, feeds)
        if self._text is not None and (needed := self._text.needed(feeds)):
            for key, part in self._further.items():
                length = {spec.name: spec for spec in part.signature.inputs}[self._text.mask].shape[-1]
                if needed <= length:
                    outputs = self._run_at(key, self._text.cut(feeds, length))
                    return self._text.put_back(outputs, length, self._signature.outputs)
        return self._largest.run(feeds)

    def load(self) -> None:
        """Load the shapes that are not loaded."""
        for key, part in self._further.items():
            if key not in self._opened:
                self._opened[key] = self._open(part)

    def _run_at(self, key: Key, feeds: Mapping[str, Array]) -> dict[str, Array]:
        if key not in self._opened:
            self._opened[key] = self._open(self._further[key])
        outputs = self._opened[key].run(feeds)
        declared = self._further[key].signature.outputs
        if any(not spec.fits(outputs[spec.name].shape) for spec in declared):
            raise wrong_answer(outputs, declared)
        self.runs[key] += 1
        return outputs

    def facts(self) -> dict[str, Json]:
        """Return those of the largest shape."""
        return self._largest.facts()

    def close(self) -> None:
        """Free all of them."""
        opened, self._opened = self._opened, {}
        for runner in (*opened.values(), self._largest):
            runner.close()
