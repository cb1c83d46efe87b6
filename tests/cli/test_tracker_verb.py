"""``edgekit bundle log``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.command_line import Call, answer

pytestmark = pytest.mark.needs_ort


def test_log_takes_one_tracker(bundle: Path, call: Call) -> None:
    for given in ([], ["--mlflow", "sqlite:///m.db", "--wandb", "edge"]):
        result = call("bundle", "log", bundle, *given)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("error: give one of --mlflow URI and --wandb PROJECT")


@pytest.mark.needs_report
def test_log_to_mlflow(bundle: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    result = call("bundle", "log", bundle, "--mlflow", "sqlite:///m.db", "--json")
    found = answer(result)
    assert found["files"] == [bundle.name, "report.html"]
    assert found["metrics"]["ort-fp32/p50_ms"] > 0
    (page,) = tmp_path.glob("mlruns/*/*/artifacts/report.html")
    assert "Use ort-fp32 on ort" in page.read_text("utf-8")
    assert (page.parent / bundle.name).read_bytes() == bundle.read_bytes()
