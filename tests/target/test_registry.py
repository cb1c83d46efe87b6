"""Targets by name."""

from __future__ import annotations

import pytest

from edgekit import tensor_spec as tensors
from edgekit.errors import EngineNotReady, ProfileError
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


def test_every_engine_that_must_be_built_first_is_waited_for() -> None:
    waited: list[str] = []

    class Building:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait(self) -> None:
            waited.append(self.name)

    builds = [Building("short"), Building("long")]

    def open_runner() -> str:
        if len(waited) < len(builds):
            raise EngineNotReady("it is being built", builds[len(waited)])  # type: ignore[arg-type]
        return "opened"

    assert registry.once_built(open_runner) == "opened"  # type: ignore[arg-type, comparison-overlap]
    assert waited == ["short", "long"]
    never = Building("never")

    def fails() -> str:
        raise EngineNotReady("it is being built", never)  # type: ignore[arg-type]

    with pytest.raises(EngineNotReady):
        registry.once_built(fails)  # type: ignore[arg-type]
    assert waited[2:] == ["never"]
