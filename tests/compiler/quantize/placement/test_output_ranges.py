"""A layer whose channels cannot share one scale does not store an output in int8."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.quantize.placement.qdq_placement import place
from tests.fixtures.graphs import NEAREST, Graph, seen
from tests.fixtures.quant_rules import FLOATING, RULES, SHAPE

pytestmark = pytest.mark.needs_ort

SCALES = np.array([1, 1000, 1, 1, 1000, 1], np.float32)


def unlike(g: Graph, x: str) -> str:
    """A Conv whose channels differ by SCALES."""
    weights = g.weights(6, 4, 1, 1) * SCALES.reshape(6, 1, 1, 1)
    return g("Conv", x, weights, g.weights(6) * SCALES)


BEHIND: dict[str, Callable[[Graph, str], str]] = {
    "nothing": lambda g, x: x,
    "an activation": lambda g, x: g("LeakyRelu", x),
    "a gate": lambda g, x: g("Mul", x, np.array(0.5, np.float32)),
    "Reshape, Transpose": lambda g, x: g("Transpose", g("Reshape", x, np.array([1, 6, -1])), perm=[0, 2, 1]),
    "Concat": lambda g, x: g("Concat", x, g.conv("x", 2, 4), axis=1),
}


@pytest.mark.parametrize("behind", BEHIND.values(), ids=BEHIND.keys())
@pytest.mark.parametrize("outputs", [False, True])
def test_it_stays_float_whatever_is_behind_it(
    behind: Callable[[Graph, str], str], outputs: bool, tmp_path: Path
) -> None:
    g = Graph({"x": SHAPE})
    first = g.conv("x", 4, 4)
    last = unlike(g, g("Relu", first))
    model = g.model(tmp_path, behind(g, last))
    plan = place(model, replace(RULES, outputs=outputs), seen(model), NEAREST)
    assert first in plan.nodes
    assert last not in plan.nodes
    assert last not in plan.activations


def test_channels_of_one_size_are_stored(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    last = g.conv("x", 6, 4)
    model = g.model(tmp_path, last)
    assert place(model, RULES, seen(model), NEAREST).nodes == {last}


def test_a_kernel_that_writes_floats_stays(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    last = unlike(g, "x")
    model = g.model(tmp_path, last)
    assert place(model, FLOATING, seen(model), NEAREST).nodes == {last}


def test_a_product_averages_the_noise(tmp_path: Path) -> None:
    g = Graph({"x": SHAPE})
    middle = unlike(g, "x")
    last = g.conv(middle, 6, 6)
    model = g.model(tmp_path, last)
    assert middle in place(model, RULES, seen(model), NEAREST).nodes


def test_chips_without_floats_keep_it(tmp_path: Path) -> None:
    """The variant is rejected by its test."""
    g = Graph({"x": SHAPE})
    last = unlike(g, "x")
    model = g.model(tmp_path, last)
    assert place(model, replace(RULES, integers=True), seen(model), NEAREST).nodes == {last}


def test_scores_of_a_fixed_scale_are_stored(tmp_path: Path) -> None:
    """Classes that are in no sample have scores near 0."""
    g = Graph({"x": SHAPE})
    last = g("Conv", "x", g.weights(6, 4, 1, 1), np.array([0, -9, 0, 0, -9, 0], np.float32))
    scores = g("Sigmoid", last)
    model = g.model(tmp_path, scores)
    assert scores in place(model, replace(RULES, outputs=True), seen(model), NEAREST).nodes
