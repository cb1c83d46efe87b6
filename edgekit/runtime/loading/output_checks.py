"""Check a variant's outputs: the model's names, dtypes and shapes, and no unexpected NaN or infinity.

Some models output infinities on purpose (a mask, a log of zero). When an output holds non-finite values, the
bundle's golden vectors show which kinds the reference outputs: NaN, +inf, -inf. They are read then, not
before. From then on that output may hold these kinds, any number of times, and no others. A model that
outputs NaN may output infinities too: a log is NaN below zero and -inf at zero.

All-NaN is refused even so, unless a golden output is all NaN: broken arithmetic looks like that, and the
result is useless. All-infinite is accepted if the model knows the kind: the log of zeros is meaningful.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edgekit.errors import NonFiniteOutputError
from edgekit.target.shape_range import RangeShapes
from edgekit.target.tensor_checks import not_finite, wrong_answer
from edgekit.tensor_spec import Array, Signature, TensorSpec, is_finite


class NonFiniteKinds(NamedTuple):
    """The kinds of non-finite values in an output.

    Attributes:
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


Golden = Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]]


class OutputChecks:
    """Checks the outputs of one bundle's variants.

    Args:
        golden: Feeds and reference outputs, or a function that reads them on first use.
        shapes: The model's shapes if it has several. Outputs may be those of any: the runner compares them
            with the shape that it ran.
    """

    def __init__(
        self,
        outputs: Sequence[TensorSpec],
        golden: Golden | Callable[[], Golden],
        shapes: Sequence[Signature] = (),
    ) -> None:
        self._outputs = outputs
        self._golden = golden
        self._shapes = shapes
        self._expected = [(spec.name, np.dtype(spec.dtype), spec.shape, spec.fits) for spec in outputs]
        self._finite = [name for name, dtype, _, _ in self._expected if dtype.kind == "f"]
        self._kinds: list[tuple[str, NonFiniteKinds]] = []  # of the outputs that may be non-finite

    def check(self, outputs: Mapping[str, Array]) -> None:
        """Check a run's outputs. The check runs in every request, so it is kept cheap.

        Raises:
            EngineError: names, dtypes or shapes differ from the model's, or a NaN or infinity is unexpected.
            KeyError: an output is missing.
        """
        if len(outputs) != len(self._expected):
            raise wrong_answer(outputs, self._outputs)
        for name, dtype, shape, fits in self._expected:
            output = outputs[name]
            if output.dtype != dtype or (output.shape != shape and not fits(output.shape)):
                if output.dtype == dtype and self._fit_another(outputs):
                    break
                raise wrong_answer(outputs, self._outputs)
        for name in self._finite:
            if not is_finite(outputs[name]):
                self._check_non_finite(name, outputs[name])
        if self._kinds:
            for name, kinds in self._kinds:
                if not kinds.allow(outputs[name]):
                    raise unexpected_kinds(name, outputs[name], kinds)

    def _fit_another(self, outputs: Mapping[str, Array]) -> bool:
        if not isinstance(self._shapes, RangeShapes):
            return any(_fit(outputs, specs) for _, specs in self._shapes[:-1])
        signature = self._shapes.range.of_outputs({name: array.shape for name, array in outputs.items()})
        return signature is not None and _fit(outputs, signature.outputs)

    def _check_non_finite(self, name: str, values: Array) -> None:
        golden = self._golden() if callable(self._golden) else self._golden
        kinds = kinds_of([outputs[name] for _, outputs in golden])
        if not any(kinds):
            raise not_finite(name, values)
        if kinds.nan:
            kinds = kinds._replace(high=True, low=True)
        self._finite = [other for other in self._finite if other != name]
        self._kinds = [*self._kinds, (name, kinds)]


def _fit(outputs: Mapping[str, Array], specs: Sequence[TensorSpec]) -> bool:
    return all(
        outputs[spec.name].dtype == spec.dtype and spec.fits(outputs[spec.name].shape) for spec in specs
    )


def error_of_inputs(name: str, problem: Exception, feeds: Mapping[str, Array]) -> NonFiniteOutputError | None:
    """Return the error of a request whose outputs are not finite because its inputs are not, or None if that
    is not the problem. No variant is at fault: another one would compute NaN too.
    """
    if not isinstance(problem, NonFiniteOutputError) or not (lines := non_finite_inputs(feeds)):
        return None
    finding = str(problem).partition(";")[0]
    advice = "check what prepares the inputs"
    return NonFiniteOutputError("\n  ".join([f"{name}: {finding}", *lines, advice]))


def non_finite_inputs(feeds: Mapping[str, Array]) -> list[str]:
    """Return one line for each input that contains NaN or infinities."""
    floats = {name: values for name, values in feeds.items() if values.dtype.kind == "f"}
    return [
        f"input {name} contains NaN or infinities in {int(values.size - np.isfinite(values).sum())} of "
        f"{values.size} values"
        for name, values in floats.items()
        if not is_finite(values)
    ]
