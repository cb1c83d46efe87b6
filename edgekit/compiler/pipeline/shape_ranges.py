"""``--shape ids=1x1..512``: the sizes of a range that are tested, its form, and its refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from edgekit.compiler.model.shape_sets import at_size, compiled_sizes, is_several, range_of
from edgekit.errors import EngineError, UsageError
from edgekit.processing.card import Card
from edgekit.processing.inputs.text import TextInput
from edgekit.system.size_range import listed, range_text
from edgekit.target.build_target import BuildTarget
from edgekit.target.shape_range import Line, ShapeRange, line
from edgekit.tensor_spec import Signature, TensorSpec

RANDOM_SIZES = 2


def proof_sizes(sizes: range) -> list[int]:
    """Return the sizes at which variants are run, besides the largest, ascending: the smallest, random ones
    that are not compiled, and a compiled one, at which the time is compared.

    >>> proof_sizes(range(1, 513))
    [1, 15, 212, 257]
    """
    compiled = compiled_sizes(sizes)
    chosen = Random(range_text(sizes)).sample(sizes[1:-1], min(len(sizes) - 2, 8 * RANDOM_SIZES))
    new = [size for size in chosen if size not in compiled][:RANDOM_SIZES]
    return sorted({sizes[0], compiled[-2], *new})


def sized(shapes: Mapping[str, Any], size: int) -> dict[str, tuple[int, ...]]:
    return at_size({name: shape for name, shape in shapes.items() if is_several(shape)}, size)


def text_parts(card: Card | None) -> list[TextInput]:
    return [entry for entry in card.inputs.values() if isinstance(entry, TextInput)] if card else []


def ranged_text(card: Card | None, shapes: Mapping[str, Any]) -> list[TextInput]:
    """Return the parts of a text with a mask if one of them has the range: all have it then."""
    parts = text_parts(card)
    ranged = range_of(shapes) is not None and any(is_several(shapes.get(part.name, ())) for part in parts)
    return parts if ranged and any(part.part == "mask" for part in parts) else []


def refuse_without_range(targets: Sequence[BuildTarget], shapes: Mapping[str, Any]) -> None:
    """Raise UsageError if a target takes listed shapes only."""
    without = [target.name for target in targets if target.info.compile_range is None]
    if without:
        several = {name: listed(list(map(str, shape))) for name, shape in shapes.items() if is_several(shape)}
        options = " ".join(f"--shape {name}{'=' if name else ''}{text}" for name, text in several.items())
        raise UsageError(
            f"--shape: {', '.join(dict.fromkeys(without))} cannot have a range; list shapes instead, "
            f"e.g. {options}"
        )


def range_through(sizes: range, signatures: Mapping[int, Signature]) -> ShapeRange:
    """Return the range on which a model's inputs and outputs lie.

    Raises:
        UsageError: a dimension of one does not follow from the size.
    """
    ordered = sorted(signatures)
    sides = []
    for side in range(2):
        lines = {}
        for specs in zip(*(signatures[size][side] for size in ordered), strict=True):
            lines[specs[0].name] = tuple(_line(ordered, specs, axis) for axis in range(len(specs[0].shape)))
        sides.append(lines)
    return ShapeRange(sizes, sides[0], sides[1], signatures[sizes[-1]])


def _line(sizes: Sequence[int], specs: Sequence[TensorSpec], axis: int) -> Line:
    values = [spec.shape[axis] for spec in specs]
    dimension = line(sizes, values)
    if dimension is None or dimension[0] < 0:
        pairs = ", ".join(f"{value} at {size}" for size, value in zip(sizes, values, strict=True))
        raise UsageError(
            f"--shape: dimension {axis} of {specs[0].name} does not grow evenly with the range {sizes[0]}.."
            f"{sizes[-1]} ({pairs}); list the shapes instead"
        )
    return dimension


def refusal(of_range: ShapeRange, problem: EngineError) -> EngineError:
    """Return the error for a target that cannot take all sizes, with shapes to list."""
    ranged = [name for name, lines in of_range.inputs.items() if (1, 0) in lines]
    options = " ".join(f"--shape {name}={listed(of_range.text(name).split('x'))}" for name in ranged)
    return EngineError(
        f"it cannot take all sizes of {range_text(of_range.sizes)}: {problem}; list shapes instead: {options}"
    )
