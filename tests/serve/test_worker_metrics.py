"""Metrics of several processes, added up."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from edgekit.runtime import Session
from edgekit.runtime.metrics.metrics import Metrics
from edgekit.serve.metrics_text import text
from edgekit.serve.seldom_logged import CAUSED, Seldom
from edgekit.serve.worker_metrics import WorkerMetrics
from tests.fixtures.classifiers import vectors

NOBODY = 2**31 - 1
"""No process has this number; that of one that ended may be another's by now."""


def samples(found: Any) -> dict[str, float]:
    lines = [line.rsplit(" ", 1) for line in text(found).splitlines() if not line.startswith("#")]
    assert len({name for name, _ in lines}) == len(lines)  # each series once
    return {name: float(value) for name, value in lines}


@pytest.mark.needs_ort
def test_the_sum_is_that_of_one_process(tmp_path: Path, bundle: Path) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    with Session(bundle) as session:
        whole, parts = Metrics(session), [Metrics(session), Metrics(session), Metrics(session)]
        for number, seconds in enumerate((0.001, 0.002, 0.004, 0.1, 0.2)):
            for metrics in (whole, parts[number % 3]):
                metrics.took({"infer": seconds, "waiting": seconds / 2})
                metrics.answered("refused" if number == 4 else "ok")
        session.run(vectors(1)[0])
        workers = [WorkerMetrics(folder) for _ in parts]
        for worker, part in zip(workers, parts, strict=True):
            worker.write([part.snapshot()])
            worker.write([part.snapshot()])  # again a second later
        expected = samples([whole.snapshot()])
        for worker, part in zip(workers, parts, strict=True):
            assert samples(worker.with_others([part.snapshot()])) == pytest.approx(expected)
        (folder / "damaged.json").write_text("{")
        for number, worker in enumerate(workers[1:]):  # dead; what they wrote counts on
            worker._path.rename(folder / f"{NOBODY}-{number}.json")
        before = samples(workers[0].with_others([parts[0].snapshot()]))
        assert before == pytest.approx(expected)
        for _ in range(2):
            after = WorkerMetrics(folder)
            assert samples(workers[0].with_others([parts[0].snapshot()])) == pytest.approx(expected)
        assert samples(after.with_others([])) == pytest.approx(expected)
        if os.name == "posix":  # in one file
            names = {path.name for path in folder.glob("*.json")}
            assert names == {"damaged.json", "ended.json", workers[0]._path.name}


@pytest.mark.needs_ort
def test_workers_that_run_different_variants_are_one_model(tmp_path: Path, bundle: Path) -> None:
    with Session(bundle) as session:
        metrics = Metrics(session)
        metrics.took({"infer": 0.001})
        metrics.answered("ok")
        one: dict[str, Any] = {**metrics.snapshot(), "deferrals": {"answers": 5, "deferred": 2}}
    other = {**one, "variant": "ort-int8", "precision": "int8"}
    for workers in ([one, other], [other, one], [one, other, one]):
        found = samples(WorkerMetrics(tmp_path).with_others(workers))
        model = f'model="{one["model"]}",version="{one["version"]}"'
        assert found[f'edgekit_inferences_total{{{model},outcome="ok"}}'] == len(workers)
        assert found[f"edgekit_deferred_total{{{model}}}"] == 2 * len(workers)
        infos = {name for name in found if name.startswith("edgekit_model_info")}
        assert {'variant="ort-int8"' in name for name in infos} == {True, False}
        assert len(infos) == 2
        (count,) = [value for name, value in found.items() if "stage_duration_seconds_count" in name]
        assert count == len(workers)


def test_a_full_disk_is_no_error(tmp_path: Path) -> None:
    WorkerMetrics(tmp_path / "gone").write([])


def test_what_clients_cause_is_logged_once_a_minute() -> None:
    now_s, passed = 0.0, []
    seldom = Seldom(lambda: now_s)
    for said in (*CAUSED[:2], "another", CAUSED[0], CAUSED[0], "another", "", CAUSED[0], CAUSED[1]):
        record = logging.LogRecord("uvicorn.error", logging.WARNING, "", 0, said, None, None)
        if not said:
            now_s = 61.0
        elif seldom.filter(record):
            passed.append(record.getMessage())
    assert passed == [
        *CAUSED[:2], "another", "another", f"{CAUSED[0]} 2 more since the last time.", CAUSED[1],
    ]  # fmt: skip
