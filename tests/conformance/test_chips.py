"""A part of each chip's grid: as its file says, or it fails. docs/ops.md has the counts of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit import build
from tests.conformance import chips
from tests.conformance.grid import CASES, FAMILIES, prepare, run_case

HERE = ("coreai", "ncnn", "tflm")
"""Those that a test run has; the others are run where their compiler is."""
ONE_OF = 14


@pytest.mark.parametrize(
    ("key", "column"),
    [
        pytest.param(key, column, marks=[getattr(pytest.mark, f"needs_{column}"), pytest.mark.needs_ort])
        for column in HERE
        for key in chips.sampled(chips.read_chip(column), ONE_OF)
    ],
)
def test_case(key: str, column: str, folder: Path) -> None:
    known = chips.read_chip(column).expected.of(key)
    outcome = run_case(key, column, folder)
    how = f"python -m tests.conformance.chips {column} {key.partition('/')[0]}"
    assert outcome.kind == known.kind, f"{outcome}; if that is meant: {how}"
    if known.kind == "refused":
        assert outcome.detail == known.detail


@pytest.mark.needs_tflm
@pytest.mark.needs_ort
@pytest.mark.parametrize("key", ["math/is_inf", "extreme/div_by_zero"])
def test_verification_rejects_what_is_known_wrong(key: str, folder: Path, tmp_path: Path) -> None:
    assert key in chips.read_chip("tflm").expected.wrong
    path = tmp_path / "case.onnx"
    path.write_bytes(CASES[key].model().SerializeToString())
    (variant,) = build(path, targets=["tflm"], samples=prepare(key, folder).feeds).variants
    assert variant.status.startswith("rejected: output ")
    assert not variant.files


@pytest.mark.parametrize("column", chips.columns())
def test_files_name_cases_and_reasons(column: str) -> None:
    chip = chips.read_chip(column)
    expected, keys = chip.expected, set(chip.keys)
    assert set(expected.refused) | set(expected.wrong) <= keys
    assert not set(expected.refused) & set(expected.wrong)
    assert set(expected.reasons) == set(expected.refused)
    assert all(expected.reasons.values())
    assert all(len(reason) > 20 for reason in expected.wrong.values())
    for family in chip.families:
        cases = [f"{family}/{case.name}" for case in FAMILIES[family]]
        assert expected.passes[family] == sum(expected.of(key).kind == "pass" for key in cases), family
