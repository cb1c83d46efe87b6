"""Several shapes of a model's inputs, as a user gives them: ``--shape image=1x3x320x320,1x3x640x640``.

A range of all sizes: ``--shape ids=1x1..512``, in Python ``(1, "1..512")``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgekit.errors import UsageError
from edgekit.system.formats.strict_json import brief
from edgekit.system.size_range import as_range, listed


def largest_shapes(shapes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return _in_parallel(shapes)[-1]


def further_shapes(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    """Return the other shapes of the inputs that have several, smallest first. Of a range they are those that
    are compiled.

    Args:
        shapes: Input -> its shape, or a sequence of shapes, of which the k-th of each input belong together,
            or a shape with a range.

    Raises:
        UsageError: inputs have different numbers of shapes or different ranges, or a shape is not of whole
            numbers.
    """
    several = [name for name, shape in shapes.items() if is_several(shape)]
    return [{name: shape_set[name] for name in several} for shape_set in _in_parallel(shapes)[:-1]]


def is_several(shape: Any) -> bool:
    """Return whether an input is given several shapes or a range, and not one."""
    return any(isinstance(element, list | tuple | str) for element in shape)


def range_of(shapes: Mapping[str, Any]) -> range | None:
    """Return the sizes of the range that inputs have; None without one.

    Raises:
        UsageError: a range is malformed, inputs have different ones or two, or others have several shapes.
    """
    texts = {name: [size for size in shape if isinstance(size, str)] for name, shape in shapes.items()}
    texts = {name: sizes for name, sizes in texts.items() if sizes}
    if not texts:
        return None
    sizes = [as_range(size) for ranges in texts.values() for size in ranges]
    if None in sizes:
        wrong = next(name for name, ranges in texts.items() if any(as_range(size) is None for size in ranges))
        raise UsageError(
            f"--shape: {wrong or 'the image'} has {brief(texts[wrong][0])}; a range is written 1..512"
        )
    several = [name for name, shape in shapes.items() if name not in texts and is_several(shape)]
    twice = [name for name, ranges in texts.items() if len(ranges) > 1]
    if several or twice or len(set(sizes)) > 1:
        first = next(iter(texts))
        example = listed([str(size) for size in shapes[first]])
        raise UsageError(
            "--shape: a range is one size, of one dimension of each input that has it; list shapes instead, "
            f"e.g. --shape {first}{'=' if first else ''}{example}"
        )
    return sizes[0]


def at_size(shapes: Mapping[str, Any], size: int) -> dict[str, tuple[int, ...]]:
    return {
        name: tuple(size if isinstance(number, str) else number for number in shape)
        for name, shape in shapes.items()
    }


COMPILED_SIZES = 4


def compiled_sizes(sizes: range) -> list[int]:
    """Return the sizes of a range from which its form is derived: two near the ends, a prime and another one
    between. 1 is left out if more remain, because graphs at size 1 often have other nodes.

    >>> compiled_sizes(range(1, 513)), compiled_sizes(range(8, 13)), compiled_sizes(range(1, 4))
    ([2, 131, 257, 512], [8, 10, 11, 12], [1, 2, 3])

    Raises:
        UsageError: it has less than three sizes.
    """
    low, high = sizes[0], sizes[-1]
    if len(sizes) < COMPILED_SIZES - 1:
        raise UsageError(
            f"--shape: {low}..{high} is a range of {len(sizes)} sizes; list their shapes instead"
        )
    low += low == 1 and len(sizes) > COMPILED_SIZES
    middle = (low + high) // 2
    near = range((low + middle) // 2, high)
    between = next((size for size in near if _is_prime(size) and size not in (low, middle)), (low + 1))
    return sorted({low, between, middle, high})


def _is_prime(size: int) -> bool:
    return size > 1 and all(size % divisor for divisor in range(2, math.isqrt(size) + 1))


def _in_parallel(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    if (sizes := range_of(shapes)) is not None:
        return [_whole(at_size(shapes, size), "the shape") for size in compiled_sizes(sizes)]
    counts = {name: len(value) for name, value in shapes.items() if is_several(value)}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name or 'the image'} {count}" for name, count in counts.items())
        raise UsageError(
            f"--shape: inputs have different numbers of shapes ({counts_text}); give each as many, or one"
        )
    shape_sets = [
        _whole({n: value[k] if n in counts else value for n, value in shapes.items()}, f"shape {k + 1}")
        for k in range(next(iter(counts.values()), 1))
    ]
    return sorted(shape_sets, key=lambda shape_set: sum(map(math.prod, shape_set.values())))


def _whole(shape_set: Mapping[str, Any], label: str) -> dict[str, tuple[int, ...]]:
    for name, shape in shape_set.items():
        if not isinstance(shape, list | tuple) or not all(isinstance(d, int) for d in shape):
            raise UsageError(f"{label} of {name or 'the image'} is {shape!r}; it must be whole numbers")
    return {name: tuple(shape) for name, shape in shape_set.items()}
