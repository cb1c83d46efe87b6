"""Whether an answer can be one: the model's names, dtypes and shapes, and no NaN where the model gives none.

Some models answer with infinities on purpose (a mask, a log of zero). Where an output holds what is no
number, the bundle's golden vectors say which kinds of it the reference gives: NaN, +inf, -inf. They are read
then, and not before. From then on that output may hold these kinds, as often as it likes, and no other.

NaN everywhere is refused all the same, unless a golden answer of the output is so: it is what broken
arithmetic gives, and there is nothing in it that anybody could use. Infinities everywhere are taken where the
model knows the kind: the log of zeros is such an answer, and says something.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.errors import EngineError
from edgekit.target.tensor_checks import not_finite, wrong_answer
from edgekit.tensors import Array, TensorSpec, is_finite

Golden = Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]


class Kinds(NamedTuple):
    """What an output holds besides numbers.

    Attributes:
        nan: NaN.
        high: +inf.
        low: -inf.
        nothing_else: One whole answer, with at least one value, is NaN.
    """

    nan: bool = False
    high: bool = False
    low: bool = False
    nothing_else: bool = False

    def allow(self, values: Array) -> bool:
        """Whether an answer holds no other kinds. One go over it, or two, each faster than ``isfinite``."""
        if not values.size:
            return True
        if not self.nan:  # the extremes of what holds NaN are NaN, which is on no side of anything
            return bool(
                (self.high or values.max() < math.inf)
                and (self.low or values.min() > -math.inf)
                and (not (self.high and self.low) or values.max() >= -math.inf)
            )
        top = np.fmax.reduce(values, axis=None)  # of what is not NaN; NaN where nothing else is there
        if np.isnan(top):
            return self.nothing_else
        return bool(
            (self.high or top < math.inf) and (self.low or np.fmin.reduce(values, axis=None) > -math.inf)
        )

    def __str__(self) -> str:
        named = (("NaN", self.nan), ("+inf", self.high), ("-inf", self.low))
        return " and ".join(name for name, there in named if there) or "finite numbers"


def kinds_of(answers: Sequence[Array]) -> Kinds:
    """The kinds that some answers of one output hold together."""
    nan = [np.isnan(values) for values in answers]
    return Kinds(
        any(there.any() for there in nan),
        any((values == math.inf).any() for values in answers),
        any((values == -math.inf).any() for values in answers),
        any(there.size > 0 and there.all() for there in nan),
    )


class OutputChecks:
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
        self._kinds: list[tuple[str, Kinds]] = []  # of the outputs that are not always finite

    def check(self, answers: Mapping[str, Array]) -> None:
        """On the path whose microseconds are counted.

        Raises:
            EngineError: these are not the model's outputs, or hold NaN or an infinity that it does not give.
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
        if self._kinds:
            for name, kinds in self._kinds:
                if not kinds.allow(answers[name]):
                    raise other_kinds(name, answers[name], kinds)

    def _doubt(self, name: str, values: Array) -> None:
        golden = self._golden() if callable(self._golden) else self._golden
        kinds = kinds_of([outputs[name] for _, outputs in golden])
        if not any(kinds):
            raise not_finite(name, values)
        self._finite = [other for other in self._finite if other != name]
        self._kinds = [*self._kinds, (name, kinds)]


def other_kinds(name: str, values: Array, allowed: Kinds) -> EngineError:
    """An output holds another kind of what is no number than its golden answers do."""
    kinds = kinds_of([values])
    only = "nothing but NaN" if kinds.nothing_else else str(kinds)
    return EngineError(
        f"output {name} holds {only}, its golden answers {allowed}"
        f"{' beside numbers' if kinds.nothing_else and allowed.nan else ''}, so this is no answer; "
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
