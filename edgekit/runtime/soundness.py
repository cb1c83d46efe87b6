"""Whether an answer can be one: the model's names, dtypes and shapes, and no NaN where the model gives none.

Some models answer with infinities on purpose (a mask, a log of zero). Where an output holds one, the bundle's
golden vectors say whether the reference does so too; they are read then, and not before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgekit.errors import EngineError
from edgekit.runtime.feeds import wrong_answer
from edgekit.target import Array, TensorSpec

Golden = Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]

SQUARED_LIMIT = 10_000
"""Values up to which the sum of squares tells: 0.7 us for 6 values, 0.9 us for 1000, where isfinite().all()
takes 1.7 and 2.1. Beyond, a BLAS may wake its threads, to take 29 us instead of 35 for 300,000 values."""


def is_finite(values: Array) -> bool:
    """Whether no value of a float array is NaN or infinite."""
    if values.size <= SQUARED_LIMIT and math.isfinite(np.vdot(values, values)):
        return True
    return bool(np.isfinite(values).all())  # squares may overflow where the values don't


class Soundness:
    """Checks the answers of one bundle's variants.

    Args:
        outputs: What the model gives.
        golden: Feeds and the reference's outputs, or who reads them when they are asked for.
    """

    def __init__(self, outputs: Sequence[TensorSpec], golden: Golden | Callable[[], Golden]) -> None:
        self._outputs = outputs
        self._golden = golden
        self._gives = [(spec.name, np.dtype(spec.dtype), spec.shape, spec.fits) for spec in outputs]
        self._finite = [name for name, dtype, _, _ in self._gives if dtype.kind == "f"]

    def check(self, answers: Mapping[str, Array]) -> None:
        """On the path whose microseconds are counted.

        Raises:
            EngineError: these are not the model's outputs, or hold NaN where the model's are finite.
            KeyError: an output is missing.
        """
        if len(answers) != len(self._gives):
            raise wrong_answer(answers, self._outputs)
        for name, dtype, shape, fits in self._gives:
            answer = answers[name]
            if answer.dtype != dtype or (answer.shape != shape and not fits(answer.shape)):
                raise wrong_answer(answers, self._outputs)
        for name in self._finite:
            if not is_finite(answers[name]):
                self._doubt(name, answers[name])

    def _doubt(self, name: str, values: Array) -> None:
        golden = self._golden() if callable(self._golden) else self._golden
        if all(is_finite(outputs[name]) for _, outputs in golden):
            raise not_finite(name, values)
        self._finite = [other for other in self._finite if other != name]


def not_finite(name: str, values: Array) -> EngineError:
    """An output holds what is no number."""
    bad = int(values.size - np.isfinite(values).sum())
    return EngineError(
        f"{bad} of {values.size} values of output {name} are NaN or infinite, so there is no answer; "
        "the input or this variant's arithmetic is at fault: try another engine or precision"
    )


def doubtful(feeds: Mapping[str, Array]) -> list[str]:
    """What may be why no engine answers: a line for each input that holds what is no number."""
    floats = {name: values for name, values in feeds.items() if values.dtype.kind == "f"}
    return [
        f"input {name} holds NaN or infinities in {int(values.size - np.isfinite(values).sum())} of "
        f"{values.size} values, which may be why"
        for name, values in floats.items()
        if not is_finite(values)
    ]
