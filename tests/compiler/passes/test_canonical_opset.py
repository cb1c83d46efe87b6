"""Old and new spellings become opset 23 and mean what ONNX Runtime says they meant."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.passes.canonical_opset import CANONICAL_IR, CANONICAL_OPSET, canonical_opset
from edgekit.errors import ModelError
from tests.compiler.passes.meaning import model_of, ops, rewritten

pytestmark = pytest.mark.needs_ort

# (opset, graph, the ops it becomes); tests/conformance/legacy.py has the meaning of others
CASES: dict[str, tuple[int, str, list[str]]] = {
    "reduce_l2_all": (7, "g (float[2,3] x) => (float[1,1] y) { y = ReduceL2 (x) }", ["ReduceL2"]),
    "grid_sample": (
        16,
        'g (float[1,2,4,4] x, float[1,3,3,2] p) => (float[1,2,3,3] y) {y = GridSample<mode="bilinear">(x,p)}',
        ["GridSample"],
    ),
    "softmax_flat": (
        11,
        "g (float[2,3,4] x) => (float[2,3,4] y) { y = Softmax <axis=1> (x) }",
        ["Reshape", "Softmax", "Reshape"],
    ),
    "softmax_ones_behind": (
        11,
        "g (float[2,3,1,1] x) => (float[2,3,1,1] y) { y = Softmax <axis=1> (x) }",
        ["Softmax"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_old_spellings(name: str) -> None:
    opset, text, expected = CASES[name]
    model = model_of(text, opset)
    assert rewritten(model, canonical_opset) == expected
    assert model.graph.opset_imports[""] == CANONICAL_OPSET
    assert model.ir_version == CANONICAL_IR


def test_nearest_shrinking_of_opset_10_takes_the_ceiling() -> None:
    text = 'g (float[1,1,6,9] x) => (float[1,1,4,6] y) { y = Resize <mode="nearest"> (x, s) }'
    assert rewritten(model_of(text, 10, s=[1, 1, 0.7, 0.7]), canonical_opset) == ["Resize"]


def test_tf_half_pixel_for_nn_is_a_rounding_of_half_pixel() -> None:
    text = (
        'g (float[1,1,5,7] x) => (float[1,1,10,10] y) { y = Resize <mode="nearest", nearest_mode="floor",'
        ' coordinate_transformation_mode="tf_half_pixel_for_nn"> (x, roi, s) }'
    )
    model = model_of(text, 11, s=[1, 1, 2, 1.5], roi=np.zeros(0, np.float32))
    assert rewritten(model, canonical_opset) == ["Resize"]


def test_group_norm_scales_of_groups_become_scales_of_channels() -> None:
    text = "g (float[1,4,3,3] x) => (float[1,4,3,3] y) { y = GroupNormalization <num_groups=2> (x, s, b) }"
    model = model_of(text, 18, s=[2, 3], b=[0.5, -1])
    canonical_opset(model)
    node = model.graph[0]
    assert [None if (a := array_of(v)) is None else a.tolist() for v in node.inputs[1:]] == [
        [2, 2, 3, 3],
        [0.5, 0.5, -1, -1],
    ]


def test_batch_norm_loses_what_inference_does_not_have() -> None:
    text = (
        "g (float[1,2,3,3] x) => (float[1,2,3,3] y) {"
        "y = BatchNormalization <spatial=1, momentum=0.9> (x, s, b, m, v) }"
    )
    model = model_of(text, 7, s=[2, 3], b=[0.5, -1], m=[0.1, 0.2], v=[1.5, 2])
    assert rewritten(model, canonical_opset) == ["BatchNormalization"]


def test_swish_of_opset_24_becomes_the_pair_that_engines_fuse() -> None:
    model = model_of("g (float[2,3] x) => (float[2,3] y) { y = Swish <alpha=1.5> (x) }", 24)
    canonical_opset(model)
    assert ops(model) == ["Mul", "Sigmoid", "Mul"]
    assert model.graph.outputs[0].name == "y"


def test_branches_are_rewritten_too() -> None:
    text = """g (float[2,3] x, bool c) => (float[2,3] y) {
        y = If (c) <then_branch = t () => (float[2,3] a) { a = Clip <min=0.0, max=1.0> (x) },
                    else_branch = e () => (float[2,3] b) { b = Clip <min=-1.0> (x) }>
    }"""
    assert rewritten(model_of(text, 9), canonical_opset) == ["If"]


@pytest.mark.parametrize(
    ("opset", "text", "message"),
    [
        (
            10,
            'g (float[1,1,4,4] x) => (float[1,1,8,2] y) { [up] y = Resize <mode="nearest"> (x, s) }',
            "node up (Resize, opset 10): enlarges one axis and shrinks another with nearest neighbour, "
            "which later opsets do not support",
        ),
        (
            8,
            "g (float[1,1,2,3] x) => (float[1,1,2,3] y) {"
            " [bn] y = BatchNormalization <spatial=0> (x, s, s, s, s) }",
            "node bn (BatchNormalization, opset 8): spatial=0 was removed in opset 9",
        ),
    ],
)
def test_what_has_no_exact_form_is_refused(opset: int, text: str, message: str) -> None:
    model = model_of(text, opset, s=[1, 1, 2, 0.5] if opset == 10 else [1.0])
    with pytest.raises(ModelError) as refusal:
        canonical_opset(model)
    assert str(refusal.value) == message


def test_opset_23_is_left_alone() -> None:
    model = model_of("g (float[2,3] x) => (float[2,3] y) { y = Softmax <axis=0> (x) }")
    model.ir_version = CANONICAL_IR
    assert not canonical_opset(model)
    assert isinstance(model, ir.Model)
