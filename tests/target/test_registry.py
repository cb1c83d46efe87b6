"""Targets by name."""

from __future__ import annotations

import pytest

from edgekit import tensors
from edgekit.errors import ProfileError
from edgekit.target import registry


def test_an_unknown_target_is_refused_with_the_known_ones() -> None:
    for find in (registry.compiler, registry.engine, registry.node_reports):
        with pytest.raises(ProfileError, match=r"^unknown target 'tensorflow'; available: "):
            find("tensorflow")


def test_one_dimension_may_be_as_the_data_give() -> None:
    boxes = tensors.TensorSpec("boxes", "int64", (-1, 3))
    assert (str(boxes), boxes.is_open) == ("boxes int64 ?x3", True)
    assert [boxes.fits(shape) for shape in ((0, 3), (7, 3), (7, 4), (3,), (1, 7, 3))] == [
        True, True, False, False, False,
    ]  # fmt: skip
    fixed = tensors.TensorSpec("x", "float32", (2, 3))
    assert (fixed.is_open, fixed.fits((2, 3)), fixed.fits((1, 3))) == (False, True, False)
