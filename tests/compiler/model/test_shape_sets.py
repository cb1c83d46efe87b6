"""Several shapes of inputs, as a user gives them."""

from __future__ import annotations

from typing import Any

import pytest

from edgekit.compiler.model.shape_sets import compiled_sizes, further_shapes, largest_shapes, range_of
from edgekit.errors import UsageError


def test_shapes_are_ordered_by_their_elements() -> None:
    shapes = {"image": [(1, 3, 64, 64), (1, 3, 96, 96), (1, 3, 32, 32)], "scale": (1,)}
    assert largest_shapes(shapes) == {"image": (1, 3, 96, 96), "scale": (1,)}
    assert further_shapes(shapes) == [{"image": (1, 3, 32, 32)}, {"image": (1, 3, 64, 64)}]


def test_the_kth_shapes_belong_together() -> None:
    shapes = {"a": [(4,), (2,)], "b": [[1, 4], [1, 2]]}
    assert largest_shapes(shapes) == {"a": (4,), "b": (1, 4)}
    assert further_shapes(shapes) == [{"a": (2,), "b": (1, 2)}]


@pytest.mark.parametrize("shapes", [{}, {"x": (1, 3)}, {"x": ()}, {"": [(1, 3)]}])
def test_one_shape_has_no_further_ones(shapes: Any) -> None:
    assert further_shapes(shapes) == []
    assert set(largest_shapes(shapes)) == set(shapes)


def test_a_range_is_compiled_at_some_sizes() -> None:
    shapes = {"ids": (1, "1..512"), "mask": [1, "1..512"], "image": (1, 3, 8, 8)}
    assert range_of(shapes) == range(1, 513)
    assert largest_shapes(shapes) == {"ids": (1, 512), "mask": (1, 512), "image": (1, 3, 8, 8)}
    assert [each["ids"] for each in further_shapes(shapes)] == [(1, 2), (1, 131), (1, 257)]
    assert [set(each) for each in further_shapes(shapes)] == [{"ids", "mask"}] * 3


@pytest.mark.parametrize(("low", "high"), [(1, 3), (1, 5), (2, 6), (7, 9), (1, 128), (64, 640), (1, 8192)])
def test_a_range_is_compiled_at_its_end_and_at_a_prime(low: int, high: int) -> None:
    sizes = compiled_sizes(range(low, high + 1))
    assert len(sizes) >= 3
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == high
    assert sizes[0] in (low, 2)
    assert high < 5 or any(all(size % each for each in range(2, size)) for size in sizes[:-1] if size > 1)


@pytest.mark.parametrize(
    ("shapes", "told"),
    [
        (
            {"a": [(1,), (2,)], "": [(1,), (2,), (3,)]},
            "--shape: inputs have different numbers of shapes (a 2, the image 3); give each as many, or one",
        ),
        ({"a": [(1,), 2]}, "shape 2 of a is 2; it must be whole numbers"),
        ({"a": [(1,), ("x",)]}, "shape 2 of a is ('x',); it must be whole numbers"),
        ({"a": (1, 2.5)}, "shape 1 of a is (1, 2.5); it must be whole numbers"),
    ],
)
def test_malformed_shapes(shapes: Any, told: str) -> None:
    with pytest.raises(UsageError) as error:
        further_shapes(shapes)
    assert str(error.value) == told
