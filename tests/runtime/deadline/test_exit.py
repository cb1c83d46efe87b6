"""An app that ends while a run that timed out is still in its engine: its own exit code and output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.child_processes import run_python
from tests.fixtures.ort_bundles import onnx_bytes, ort_bundle

pytestmark = pytest.mark.needs_ort

TURNS = """
<ir_version: 8, opset_import: ["": 17]>
turns (float[1,6] x) => (float[1,6] y)
{
    n = ReduceMax<keepdims=0>(x)
    trips = Cast<to=7>(n)
    go = Constant<value = bool {1}>()
    zero = Constant<value = float {0}>()
    shape = Constant<value = int64[2] {256, 256}>()
    square = Expand(zero, shape)
    last = Loop(trips, go, square)
    <body = turn (int64 i, bool on, float[256,256] a) => (bool again, float[256,256] b) {
        again = Identity(on)
        m = MatMul(a, a)
        b = Tanh(m)
    }>
    most = ReduceMax<keepdims=0>(last)
    y = Add(x, most)
}
"""
"""As many turns of a loop as the input says."""

APP = """
import atexit, sys
atexit.register(lambda: print("an earlier handler, hanging", session.hanging))
import numpy as np
from edgekit.errors import NoVariantError
from edgekit.runtime import Session
from edgekit.runtime.deadline import deadline
from edgekit.system import interrupts

atexit.register(print, "a later handler")
deadline.HANG_S, deadline.HANG_RATIO, interrupts.EXIT_S = 0.1, 0.0, float(sys.argv[3])
session = Session(sys.argv[1], threads=1, deadline_ms=20)
try:
    session.run({"x": np.full((1, 6), float(sys.argv[2]), np.float32)})
except NoVariantError:
    print("hanging", session.hanging)
session.close()
print("the end", end=" ")
sys.exit(3)
"""


@pytest.mark.parametrize(
    ("turns", "waits_s", "left"), [(1500.0, 300.0, 0), (2.0**40, 0.1, 1)], ids=["returns", "never returns"]
)
def test_the_app_ends_as_it_says(turns: float, waits_s: float, left: int, tmp_path: Path) -> None:
    path = ort_bundle(turns=onnx_bytes(TURNS)).save(tmp_path / "turns.edgekit")
    done = run_python(APP, path, turns, waits_s)
    assert done.stdout == f"hanging 1\nthe end a later handler\nan earlier handler, hanging {left}\n"
    assert (done.returncode, done.stderr) == (3, "")
