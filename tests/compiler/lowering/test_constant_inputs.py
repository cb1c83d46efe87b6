"""Inputs that must be constant."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.lowering.constant_inputs import constant_ints, constant_scalar
from edgekit.diagnostics import Inexpressible
from tests.compiler.lowering.node_inputs import computed, constant, held


def test_integers_of_rank_0_and_1() -> None:
    assert constant_ints(constant(1, -2), "axes") == (1, -2)
    assert constant_ints(held(np.array(3)), "axes") == (3,)
    assert constant_ints(constant(), "axes") == ()


def test_a_scalar_is_of_rank_0_or_1() -> None:
    assert constant_scalar(held(np.array(-1)), "k") == -1
    assert constant_scalar(constant(4), "k") == 4


def test_what_the_model_computes_is_refused_by_its_name() -> None:
    with pytest.raises(Inexpressible) as caught:
        constant_ints(computed(2), "pads")
    assert caught.value.why == "the model computes its pads; they must be constant"
    with pytest.raises(Inexpressible) as caught:
        constant_scalar(computed(), "k")
    assert caught.value.why == "the model computes its k; it must be constant"
