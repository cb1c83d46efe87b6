from __future__ import annotations

import pytest

from edgekit.compiler.model.rewriting import node_name
from edgekit.compiler.passes.unroll_loops import MOST_NODES, unroll_loops
from tests.compiler.passes.meaning import answers, assert_same, model_of, ops, rewritten

pytestmark = pytest.mark.needs_ort

LOOP = """g (float[2] x) => (float[2] y, float[{steps},2] all) {{
    n = Constant <value = int64 {{{steps}}}> ()
    yes = Constant <value = bool {{1}}> ()
    y, all = Loop (n, yes, x) <body =
        b (int64 i, bool go, float[2] v) => (bool on, float[2] w, float[2] row) {{
        {condition}
        f = Cast <to = 1> (i)
        k = Mul (v, x)
        w = Add (k, f)
        row = Neg (k)
    }}>
}}"""
GOES_ON = "on = Identity (go)"
SCAN = """g (float[2] s, float[{x}] x) => (float[2] y, float[{z}] z) {{
    y, z = Scan (s, x) <num_scan_inputs = 1, {attributes}, body =
        b (float[2] a, float[2] c) => (float[2] d, float[2] e) {{ d = Add (a, c)  e = Mul (d, c) }}>
}}"""


@pytest.mark.parametrize("condition", [GOES_ON, "on = Constant <value = bool {1}> ()"])
@pytest.mark.parametrize("opset", [11, 17, 23])
def test_a_loop_becomes_its_steps(condition: str, opset: int) -> None:
    model = model_of(LOOP.format(steps=3, condition=condition), opset)
    left = rewritten(model, unroll_loops)
    assert left.count("Neg") == 3
    assert left.count("Concat") == 1
    assert [node_name(node) for node in model.graph if node.op_type == "Neg"] == ["Loop_2"] * 3


@pytest.mark.parametrize(
    "condition",
    [
        "on = Constant <value = bool {0}> ()",
        "three = Constant <value = int64 {3}> ()  on = Less (i, three)",
    ],
)
def test_a_loop_that_its_body_may_end_stays(condition: str) -> None:
    model = model_of(LOOP.format(steps=5, condition=condition).replace("float[5,2]", "float[?,2]"))
    assert not unroll_loops(model)


def test_a_loop_over_a_number_that_is_an_input_stays() -> None:
    text = LOOP.format(steps=3, condition=GOES_ON).replace("(float[2] x)", "(float[2] x, int64 n)")
    model = model_of(text.replace("n = Constant <value = int64 {3}> ()", ""))
    assert not unroll_loops(model)


def test_a_long_loop_stays() -> None:
    body = 5
    assert unroll_loops(model_of(LOOP.format(steps=MOST_NODES // (body + 1), condition=GOES_ON)))
    assert not unroll_loops(model_of(LOOP.format(steps=MOST_NODES // (body + 1) + 1, condition=GOES_ON)))


def test_no_step_gives_what_it_was_given() -> None:
    model = model_of(
        """g (float[2] x) => (float[2] y) {
        n = Constant <value = int64 {0}> ()
        y = Loop (n, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w)
            { on = Identity (go)  w = Neg (v) }>
    }"""
    )
    assert rewritten(model, unroll_loops) == ["Identity"]


def test_a_loop_in_a_loop() -> None:
    model = model_of(
        """g (float[2] x) => (float[2] y) {
        two = Constant <value = int64 {2}> ()
        y = Loop (two, , x) <body = b (int64 i, bool go, float[2] v) => (bool on, float[2] w) {
            on = Identity (go)
            w = Loop (two, go, v) <body = c (int64 j, bool ahead, float[2] p) => (bool off, float[2] q) {
                off = Identity (ahead)  sum = Add (p, x)  q = Sin (sum)
            }>
        }>
    }"""
    )
    assert [op for op in rewritten(model, unroll_loops) if op != "Identity"] == ["Add", "Sin"] * 4


@pytest.mark.parametrize(
    ("x", "z", "attributes"),
    [
        ("3,2", "3,2", "scan_input_axes = [0]"),
        ("2,3", "3,2", "scan_input_axes = [-1]"),
        ("3,2", "2,3", "scan_output_axes = [1]"),
        ("3,2", "3,2", "scan_input_directions = [1]"),
        ("3,2", "3,2", "scan_output_directions = [1]"),
    ],
)
def test_a_scan_becomes_its_steps(x: str, z: str, attributes: str) -> None:
    left = rewritten(model_of(SCAN.format(x=x, z=z, attributes=attributes)), unroll_loops)
    assert left.count("Mul") == 3


@pytest.mark.parametrize("directions", ["", ", directions = [1]"])
def test_a_scan_of_opset_8_for_each_sample(directions: str) -> None:
    model = model_of(
        """g (float[2,3] s, float[2,4,3] x) => (float[2,3] y, float[2,4,3] z) {
        y, z = Scan ( , s, x) <num_scan_inputs = 1 DIRECTIONS, body =
            b (float[3] a, float[3] c) => (float[3] d, float[3] e) { d = Add (a, c)  e = Mul (d, c) }>
    }""".replace("DIRECTIONS", directions),
        8,
    )
    want = answers(model)
    assert unroll_loops(model)
    assert ops(model).count("Mul") == 8
    assert_same(want, model)
