"""Tracing of the constants of an exported graph to the module's parameters.

Every position of the exported copy's parameters and buffers has a different number: consecutive float32
patterns. An exporter and the passes only move them (Transpose, Reshape, a Split of joint weights), so a
constant's own numbers identify their origin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array

FIRST = 0x0080_0000
"""The pattern of the least normal float32: what is less may be flushed to zero."""
LAST = 0x3F00_0000
"""That of 0.5: numbers of a billion places, and none that is a constant of somebody's formula."""


@dataclass(frozen=True)
class Place:
    """Origin of an axis of a constant.

    Attributes:
        name: Name of the parameter or buffer in ``state_dict``.
        axis: Axis of the parameter or buffer.
        positions: Positions along that axis, int64, for each index of the constant's axis.
    """

    name: str
    axis: int
    positions: Array


class ParameterMarks:
    """Marks in the float32 parameters and buffers of a module, set in place.

    Args:
        module: Copy of the module; its numbers are overwritten.
    """

    def __init__(self, module: Any) -> None:
        import torch

        self._names: list[str] = []
        self._shapes: list[tuple[int, ...]] = []
        self._begins = [FIRST]
        seen: set[int] = set()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.dtype != torch.float32 or not tensor.numel() or id(tensor) in seen:
                continue
            begin, end = self._begins[-1], self._begins[-1] + tensor.numel()
            if end > LAST:
                break
            seen.add(id(tensor))
            numbers = np.arange(begin, end, dtype=np.int32).view(np.float32)
            tensor.data.copy_(torch.from_numpy(numbers.reshape(tuple(tensor.shape))))
            self._names.append(name)
            self._shapes.append(tuple(tensor.shape))
            self._begins.append(end)

    def place(self, constant: Array, axis: int) -> Place | None:
        """Return the origin of a constant's axis; None if it is not one axis of one parameter."""
        if constant.dtype != np.float32 or not constant.size:
            return None
        marks = np.ascontiguousarray(constant).view(np.int32).astype(np.int64)
        owners = np.searchsorted(self._begins, marks, side="right") - 1
        owner = int(owners.flat[0])
        if not 0 <= owner < len(self._names) or (owners != owner).any():
            return None
        coordinates = np.unravel_index(marks - self._begins[owner], self._shapes[owner])
        for number, along in enumerate(coordinates):
            rows = np.moveaxis(along, axis, 0).reshape(constant.shape[axis], -1)
            positions = rows[:, 0]
            if (rows == positions[:, None]).all() and len(np.unique(positions)) == len(positions):
                return Place(self._names[owner], number, positions)
        return None
