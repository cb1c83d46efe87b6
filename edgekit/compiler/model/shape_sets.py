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
    several = [name for name, given in shapes.items() if is_several(given)]
    return [{name: each[name] for name in several} for each in _in_parallel(shapes)[:-1]]


def is_several(shape: Any) -> bool:
    """Return whether an input is given several shapes, and not one."""
    return any(isinstance(each, list | tuple) for each in shape)


def _in_parallel(shapes: Mapping[str, Any]) -> list[dict[str, tuple[int, ...]]]:
    counts = {name: len(given) for name, given in shapes.items() if is_several(given)}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{name or 'the image'} {count}" for name, count in counts.items())
        raise UsageError(
            f"--shape: inputs have different numbers of shapes ({told}); give each as many, or one"
        )
    found = []
    for k in range(next(iter(counts.values()), 1)):
        at = {name: given[k] if name in counts else given for name, given in shapes.items()}
        for name, shape in at.items():
            if not isinstance(shape, list | tuple) or not all(isinstance(d, int) for d in shape):
                raise UsageError(
                    f"shape {k + 1} of {name or 'the image'} is {shape!r}; it must be whole numbers"
                )
        found.append({name: tuple(shape) for name, shape in at.items()})
    return sorted(found, key=lambda at: sum(map(math.prod, at.values())))
