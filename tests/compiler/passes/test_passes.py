"""The list as a whole."""

from __future__ import annotations

import pytest

from edgekit.compiler.passes import PASSES, run_passes
from tests.compiler.passes.meaning import answers, assert_same, model_of, ops

pytestmark = pytest.mark.needs_ort


def test_every_place_has_its_reason() -> None:
    assert all(reason and one.__doc__ for one, reason in PASSES)
    assert PASSES[0][0].__name__ == "static_shapes"
    assert PASSES[-1][0].__name__ == "remove_dead_code"


def test_together_they_bring_an_old_file_to_the_canonical_form() -> None:
    model = model_of(
        """g (float[1,2,6,6] x) => (float[1,3,6,6] y) {
        p = Pad <pads=[0,0,1,1,0,0,1,1]> (x)
        c = Conv <kernel_shape=[3,3]> (p, w)
        n = BatchNormalization (c, g, g, z, g)
        three = Constant <value = float {3.0}> ()   six = Constant <value = float {6.0}> ()
        a = Add (n, three)
        l = Clip <min=0.0, max=6.0> (a)
        m = Mul (n, l)
        h = Div (m, six)
        d = Dropout (h)
        y = Identity (d)
    }""",
        opset=7,
        w=[[[[0.1 * (i + j + k) for i in range(3)] for j in range(3)] for k in range(2)] for _ in range(3)],
        g=[1.0, 2.0, 0.5],
        z=[0.1, 0.2, 0.3],
    )
    want = answers(model)
    assert run_passes(model) == [
        "canonical_opset",
        "fold_constants",
        "remove_dropout",
        "remove_identities",
        "merge_duplicates",
        "fold_pad",
        "recognize_hard_swish",
        "fold_affine",
        "remove_dead_code",
    ]
    assert ops(model) == ["Conv", "HardSwish"]
    assert model.graph.outputs[0].name == "y"
    assert_same(want, model)
