from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.model.rewriting import dims_of
from edgekit.compiler.passes.unambiguous_forms import unambiguous_forms
from tests.compiler.passes.meaning import answers, assert_same, folded, model_of, ops, rewritten

pytestmark = pytest.mark.needs_ort

NO_AXES = "none = Constant <value = int64[0] {}> ()   last = Constant <value = int64[1] {-1}> ()"


def test_a_slope_of_one_dimension_gets_the_rank_of_x() -> None:
    """As many channels as columns: only its rank says which of the two it is for."""
    text = "g (float[1,4,5,4] x) => (float[1,4,5,4] y) { y = PRelu (x, s) }"
    model = model_of(text, s=[0.1, 0.2, 0.3, 0.4])
    assert rewritten(model, unambiguous_forms) == ["PRelu"]
    assert dims_of(model.graph[0].inputs[1]) == (1, 1, 1, 4)


@pytest.mark.parametrize("slope", [[[[0.1]], [[0.2]], [[0.3]], [[0.4]]], [0.1], 0.25])
def test_other_slopes_stay(slope: list[float]) -> None:
    model = model_of("g (float[1,4,5,4] x) => (float[1,4,5,4] y) { y = PRelu (x, s) }", s=slope)
    assert not unambiguous_forms(model)


def test_a_slope_for_a_row_of_its_rank_stays() -> None:
    model = model_of("g (float[4] x) => (float[4] y) { y = PRelu (x, s) }", s=[0.1, 0.2, 0.3, 0.4])
    assert not unambiguous_forms(model)


@pytest.mark.parametrize("attributes", ["beta=0.0", "alpha=0.5, beta=0.0"])
def test_a_hard_sigmoid_without_an_offset(attributes: str) -> None:
    model = model_of(f"g (float[2,3] x) => (float[2,3] y) {{ [h] y = HardSigmoid <{attributes}> (x) }}")
    assert rewritten(model, unambiguous_forms) == ["Mul", "Clip"]
    assert [node.name for node in model.graph] == ["h/alpha", "h"]


@pytest.mark.parametrize("attributes", ["", "<alpha=0.5>", "<beta=0.1>"])
def test_other_hard_sigmoids_stay(attributes: str) -> None:
    model = model_of(f"g (float[2,3] x) => (float[2,3] y) {{ y = HardSigmoid {attributes} (x) }}")
    assert rewritten(model, unambiguous_forms) == ["HardSigmoid"]


@pytest.mark.parametrize("axes", ["", ", none"])
@pytest.mark.parametrize(
    ("op", "becomes"),
    [
        ("L1", "Abs"),
        ("L2", "Abs"),
        ("LogSum", "Log"),
        ("LogSumExp", "Identity"),
        ("Max", "Identity"),
        ("Mean", "Identity"),
        ("Min", "Identity"),
        ("Prod", "Identity"),
        ("Sum", "Identity"),
        ("SumSquare", "Mul"),
    ],
)
@pytest.mark.needs_ort_after_1_23
def test_reductions_over_no_axes(op: str, becomes: str, axes: str) -> None:
    reduction = f"Reduce{op} <noop_with_empty_axes=1, keepdims=0> (x{axes})"
    model = folded(f"g (float[2,3] x) => (float[2,3] y) {{ {NO_AXES} y = {reduction} }}")
    assert rewritten(model, unambiguous_forms) == [becomes]


@pytest.mark.parametrize(
    ("inputs", "call", "shape"),
    [
        ("", "ReduceL1 <noop_with_empty_axes=1> (x, last)", "2,1"),
        ("", "ReduceL1 (x, none)", "1,1"),
        ("", "ReduceL1 <noop_with_empty_axes=0> (x)", "1,1"),
    ],
)
def test_reductions_over_axes_stay(inputs: str, call: str, shape: str) -> None:
    model = folded(f"g (float[2,3] x{inputs}) => (float[{shape}] y) {{ {NO_AXES} y = {call} }}")
    assert rewritten(model, unambiguous_forms) == ["ReduceL1"]


def test_axes_of_a_run_stay() -> None:
    text = "g (float[2,3] x, int64[1] a) => (float[2,1] y) { y = ReduceL1 <noop_with_empty_axes=1> (x, a) }"
    model = model_of(text)
    assert not unambiguous_forms(model)
    assert ops(model) == ["ReduceL1"]


def test_a_logarithm_of_integers_stays() -> None:
    model = model_of("g (int32[3] x) => (int32[3] y) { y = ReduceLogSum <noop_with_empty_axes=1> (x) }")
    assert not unambiguous_forms(model)


def test_ceil_mode_that_rounds_nothing_up_is_dropped() -> None:
    model = folded(
        """g (float[1,1,2,2] x) => (float[1,1,1,1] y) {
        y = MaxPool <kernel_shape = [1,1], strides = [2,2], ceil_mode = 1> (x) }"""
    )
    want = answers(model)
    assert unambiguous_forms(model)
    assert "ceil_mode" not in model.graph[0].attributes
    assert_same(want, model, np.inf)


def test_ceil_mode_that_rounds_up_stays() -> None:
    model = folded(
        """g (float[1,1,4,4] x) => (float[1,1,2,2] y) {
        y = MaxPool <kernel_shape = [3,3], strides = [2,2], ceil_mode = 1> (x) }"""
    )
    assert not unambiguous_forms(model)
