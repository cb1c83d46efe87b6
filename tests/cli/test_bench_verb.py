from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


def test_bench_ends_with_1_beyond_a_limit(bundle: Path, call: Call, tmp_path: Path) -> None:
    first = call("bench", bundle, "--seconds", "0.05", "--json")
    base = tmp_path / "base.json"
    base.write_text(first.stdout, "utf-8")
    fast = ["bench", bundle, "--seconds", "0.05", "--baseline", base]
    assert call(*fast, "--fail-if", "p50>+100000%").exit_code == 0
    result = call(*fast, "--fail-if", "p50>0.000001ms")
    assert result.exit_code == 1
    assert "  beyond    " in result.stdout
    result = call("bench", bundle, "--fail-if", "p50>+1%")
    assert result.exit_code == 2


def test_bench_says_which_is_faster(bundle: Path, call: Call) -> None:
    result = call("bench", bundle, "--against", bundle, "--seconds", "0.05", "--json")
    (found,) = answer(result)["comparisons"]
    assert found["low"] <= found["ratio"] <= found["high"]
    result = call("bench", bundle, "--against", bundle, "--sweep", "1x1")
    assert (result.exit_code, result.stdout) == (2, "")


def test_bench_sweeps(bundle: Path, call: Call) -> None:
    result = call("bench", bundle, "--seconds", "0.05", "--sweep", "1x1,2x1", "--json")
    assert [(p["streams"], p["threads"]) for p in answer(result)["sweep"]] == [(1, 1), (2, 1)]
