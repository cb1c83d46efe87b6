"""Engines, and what stands in for those that a machine has not."""

from __future__ import annotations

import pytest

from edgekit import tensors
from edgekit.errors import ProfileError
from edgekit.target import registry
from tests.fixtures.fake_engines import Engines


def test_an_engine_that_is_there_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("tensorrt")
    monkeypatch.setattr(registry, "engine", engines)
    assert registry.available("tensorrt") is engines["tensorrt"]


def test_one_that_is_missing_is_stood_in_for(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = Engines("tensorrt", "ort")
    engines["tensorrt"].missing = engines["ort"].missing = True
    monkeypatch.setattr(registry, "engine", engines)
    assert registry.available("tensorrt") is registry.reference_executor("tensorrt")
    assert registry.available("ort") is engines["ort"]  # nothing stands in for it


@pytest.mark.needs_ort
def test_what_stands_in_says_so() -> None:
    executor = registry.reference_executor("tensorrt")
    assert executor is not None
    assert executor.engine_version().startswith("ONNX Runtime ")
    assert executor.engine_version().endswith(" for TensorRT")


def test_an_unknown_target_has_none() -> None:
    with pytest.raises(ProfileError, match=r"^unknown target 'tensorflow'; available: "):
        registry.reference_executor("tensorflow")


def test_one_dimension_may_be_as_the_data_give() -> None:
    boxes = tensors.TensorSpec("boxes", "int64", (-1, 3))
    assert (str(boxes), boxes.is_open) == ("boxes int64 ?x3", True)
    assert [boxes.fits(shape) for shape in ((0, 3), (7, 3), (7, 4), (3,), (1, 7, 3))] == [
        True, True, False, False, False,
    ]  # fmt: skip
    fixed = tensors.TensorSpec("x", "float32", (2, 3))
    assert (fixed.is_open, fixed.fits((2, 3)), fixed.fits((1, 3))) == (False, True, False)
