"""The grid itself: what it must call wrong, and what it may not take for a refusal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgekit.diagnostics import Finding
from edgekit.errors import UnsupportedError
from tests.conformance import expectations, grid
from tests.conformance.case import Case
from tests.conformance.expectations import Expected
from tests.conformance.grid import Outcome, judge, judge_refusal, prepare

CASE = Case("relu", "float[2,3] x", "y = Relu(x)")
ANSWER = np.array([[1.0, -2.0, 3.0], [0.5, 0.0, 4.0]], np.float32)


def _judged(got: object, case: Case = CASE, expected: object = ANSWER) -> Outcome:
    return judge(case, [{"y": np.asarray(expected)}], [{"y": np.asarray(got)}])


def test_equal_answers_pass() -> None:
    assert _judged(ANSWER.copy()) == Outcome("pass")


def test_rounding_passes_and_a_larger_error_is_wrong() -> None:
    assert _judged(ANSWER * np.float32(1 + 5e-6)).kind == "pass"
    outcome = _judged(ANSWER * np.float32(1 + 5e-5))
    assert outcome.kind == "wrong"
    assert outcome.detail.startswith("y: SNR 86.0 dB, expected [ 1. ")


def test_a_case_may_ask_for_less() -> None:
    loose = Case("relu", CASE.inputs, CASE.body, snr_db=80.0)
    assert _judged(ANSWER * np.float32(1 + 5e-5), loose).kind == "pass"
    assert _judged(ANSWER * np.float32(1 + 5e-4), loose).kind == "wrong"


@pytest.mark.parametrize(
    ("got", "detail"),
    [
        (ANSWER.T, "y: float32[3, 2], expected float32[2, 3]"),
        (ANSWER.astype(np.float64), "y: float64[2, 3], expected float32[2, 3]"),
        (
            np.where(ANSWER == 4.0, np.nan, ANSWER).astype(np.float32),
            "y: not finite elsewhere: expected [ 1.  -2.   3.   0.5  0.   4. ],"
            " got [ 1.  -2.   3.   0.5  0.   nan]",
        ),
    ],
)
def test_other_shapes_types_and_nan_are_wrong(got: object, detail: str) -> None:
    assert _judged(got) == Outcome("wrong", detail)


def test_nan_where_it_belongs_passes() -> None:
    expected = np.array([np.nan, np.inf, 1.0], np.float32)
    assert _judged(expected.copy(), expected=expected).kind == "pass"
    assert _judged(np.array([np.nan, -np.inf, 1.0], np.float32), expected=expected).kind == "wrong"


def test_integers_are_exact_but_for_the_steps_of_the_case() -> None:
    expected = np.array([0, 3, 255], np.uint8)
    assert _judged(np.array([0, 3, 254], np.uint8), expected=expected).kind == "wrong"
    quantized = Case("relu", CASE.inputs, CASE.body, steps=1)
    assert _judged(np.array([1, 3, 254], np.uint8), quantized, expected).kind == "pass"
    assert _judged(np.array([2, 3, 255], np.uint8), quantized, expected).kind == "wrong"


def test_zeros_are_compared_by_size() -> None:
    zeros = np.zeros(3, np.float32)
    assert _judged(zeros + np.float32(1e-7), expected=zeros).kind == "pass"
    assert _judged(zeros + np.float32(1e-5), expected=zeros).kind == "wrong"


def test_other_output_names_are_wrong() -> None:
    outcome = judge(CASE, [{"y": ANSWER}], [{"Y": ANSWER}])
    assert outcome == Outcome("wrong", "outputs ['Y'], expected ['y']")


def _finding(node: str, message: str = "no form") -> Finding:
    return Finding("EK1001", "error", "tflite", node, "Relu", message)


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("findings", "text", "promised", "outcome"),
    [
        ([_finding("Relu_0")], "Relu_0: no form", None, Outcome("refused", "EK1001")),
        ([_finding("x")], "x: no form", None, Outcome("refused", "EK1001")),
        ([], "no", None, Outcome("wrong", "refused without an error among its findings")),
        (
            [_finding("Abs_7")],
            "Abs_7",
            None,
            Outcome("wrong", "refused for 'Abs_7', which is no node of the model"),
        ),
        (
            [_finding("Relu_0")],
            "some node",
            None,
            Outcome("wrong", "the text of the refusal does not say why Relu_0 is refused"),
        ),
    ],
)
def test_a_refusal_names_its_nodes(
    findings: list[Finding], text: str, promised: list[Finding] | None, outcome: Outcome, tmp_path: Path
) -> None:
    prepared = prepare("math/relu", tmp_path)
    refusal = UnsupportedError(text, findings)
    assert judge_refusal(refusal, findings if promised is None else promised, prepared) == outcome


@pytest.mark.needs_ort
def test_a_refusal_that_check_model_did_not_promise_is_wrong(tmp_path: Path) -> None:
    refusal = UnsupportedError("Relu_0: no form", [_finding("Relu_0")])
    assert judge_refusal(refusal, [], prepare("math/relu", tmp_path)).kind == "wrong"


@pytest.mark.needs_ort
def test_a_wrong_pass_shows_in_the_front_end_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forget_relu(model: object) -> list[str]:
        for node in model.graph:  # type: ignore[attr-defined]
            node.op_type = "Abs"
        return ["forget_relu"]

    monkeypatch.setattr(grid, "run_passes", forget_relu)
    grid.prepare.cache_clear()
    assert grid.run_case("math/relu", grid.FRONT, tmp_path).kind == "wrong"
    assert grid.run_case("math/relu", "ort", tmp_path).kind == "wrong"
    grid.prepare.cache_clear()


def test_cases_are_the_same_each_time() -> None:
    assert CASE.model().SerializeToString() == CASE.model().SerializeToString()
    np.testing.assert_array_equal(CASE.feeds(3)["x"], CASE.feeds(3)["x"])
    assert not np.array_equal(CASE.feeds(0)["x"], CASE.feeds(1)["x"])


def test_expectations_are_read_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expectations, "FILE", tmp_path / "expected.toml")
    nothing = Expected({}, {}, {})
    written = dict.fromkeys(expectations.COLUMNS, nothing) | {
        "tflite": Expected({"conv": 3}, {"conv/a": "EK1002"}, {"conv/b": 'it says "no"'})
    }
    expectations.write_expected(written)
    assert expectations.read_expected() == written
    assert written["tflite"].of("conv/a") == Outcome("refused", "EK1002")
    assert written["tflite"].of("conv/b").kind == "wrong"
    assert written["tflite"].of("conv/c") == Outcome("pass")
