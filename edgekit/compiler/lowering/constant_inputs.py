"""Inputs of a node that must be constant for it to be lowered."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from edgekit.diagnostics import Inexpressible
from edgekit.tensor_spec import Array


class NodeInput(Protocol):
    """Handle of a target for a node's input: its shape, and its array if it is constant."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Static shape, in ONNX's order of axes."""

    @property
    def const(self) -> Array | None:
        """Array of a constant in ONNX's order of axes; None if the model computes the value."""


def constant_ints(given: NodeInput, name: str) -> tuple[int, ...]:
    """Return the integers of a constant input of rank 0 or 1.

    Args:
        given: The input.
        name: Name in ONNX, for the error message.

    Raises:
        Inexpressible: the model computes it.
    """
    if given.const is None:
        raise Inexpressible(f"the model computes its {name}; they must be constant")
    return tuple(int(n) for n in np.atleast_1d(given.const).ravel())


def constant_scalar(given: NodeInput, name: str) -> int:
    """Return the integer of a constant input with one element.

    Raises:
        Inexpressible: the model computes it.
    """
    if given.const is None:
        raise Inexpressible(f"the model computes its {name}; it must be constant")
    return int(np.asarray(given.const).ravel()[0])
