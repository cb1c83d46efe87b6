"""Run a model whose file takes every size of a range (shape_range.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgekit.errors import EngineError, reason_of
from edgekit.target.shape_range import OPTION, ShapeRange, parse_range
from edgekit.target.shapes import TokenAxes, token_axes
from edgekit.target.tensor_checks import wrong_answer
from edgekit.tensor_spec import Array, Json, Signature, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from edgekit.target.contract import Engine, Runner


class RangeRunner:
    """A model whose file takes every size of a range. It checks that the outputs have the inputs' size."""

    def __init__(self, runner: Runner, of_range: ShapeRange, text: TokenAxes | None = None) -> None:
        self.device, self.precision = runner.device, runner.precision
        self.stands_in_for = str(getattr(runner, "stands_in_for", ""))
        self.stands_in_by = str(getattr(runner, "stands_in_by", ""))
        self.facts, self.close = runner.facts, runner.close
        self._runner, self._range, self._text = runner, of_range, text

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run at the size of the feeds. A text in arrays of the largest size runs at its number of tokens;
        where nothing is a token, at the largest, so that a run of zeros takes as long as the longest text.

        Raises:
            EngineError: the engine failed, or its outputs are of another size.
        """
        whole = self._range.sizes[-1]
        if self._text is not None and feeds[self._text.mask].shape[-1] == whole:
            length = max(self._text.needed(feeds) or whole, self._range.sizes[0])
            if length < whole:
                outputs = self._run(self._text.cut(feeds, length))
                return self._text.put_back(outputs, length, self._range.largest.outputs)
        return self._run(feeds)

    def _run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        shapes = {name: array.shape for name, array in feeds.items()}
        signature = self._range.of_inputs(shapes)
        if signature is None:
            texts = ", ".join(f"{name}={self._range.text(name)}" for name in self._range.inputs)
            raise EngineError(f"inputs of shapes {shapes} are not in the range {texts}")
        outputs = self._runner.run(feeds)
        if any(not spec.fits(outputs[spec.name].shape) for spec in signature.outputs):
            raise wrong_answer(outputs, signature.outputs)
        return outputs


def open_runner(
    engine: Engine,
    files: Mapping[str, Path],
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, Json],
    threads: int | None,
) -> RangeRunner:
    """Load an artifact with a range. Arguments and errors as ``Engine.open_runner``.

    Raises:
        EngineError: the option is malformed.
    """
    largest = Signature(tuple(inputs), tuple(outputs))
    try:
        table = options[OPTION]
        of_range = parse_range(table, largest)
        text = token_axes(table["text"], largest) if table.get("text") else None
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise EngineError(f"the range of a variant is malformed: {reason_of(problem)}") from None
    opened = engine.open_runner(files, of_range.open(inputs), of_range.open(outputs), options, threads)
    return RangeRunner(opened, of_range, text)
