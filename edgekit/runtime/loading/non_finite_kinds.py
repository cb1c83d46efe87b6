"""The kinds of non-finite values, NaN, +inf and -inf, that an output holds or may hold.

Only sessions of models whose outputs are not finite load this.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edgekit.errors import NonFiniteOutputError
from edgekit.tensor_spec import Array


class NonFiniteKinds(NamedTuple):
    """The kinds of non-finite values in an output.

    Attributes:
        high: +inf.
        low: -inf.
        all_nan: One whole non-empty output is NaN.
    """

    nan: bool = False
    high: bool = False
    low: bool = False
    all_nan: bool = False

    def allow(self, values: Array) -> bool:
        """Return whether an output holds only these kinds. This takes one or two passes over it, each faster
        than ``isfinite``."""
        if not values.size:
            return True
        if not self.nan:  # max and min of an array with NaN are NaN, and every comparison with NaN is False
            return bool(
                (self.high or values.max() < math.inf)
                and (self.low or values.min() > -math.inf)
                and (not (self.high and self.low) or values.max() >= -math.inf)
            )
        top = np.fmax.reduce(values, axis=None)  # ignores NaN; NaN if all are
        if np.isnan(top):
            return self.all_nan
        return bool(
            (self.high or top < math.inf) and (self.low or np.fmin.reduce(values, axis=None) > -math.inf)
        )

    def __str__(self) -> str:
        named = (("NaN", self.nan), ("+inf", self.high), ("-inf", self.low))
        return " and ".join(name for name, is_present in named if is_present) or "finite numbers"


def kinds_of(outputs: Sequence[Array]) -> NonFiniteKinds:
    """Return the kinds that several arrays of one output hold together."""
    nan = [np.isnan(values) for values in outputs]
    return NonFiniteKinds(
        any(mask.any() for mask in nan),
        any((values == math.inf).any() for values in outputs),
        any((values == -math.inf).any() for values in outputs),
        any(mask.size > 0 and mask.all() for mask in nan),
    )


def unexpected_kinds(name: str, values: Array, allowed: NonFiniteKinds) -> NonFiniteOutputError:
    """Return the error for non-finite values of a kind that an output's golden outputs lack."""
    kinds = kinds_of([values])
    only = "nothing but NaN" if kinds.all_nan else str(kinds)
    return NonFiniteOutputError(
        f"output {name} contains {only}, but its golden outputs "
        f"{allowed}{' among numbers' if kinds.all_nan and allowed.nan else ''}, so it is invalid; the input "
        "or this variant's arithmetic is at fault: try another engine or precision"
    )
