"""Several shapes of a model's inputs, as a user gives them: ``--shape image=1x3x320x320,1x3x640x640``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from edgekit.errors import UsageError


def largest_shapes(shapes: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the largest of the shapes that an input has several of; errors as :func:`further_shapes`."""
    return _in_parallel(shapes)[-1]


def further_shapes(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    """Return the other shapes of the inputs that have several, smallest first.

    Args:
        shapes: Input -> its shape, or a sequence of shapes, of which the k-th of each input belong together.

    Raises:
        UsageError: inputs have different numbers of shapes, or a shape is not of whole numbers.
    """
    several = [name for name, shape in shapes.items() if is_several(shape)]
    return [{name: shape_set[name] for name in several} for shape_set in _in_parallel(shapes)[:-1]]


def is_several(shape: Any) -> bool:
    """Return whether an input is given several shapes, and not one."""
    return any(isinstance(element, list | tuple) for element in shape)


def _in_parallel(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    counts = {name: len(value) for name, value in shapes.items() if is_several(value)}
    if len(set(counts.values())) > 1:
        counts_text = ", ".join(f"{name or 'the image'} {count}" for name, count in counts.items())
        raise UsageError(
            f"--shape: inputs have different numbers of shapes ({counts_text}); give each as many, or one"
        )
    shape_sets = []
    for k in range(next(iter(counts.values()), 1)):
        shape_set = {name: value[k] if name in counts else value for name, value in shapes.items()}
        for name, shape in shape_set.items():
            if not isinstance(shape, list | tuple) or not all(isinstance(d, int) for d in shape):
                raise UsageError(
                    f"shape {k + 1} of {name or 'the image'} is {shape!r}; it must be whole numbers"
                )
        shape_sets.append({name: tuple(shape) for name, shape in shape_set.items()})
    return sorted(shape_sets, key=lambda shape_set: sum(map(math.prod, shape_set.values())))
