from __future__ import annotations

from pathlib import Path

from edgekit.diagnostics import ASSUMED_SHAPES, NOT_CHECKED, Finding, as_lines, check_text

MODEL = Path("in/m.onnx")
SHAPES = {"x": (1, 3)}


def missing(target: str, node: str, op: str = "LSTM") -> Finding:
    return Finding("EK1001", "error", target, node, op, f"{target} has no form for {op}", "build it for ort")


def test_many_nodes_of_which_the_same_is_said_are_counted() -> None:
    found = [missing("a", name) for name in ("one", "two", "three")]
    assert [line.split()[1] for line in as_lines(found)] == ["one", "two", "three"]
    assert as_lines([*found[:2], missing("a", "g", "GRU"), found[2], missing("a", "four")]) == [
        "  EK1001  one         LSTM  a has no form for LSTM; build it for ort",
        "  EK1001  two         LSTM  a has no form for LSTM; build it for ort",
        "  EK1001  three       LSTM  a has no form for LSTM; build it for ort",
        "  EK1001  and 1 more  LSTM  the same; --json has all",
        "  EK1001  g           GRU   a has no form for GRU; build it for ort",
    ]


def test_check_answers_first_and_ends_with_the_next_step() -> None:
    not_checked = Finding(NOT_CHECKED, "note", "c", "", "", "not checked: x is not installed")
    assert check_text(MODEL, ["a", "b", "c"], [missing("a", "one"), not_checked], SHAPES).splitlines() == [
        "  m.onnx can't be built for a",
        "  m.onnx can be built for b",
        "",
        "  a",
        "    EK1001  one  LSTM  a has no form for LSTM; build it for ort",
        "",
        "  c",
        "    EK1104      not checked: x is not installed",
        "",
        "  next: edgekit build in/m.onnx -t b --shape x=1x3 -o m.edgekit",
    ]


def test_the_next_step_of_a_trusted_pickle_trusts_it_too() -> None:
    assert check_text(MODEL, ["b"], [], {}, trust_pickle=True).splitlines()[-1] == (
        "  next: edgekit build in/m.onnx --trust-pickle -t b -o m.edgekit"
    )


def test_where_nothing_can_be_built_no_next_step_is_told() -> None:
    assert (
        check_text(MODEL, ["a"], [missing("a", "one")], {}).splitlines()[0] == "  m.onnx can't be built for a"
    )
    assert "next:" not in check_text(MODEL, ["a"], [missing("a", "one")], {})


def test_the_next_step_can_be_pasted_whatever_the_names_are() -> None:
    text = check_text(Path("my models/m 1.onnx"), ["a", "b", "a"], [], {"x y": (1, 3), "scalar": ()})
    assert text.splitlines() == [
        "  m 1.onnx can be built for a, b",
        "",
        "  next: edgekit build 'my models/m 1.onnx' -t a -t b --shape 'x y=1x3' --shape scalar= "
        "-o 'm 1.edgekit'",
    ]


def test_what_holds_for_all_targets_is_said_once_and_a_shape_may_have_no_name() -> None:
    assumed = Finding(ASSUMED_SHAPES, "note", "", "", "", "batch 1 of x")
    assert check_text(MODEL, ["a", "b"], [assumed], {"": (1, 3)}).splitlines() == [
        "  m.onnx can be built for a, b",
        "  note: batch 1 of x",
        "",
        "  next: edgekit build in/m.onnx -t a -t b --shape 1x3 -o m.edgekit",
    ]
