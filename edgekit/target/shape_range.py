"""A model whose files take every size of a range: ``extensions.range`` of a bundle, the option ``range`` of a
variant.

    {"sizes": [1, 512], "inputs": {"ids": [1, [1, 0]]}, "outputs": {"tokens": [1, [1, 0], 384]}}

A dimension is a number, or [factor, offset]: factor * size + offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from edgekit.tensor_spec import Json, Signature, TensorSpec, with_shapes

OPTION = "range"
SIZES_LIMIT = 1 << 31
KEPT = 256
"""Shapes for which a range keeps the signature."""

Line = tuple[int, int]
"""A dimension by the size n: factor * n + offset."""


def line(sizes: Sequence[int], values: Sequence[int]) -> Line | None:
    """Return the line on which values lie; None if they are not on one with a whole factor.

    >>> line((2, 5, 8), (5, 11, 17)), line((2, 5, 8), (2, 2, 2)), line((2, 5, 8), (1, 2, 4))
    ((2, 1), (0, 2), None)
    """
    factor, rest = divmod(int(values[-1]) - int(values[0]), sizes[-1] - sizes[0])
    offset = int(values[0]) - factor * sizes[0]
    on_it = all(factor * size + offset == int(value) for size, value in zip(sizes, values, strict=True))
    return (factor, offset) if not rest and on_it else None


class ShapeRange:
    """Inputs and outputs of a model at every size of a range.

    Args:
        inputs: Input -> a line for each dimension.
        outputs: The same for outputs; (0, -1) if the data determine the dimension.
    """

    def __init__(
        self,
        sizes: range,
        inputs: Mapping[str, tuple[Line, ...]],
        outputs: Mapping[str, tuple[Line, ...]],
        largest: Signature,
    ) -> None:
        self.sizes, self.inputs, self.outputs, self.largest = sizes, inputs, outputs, largest
        self._known: dict[Any, Signature] = {}

    def at(self, size: int) -> Signature:
        """Return inputs and outputs at a size."""
        return Signature(
            *(
                with_shapes(specs, {s.name: [f * size + o for f, o in lines[s.name]] for s in specs})
                for specs, lines in zip(self.largest, (self.inputs, self.outputs), strict=True)
            )
        )

    def of_inputs(self, shapes: Mapping[str, Sequence[int]]) -> Signature | None:
        """Return inputs and outputs at the size that inputs of these shapes have; None if they fit none."""
        return self._of_all(0, self.inputs, shapes)

    def of_outputs(self, shapes: Mapping[str, Sequence[int]]) -> Signature | None:
        """Return inputs and outputs at the size that outputs of these shapes have; None if they fit none."""
        return self._of_all(1, self.outputs, shapes)

    def takes(self, name: str, shape: Sequence[int]) -> bool:
        """Return whether an input has this shape at one of the sizes."""
        signature = self._of({name: self.inputs[name]}, {name: shape})
        return signature is not None and _have([s for s in signature.inputs if s.name == name], {name: shape})

    def _of_all(
        self, side: int, lines: Mapping[str, tuple[Line, ...]], shapes: Mapping[str, Sequence[int]]
    ) -> Signature | None:
        """Return the signature whose inputs (side 0) or outputs (1) fit; kept, because every run asks."""
        key = (side, *[tuple(shapes[name]) for name in lines])
        if (signature := self._known.get(key)) is not None:
            return signature
        signature = self._of(lines, shapes)
        if signature is None or not _have(signature[side], shapes):
            return None
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[key] = signature
        return signature

    def _of(
        self, lines: Mapping[str, tuple[Line, ...]], shapes: Mapping[str, Sequence[int]]
    ) -> Signature | None:
        for name, dims in lines.items():
            for (factor, offset), actual in zip(dims, shapes[name], strict=False):
                if factor:
                    size, rest = divmod(actual - offset, factor)
                    return self.at(size) if not rest and size in self.sizes else None
        return self.largest

    def open(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return inputs or outputs with -1 for each dimension that depends on the size."""
        lines = {**self.inputs, **self.outputs}
        dims = {s.name: zip(lines[s.name], s.shape, strict=True) for s in specs}
        return with_shapes(specs, {n: [-1 if f else d for (f, _), d in pairs] for n, pairs in dims.items()})

    def text(self, name: str) -> str:
        """Return the shapes of an input, e.g. ``1x1..512``."""
        ends = zip(self.at(self.sizes[0]).inputs, self.largest.inputs, strict=True)
        low, high = next((low, high) for low, high in ends if low.name == name)
        dims = zip(low.shape, high.shape, strict=True)
        return "x".join(str(a) if a == b else f"{a}..{b}" for a, b in dims) or "scalar"

    def as_json(self) -> Json:
        """Return the range as the manifest has it."""
        sides = {
            side: {name: [[f, o] if f else o for f, o in dims] for name, dims in lines.items()}
            for side, lines in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return {"sizes": [self.sizes[0], self.sizes[-1]], **sides}


def _have(specs: Iterable[TensorSpec], shapes: Mapping[str, Sequence[int]]) -> bool:
    return all(spec.fits(tuple(shapes[spec.name])) for spec in specs)


def parse_range(table: Json, largest: Signature) -> ShapeRange:
    """Parse the form of :meth:`ShapeRange.as_json`.

    Raises:
        ValueError: it does not lead to the largest shape, or a dimension is below 1 at the smallest size.
        AttributeError, KeyError, TypeError: it is not of this form.
    """
    low, high = table["sizes"]
    if not all(type(size) is int for size in (low, high)) or not 0 < low < high < SIZES_LIMIT:
        raise ValueError(f"sizes {low} to {high}")
    inputs, outputs = (
        {name: tuple(map(_line, dims)) for name, dims in table[side].items()} for side in Signature._fields
    )
    for specs, lines in zip(largest, (inputs, outputs), strict=True):
        if set(lines) != {spec.name for spec in specs}:
            raise ValueError(f"names {', '.join(map(str, lines))}")
    parsed = ShapeRange(range(low, high + 1), inputs, outputs, largest)
    if not any(factor for dims in parsed.inputs.values() for factor, _ in dims):
        raise ValueError("no input depends on the size")
    if parsed.at(high) != largest:
        raise ValueError(f"at {high} the shapes are not the model's")
    for spec in (*parsed.at(low).inputs, *parsed.at(low).outputs):
        dims = inputs.get(spec.name) or outputs[spec.name]
        if any(factor and size < 1 for (factor, _), size in zip(dims, spec.shape, strict=True)):
            raise ValueError(f"{spec} at {low}")
    return parsed


def _line(dimension: Json) -> Line:
    factor, offset = dimension if isinstance(dimension, list) else (0, dimension)
    if type(factor) is not int or type(offset) is not int or not (0 <= factor < SIZES_LIMIT > abs(offset)):
        raise ValueError(f"dimension {dimension!r}")
    return factor, offset


class RangeShapes(tuple[Signature, ...]):
    """Shapes of a bundle with a range: those that it has golden vectors for, the largest last, and all others
    between.
    """

    range: ShapeRange

    def __new__(cls, shapes: Iterable[Signature], of_range: ShapeRange) -> RangeShapes:
        self = super().__new__(cls, shapes)
        self.range = of_range
        return self


def shape_of(shapes: Sequence[Signature], inputs: Mapping[str, Sequence[int]]) -> Signature | None:
    """Return the one of a model's shapes that inputs of these shapes have; None if it is none of them."""
    if isinstance(shapes, RangeShapes):
        return shapes.range.of_inputs(inputs)
    for signature in reversed(shapes):
        if all(tuple(inputs[spec.name]) == spec.shape for spec in signature.inputs):
            return signature
    return None


def takes(shapes: Sequence[Signature], name: str, shape: Sequence[int]) -> bool:
    """Return whether an input has this shape at one of the model's shapes."""
    if isinstance(shapes, RangeShapes):
        return shapes.range.takes(name, shape)
    return any((name, tuple(shape)) == (s.name, s.shape) for inputs, _ in shapes for s in inputs)


def texts_of(shapes: Sequence[Signature], name: str) -> list[str]:
    """Return the shapes that an input may have: ``1x64`` at each shape, ``1x1..512`` of a range."""
    if isinstance(shapes, RangeShapes):
        return [shapes.range.text(name)]
    specs = (spec for inputs, _ in shapes for spec in inputs if spec.name == name)
    return list(dict.fromkeys("x".join(map(str, spec.shape)) or "scalar" for spec in specs))


def together(shapes: Sequence[Signature]) -> list[str]:
    """Return the shapes that inputs have together: ``ids=1x64, mask=1x64`` for each, or for the range."""
    sets = [shapes] if isinstance(shapes, RangeShapes) else [[signature] for signature in shapes]
    return [
        ", ".join(f"{spec.name}={texts_of(row, spec.name)[0]}" for spec in row[-1].inputs) for row in sets
    ]
