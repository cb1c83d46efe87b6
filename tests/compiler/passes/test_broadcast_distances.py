from __future__ import annotations

import onnx_ir as ir
import pytest

from edgekit.compiler.passes.broadcast_distances import MOST_ELEMENTS, broadcast_distances
from edgekit.compiler.passes.fold_constants import fold_constants
from tests.compiler.passes.meaning import model_of, rewritten

pytestmark = pytest.mark.needs_ort

SCAN = """g (float[{n},3] x, float[{m},3] rows) => (float[{m},{n}] y) {{
    state, y = Scan (x, rows) <num_scan_inputs = 1{attributes}, body =
        b (float[{n},3] a, float[3] row) => (float[{n},3] next, float[{n}] out) <int64[1] at = {{{axis}}}> {{
        next = Identity (a)
        less = {less}
        total = ReduceSumSquare <keepdims = 0> (less, at)
        out = Identity (total)
    }}>
}}"""


def scan(n: int = 2, m: int = 5, axis: int = 1, less: str = "Sub (a, row)", attributes: str = "") -> ir.Model:
    model = model_of(SCAN.format(n=n, m=m, axis=axis, less=less, attributes=attributes))
    fold_constants(model)
    return model


@pytest.mark.parametrize("less", ["Sub (a, row)", "Sub (row, a)"])
@pytest.mark.parametrize("axis", [1, -1])
def test_distances_become_one_subtraction(less: str, axis: int) -> None:
    assert rewritten(scan(less=less, axis=axis), broadcast_distances) == [
        "Unsqueeze",
        "Sub",
        "ReduceSumSquare",
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"less": "Add (a, row)"},
        {"less": "Sub (a, a)"},
        {"attributes": ", scan_input_directions = [1]"},
        {"attributes": ", scan_output_axes = [1]"},
    ],
)
def test_other_scans_stay(other: dict[str, str]) -> None:
    if "scan_output_axes" in other.get("attributes", ""):
        model = model_of(SCAN.format(n=2, m=2, axis=1, less="Sub (a, row)", **other))
        fold_constants(model)
    else:
        model = scan(**other)  # type: ignore[arg-type]
    assert not broadcast_distances(model)


def test_a_state_that_is_an_output_stays() -> None:
    text = SCAN.format(n=2, m=5, axis=1, less="Sub (a, row)", attributes="")
    text = text.replace("=> (float[5,2] y) {", "=> (float[5,2] y, float[2,3] state) {", 1)
    model = model_of(text)
    fold_constants(model)
    assert not broadcast_distances(model)


def test_more_differences_than_fit_stay() -> None:
    most = MOST_ELEMENTS // (2 * 3)
    assert broadcast_distances(scan(m=most))
    assert not broadcast_distances(scan(m=most + 1))
