"""What is said of float64."""

from __future__ import annotations

from edgekit.compiler.lowering.wide_floats import narrowed_floats
from tests.compiler.passes.meaning import model_of


def test_float64_is_told_once() -> None:
    model = model_of("g (double[2] x) => (double[2] y) { h = Neg (x) y = Abs (h) }")
    (finding,) = narrowed_floats(model, "tflite")
    assert (finding.code, finding.severity, finding.node, finding.op) == ("EK1108", "warning", "x", "")
    assert finding.message == "it is float64, but computed in float32; so are 2 more"


def test_nothing_is_said_of_float32() -> None:
    assert narrowed_floats(model_of("g (float[2] x) => (float[2] y) { y = Abs (x) }"), "tflite") == []
