"""Outputs with parts of different scale are judged by their worst part."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.build.build_options import Goal
from edgekit.compiler.evaluate.fidelity import Evaluator, Fidelity, Score
from edgekit.compiler.evaluate.output_parts import OutputSlice, find_parts, unlike
from edgekit.compiler.model.shape_inference import infer_shapes


def graph(body: str, outputs: str, inputs: str = "float[1,4,9] a, float[1,3,9] b") -> ir.Graph:
    text = f'<ir_version: 8, opset_import: ["": 13]> g ({inputs}) => ({outputs}) {{ {body} }}'
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes(model)
    return model.graph


PIXELS, SCORES = OutputSlice(1, 0, 4, "Mul"), OutputSlice(1, 4, 7, "Sigmoid")


@pytest.mark.parametrize(
    ("moves", "expected"),
    [
        ("y = Identity (c)", [PIXELS, SCORES]),
        ("y = Transpose <perm=[0,2,1]> (c)", [OutputSlice(2, 0, 4, "Mul"), OutputSlice(2, 4, 7, "Sigmoid")]),
        ("s = Constant <value=int64[4] {1,7,3,3}>() y = Reshape (c, s)", [PIXELS, SCORES]),
        ("s = Constant <value=int64[2] {1,63}>() y = Reshape (c, s)", []),  # the axis is gone
        ("y = Relu (c)", []),  # no move: one kind of value again
    ],
)
def test_a_concat_of_unlike_values_makes_parts(moves: str, expected: list[OutputSlice]) -> None:
    body = f"p = Mul (a, a) q = Sigmoid (b) c = Concat <axis=1> (p, q) {moves}"
    found = find_parts(graph(body, "float y"))
    assert found == ({"y": expected} if expected else {})


def test_levels_are_no_parts() -> None:
    """What one level finds may be missing in a few samples."""
    body = "p = Sigmoid (a) q = Sigmoid (b) y = Concat <axis=1> (p, q)"
    assert find_parts(graph(body, "float y")) == {}


def test_levels_that_each_have_parts() -> None:
    body = """
        p = Mul (a, a) q = Sigmoid (b) first = Concat <axis=1> (p, q)
        r = Mul (a, a) s = Sigmoid (b) second = Concat <axis=1> (r, s)
        y = Concat <axis=2> (first, second)"""
    assert find_parts(graph(body, "float y")) == {"y": [PIXELS, SCORES]}


def test_parts_of_one_scale_are_judged_together() -> None:
    values = np.ones((1, 7, 9), np.float32)
    assert unlike([PIXELS, SCORES], [values]) == [[PIXELS, SCORES]]
    values[:, :4] = 320
    assert unlike([PIXELS, SCORES], [values]) == [[PIXELS], [SCORES]]
    values[:, 4:] = 0  # nothing can be said of them
    assert unlike([PIXELS, SCORES], [values]) == [[PIXELS]]


def test_lost_scores_are_seen_behind_the_pixels() -> None:
    rng = np.random.default_rng(0)
    pixels, scores = rng.uniform(0, 320, (1, 4, 9)), rng.uniform(0, 1, (1, 3, 9))
    expected = np.concatenate([pixels, scores], axis=1)
    scale = 320 / 255  # one int8 scale for both: all scores become 0 or 1.25
    outputs = [{"y": np.rint(expected / scale) * scale}]
    whole = Evaluator(None, [{"y": expected}]).evaluate(outputs)
    by_part = Evaluator(None, [{"y": expected}], parts={"y": [PIXELS, SCORES]}).evaluate(outputs)
    assert whole.snr_db > 45
    assert by_part.snr_db < 6
    assert by_part.rank == by_part.score.value == by_part.snr_db
    assert (whole.score.metric, by_part.score.metric) == ("SNR", "part SNR")
    # More is asked for: what is left of the scores of a detector is mostly background.
    assert Goal().missed(Fidelity(Score("SNR", 15.0, "dB"), 15.0)) == ""
    missed = Goal().missed(Fidelity(Score("part SNR", 15.0, "dB"), 15.0))
    assert missed == "part SNR 15.0 dB; 20.0 dB is required"


def test_a_part_that_is_not_finite_is_worth_nothing() -> None:
    expected = np.concatenate([np.full((1, 4, 9), 320.0), np.ones((1, 3, 9))], axis=1)
    broken = expected.copy()
    broken[0, 5, 0] = math.nan
    found = Evaluator(None, [{"y": expected}], parts={"y": [PIXELS, SCORES]}).evaluate([{"y": broken}])
    assert found.snr_db == -math.inf
