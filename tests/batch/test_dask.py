"""A Dask cluster of two workers, one of which is killed in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

import edgekit
from edgekit.batch import build_all as module
from edgekit.batch.build_all import build_all
from edgekit.batch.workers import open_workers
from edgekit.errors import EngineError
from tests.batch import workers_that_end

distributed = pytest.importorskip(
    "distributed", reason="distributed is not installed (pip install '.[dask]')"
)
pytestmark = pytest.mark.needs_ort


def test_a_killed_worker_costs_no_bundle(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = matrix.parent / "ended"
    monkeypatch.setenv(workers_that_end.FATAL, f"net1-ort-fp32={marker}")
    monkeypatch.setattr(module, "run_job", workers_that_end.run_or_end)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(matrix.parent)
    )
    with cluster:
        made = build_all(matrix, on=f"dask://{cluster.scheduler_address.removeprefix('tcp://')}")
    assert [row["state"] for row in made.rows] == ["built"] * 6
    assert marker.exists()
    for row in made.rows:
        model = matrix.parent / f"{row['model']}.onnx"
        alone = edgekit.build(model, targets=["ort"], precision=row["precision"])
        alone.save(matrix.parent / "alone.edgekit")
        there = (matrix.parent / "boards" / str(row["bundle"])).read_bytes()
        assert there == (matrix.parent / "alone.edgekit").read_bytes()


def test_no_scheduler_is_told() -> None:
    import dask

    setting = dask.config.set({"distributed.comm.timeouts.connect": "0.1s"})
    with setting, pytest.raises(EngineError) as error, open_workers("dask://127.0.0.1:1"):
        pass
    assert str(error.value).startswith("no Dask scheduler answers at 127.0.0.1:1: ")
