"""A Ray cluster on this machine, a worker of which is killed. Skipped where ray (75 MB) is not installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.batch import build_all as module
from edgekit.batch.build_all import build_all
from tests.batch import workers_that_end

ray = pytest.importorskip("ray", reason="ray is not installed (75 MB: pip install '.[ray]')")
pytestmark = [pytest.mark.needs_ort, pytest.mark.slow]


def test_a_killed_worker_costs_no_bundle(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = matrix.parent / "ended"
    monkeypatch.setenv(workers_that_end.FATAL, f"net1-ort-fp32={marker}")
    monkeypatch.setattr(module, "run_job", workers_that_end.run_or_end)
    made = build_all(matrix, on="ray://")
    assert [row["state"] for row in made.rows] == ["built"] * 6
    assert marker.exists()
    assert not ray.is_initialized()
