from __future__ import annotations

import numpy as np
import pytest

from edgekit.compiler.passes.write_out_pad import write_out_pad
from tests.compiler.passes.meaning import answers, assert_same, folded, ops

pytestmark = pytest.mark.needs_ort


@pytest.mark.parametrize(
    ("text", "pads", "left"),
    [
        (
            "g (float[3,4] x, float v) => (float[6,6] y) { y = Pad (x, pads, v) }",
            [1, 0, 2, 2],
            ["Pad", "Where"],
        ),
        (
            "g (float[3,4] x, float v) => (float[5,3] y) { y = Pad (x, pads, v) }",
            [2, -1, 0, 0],
            ["Pad", "Where"],
        ),
        (
            """g (float[3,4] x) => (float[6,6] y) { y = Pad <mode="wrap"> (x, pads) }""",
            [1, 0, 2, 2],
            ["Gather", "Gather", "Identity"],
        ),
    ],
)
def test_the_meaning_is_kept(text: str, pads: list[int], left: list[str]) -> None:
    model = folded(text, pads=np.array(pads))
    want = answers(model)
    assert write_out_pad(model, lambda node: True)
    assert ops(model) == left
    assert_same(want, model, np.inf)


def test_what_kernels_have_stays() -> None:
    model = folded("g (float[3,4] x) => (float[6,6] y) { y = Pad (x, pads) }", pads=np.array([1, 0, 2, 2]))
    assert not write_out_pad(model, lambda node: True)
    assert ops(model) == ["Pad"]
