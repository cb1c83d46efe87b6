"""Which padding is chosen, and that it is the one that ONNX's pads mean."""

from __future__ import annotations

import pytest
from edgekit_tflite.padding import padding_scheme, with_height
from hypothesis import given
from hypothesis import strategies as st

from edgekit.compiler.model.sliding_windows import window


@pytest.mark.parametrize(
    ("size", "out", "kernel", "stride", "pads", "expected"),
    [
        (8, 8, 3, 1, (1, 1), "SAME"),
        (8, 4, 3, 2, (1, 1), "EXPLICIT"),  # SAME would pad 0 before and 1 after
        (8, 4, 3, 2, (0, 1), "SAME"),
        (9, 5, 3, 2, (1, 1), "SAME"),
        (8, 3, 3, 2, (0, 0), "VALID"),
        (8, 6, 3, 1, (0, 0), "VALID"),
        (8, 10, 3, 1, (2, 2), "EXPLICIT"),
        (8, 8, 2, 1, (0, 1), "SAME"),
        (8, 8, 2, 1, (1, 0), "EXPLICIT"),
        (8, 8, 1, 1, (0, 0), "VALID"),
    ],
)
def test_padding(size: int, out: int, kernel: int, stride: int, pads: tuple[int, int], expected: str) -> None:
    made = window(
        [size, size],
        [out, out],
        [kernel] * 2,
        [stride] * 2,
        None,
        "NOTSET",
        [pads[0], pads[0], *[pads[1]] * 2],
    )
    assert padding_scheme(made) == expected


def test_one_axis_that_differs_makes_it_explicit() -> None:
    made = window([8, 9], [4, 5], [3, 3], [2, 2], None, "NOTSET", [1, 1, 1, 1])
    assert padding_scheme(made) == "EXPLICIT"
    assert made.pads == ((1, 0), (1, 1))


@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(0, 4),
    st.integers(0, 4),
)
def test_the_choice_covers_the_same_elements(
    size: int, kernel: int, stride: int, dilation: int, begin: int, end: int
) -> None:
    """SAME and VALID by TFLite's own formulas give windows at just the places that ONNX's pads give."""
    reach = (kernel - 1) * dilation + 1
    if size + begin + end < reach:
        return
    out = (size + begin + end - reach) // stride + 1
    made = window([size], [out], [kernel], [stride], [dilation], "NOTSET", [begin, end])
    first = [-begin + i * stride for i in range(out)]
    if padding_scheme(made) == "VALID":
        assert (size - reach) // stride + 1 == out
        assert first[0] == 0
    elif padding_scheme(made) == "SAME":
        total = max((out - 1) * stride + reach - size, 0)
        assert -(-size // stride) == out
        assert first[0] == -(total // 2)
    else:
        before, after = made.pads[0]
        assert (size + before + after - reach) // stride + 1 == out
        assert first[0] == -before


def test_a_window_over_one_axis_slides_over_one_row() -> None:
    made = with_height(window([8], [4], [3], [2], None, "NOTSET", [1, 1]))
    assert (made.size, made.out, made.kernel) == ((1, 8), (1, 4), (1, 3))
    assert (made.begin, made.declared_end) == ((0, 1), (0, 1))
