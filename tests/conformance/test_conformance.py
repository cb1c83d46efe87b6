"""Every op case on every target, and on the canonical graph alone.

A wrong answer or a crash fails, unless it is the engine's own and listed with its reason; so does a refusal
that is not listed, and a listed one that has become better: the list is kept exact by
``python -m tests.conformance.expectations``.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit import build
from tests.conformance.expectations import COLUMNS, read_expected
from tests.conformance.grid import CASES, FAMILIES, FRONT, TARGETS, prepare, run_case
from tests.conftest import is_present

EXPECTED = read_expected()
EXPANDED = re.compile(r"_expanded(_ver\d+)?$")
SHORT = [key for key in CASES if not EXPANDED.search(key) or EXPANDED.sub("", key) not in CASES]
"""Without the cases of ONNX that are another one with its op written out, 405 in all. The long form has
them: ``python -m tests.conformance.expectations`` runs all and leaves the list as it is."""
HOW = "python -m tests.conformance.expectations"


@pytest.mark.needs_ort
@pytest.mark.parametrize("key", SHORT)
def test_case(key: str, folder: Path, record_property: Callable[[str, object], None]) -> None:
    """All columns of a case, for which it is prepared once; a column without its engine is left out."""
    faults = {}
    for column in COLUMNS:
        if column == FRONT or is_present(f"needs_{column}"):
            try:
                faults[column] = _fault(key, column, folder, record_property)
            except Exception:
                record_property("conformance", (column, key.partition("/")[0], "crash", ""))
                faults[column] = traceback.format_exc()
    assert {column: fault for column, fault in faults.items() if fault} == {}


def _fault(key: str, column: str, folder: Path, record_property: Callable[[str, object], None]) -> str:
    """Run a case in one column; return what differs from the list, or nothing."""
    known, outcome = EXPECTED[column].of(key), run_case(key, column, folder)
    kind = "known wrong" if outcome.kind == known.kind == "wrong" else outcome.kind
    record_property("conformance", (column, key.partition("/")[0], kind, outcome.detail))
    if outcome.kind == "wrong":
        return "" if known.kind == "wrong" else f"wrong result: {outcome.detail}"
    if known.kind == "wrong":
        return f"no longer wrong here ({outcome.kind}); take it off the list: {HOW}"
    if outcome.kind == "refused":
        if known.kind == "refused":
            return (
                "" if outcome.detail == known.detail else f"refused with {outcome.detail}, not {known.detail}"
            )
        return f"refuses what it took before, with {outcome.detail}"
    return "" if known.kind == "pass" else f"takes what it refused; take it off the list: {HOW}"


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    ("key", "column"),
    [
        pytest.param(key, column, marks=getattr(pytest.mark, f"needs_{column}"))
        for column in TARGETS
        for key in EXPECTED[column].wrong
    ],
)
def test_verification_rejects_what_is_known_wrong(
    key: str, column: str, folder: Path, tmp_path: Path
) -> None:
    """What an engine answers wrongly never reaches a bundle as verified: ``build`` itself is asked."""
    path = tmp_path / "case.onnx"
    path.write_bytes(CASES[key].model().SerializeToString())
    bundle = build(path, targets=[column], samples=prepare(key, folder).feeds)
    (variant,) = bundle.variants
    # Either the values are too far off, or already the shape is another one.
    values, shape = "rejected: output ", "; the model gives "
    assert variant.status.startswith(values) or ("it answered" in variant.status and shape in variant.status)
    assert not variant.files


@pytest.mark.parametrize("column", COLUMNS)
def test_no_count_shrinks(column: str) -> None:
    expected = EXPECTED[column]
    for family, cases in FAMILIES.items():
        keys = [f"{family}/{case.name}" for case in cases]
        passing = sum(expected.of(key).kind == "pass" for key in keys)
        assert passing == expected.passes.get(family, 0), (
            f"{column} {family}: {passing} pass; if that is meant: {HOW}"
        )


@pytest.mark.parametrize("column", COLUMNS)
def test_lists_name_cases_and_reasons(column: str) -> None:
    expected = EXPECTED[column]
    assert set(expected.refused) | set(expected.wrong) <= set(CASES)
    assert not set(expected.refused) & set(expected.wrong)
    assert all(expected.refused.values())
    assert set(expected.reasons) == set(expected.refused)
    assert all(expected.reasons.values())
    assert all(len(reason) > 20 for reason in expected.wrong.values())


def test_names_are_unique() -> None:
    for family, cases in FAMILIES.items():
        names = [case.name for case in cases]
        assert len(names) == len(set(names)), family
