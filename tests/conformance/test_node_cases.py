"""ONNX's own node cases, in short: nothing is known to be wrong, and one case of each new operator runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.model.newer_opsets import NEWEST_OPSET, newest_known
from tests.conformance.expectations import COLUMNS, read_expected
from tests.conformance.grid import CASES, Outcome
from tests.conformance.node_cases import TARGETS, node_keys, outcome_on, read_by_engine
from tests.conftest import is_present

NEW = (
    "bitshift_right_int8_negative_input",
    "bitcast_float32_to_int32",
    "causal_conv_with_state_silu_with_past_state",
    "compress_0",
    "linear_attention_gated_delta_gqa",
    "mod_float_edge_cases_fmod_0_float32",
    "onehot_with_axis",
    "spacetodepth_crd_mode_example",
)


def test_no_case_is_known_wrong() -> None:
    expected = read_expected()
    wrong = [key for column in COLUMNS for key in expected[column].wrong if key.startswith("onnx/")]
    assert wrong == []


def test_the_newest_opset_of_the_installed_onnx_is_known() -> None:
    if newest_known() < NEWEST_OPSET:
        pytest.skip("the installed onnx has no opset 28")
    assert node_keys(NEWEST_OPSET)
    assert not node_keys(NEWEST_OPSET + 1)


@pytest.mark.needs_ort
@pytest.mark.skipif(newest_known() < NEWEST_OPSET, reason="needs an onnx that knows opset 28")
@pytest.mark.parametrize("name", NEW)
def test_a_case_of_each_new_form(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    key, expected = f"onnx/{name}", read_expected()
    if key not in CASES:
        pytest.skip("ONNX Runtime does not answer this case as ONNX expects")
    for column in TARGETS:
        if is_present(f"needs_{column}"):
            assert outcome_on(key, column, tmp_path) == expected[column].of(key), column


def test_what_an_engine_raises_is_a_refusal() -> None:
    def read(proto: object, feeds: object) -> dict[str, object]:
        raise RuntimeError("no kernel\nfor it")

    outcome = read_by_engine(next(iter(node_keys())), read)  # type: ignore[arg-type]
    assert outcome == Outcome("refused", "RuntimeError")
    assert outcome.why == "no kernel"
