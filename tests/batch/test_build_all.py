from __future__ import annotations

import json
import re
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import edgekit
from edgekit.batch import build_all as module
from edgekit.batch.build_all import build_all, catalogue_page, catalogue_text
from edgekit.batch.build_job import CatalogueRow, Job, failed_row, parse_record, run_job, tool_versions
from edgekit.batch.workers import open_workers
from edgekit.errors import MissingDependency, UsageError
from tests.batch import workers_that_end
from tests.fixtures import models
from tests.fixtures.command_line import Call, answer
from tests.fixtures.command_line import call as call

pytestmark = pytest.mark.needs_ort


def states(rows: list[CatalogueRow]) -> list[str]:
    return [row["state"] for row in rows]


def one_by_one(matrix: Path, name: str, precision: str) -> bytes:
    folder = matrix.parent
    bundle = edgekit.build(folder / f"{name}.onnx", targets=["ort"], precision=precision)
    return bundle.save(folder / "alone.edgekit").read_bytes()


@pytest.mark.usefixtures("here")
def test_bundles_are_those_of_single_builds_and_stay(matrix: Path) -> None:
    made = build_all(matrix)
    assert states(made.rows) == ["built"] * 6
    assert [row["name"] for row in made.rows][:3] == ["net0-ort-fp32", "net0-ort-fp16", "net1-ort-fp32"]
    for row in made.rows:
        there = (matrix.parent / "boards" / str(row["bundle"])).read_bytes()
        assert there == one_by_one(matrix, row["model"], row["precision"])
    again = build_all(matrix)
    assert states(again.rows) == ["kept"] * 6
    table = json.loads((matrix.parent / "boards" / "catalogue.json").read_text())
    assert [row["sha256"] for row in table["builds"]] == [row["sha256"] for row in made.rows]


@pytest.mark.usefixtures("here")
def test_what_changed_is_built_again_and_nothing_else(matrix: Path) -> None:
    build_all(matrix)
    folder = matrix.parent
    models.write(folder, models.TWO_INPUTS.replace("1,8", "1,20"), "net1.onnx")
    (folder / "boards" / "net2-ort-fp16.edgekit").write_bytes(b"damaged")
    (folder / "boards" / "net2-ort-fp32.edgekit").unlink()
    expected = ["kept", "kept", "built", "built", "built", "built"]
    assert states(build_all(matrix).rows) == expected
    assert states(build_all(matrix).rows) == ["kept"] * 6


@pytest.mark.usefixtures("here")
def test_a_catalogue_goes_on_where_it_was_cut(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(row: CatalogueRow, done: int, count: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_all(matrix, progress=cut)
    kept = states(build_all(matrix).rows)
    assert kept[:2] == ["kept", "kept"]
    assert "built" in kept


@pytest.mark.usefixtures("here")
def test_the_same_content_under_two_names_is_built_once(matrix: Path) -> None:
    models.write(matrix.parent, models.TWO_INPUTS, "net0.onnx")
    matrix.write_text(
        'models = [{file = "net0.onnx", name = "a"}, {file = "net0.onnx", name = "b"}]\ntargets = ["ort"]\n'
    )
    seen: list[str] = []
    made = build_all(matrix, progress=lambda row, done, count: seen.append(row["name"]))
    assert seen == ["a-ort-fp32", "b-ort-fp32"]
    folder = matrix.parent / "boards"
    assert (folder / "a-ort-fp32.edgekit").read_bytes() == (folder / "b-ort-fp32.edgekit").read_bytes()
    assert len(list((folder / ".records").iterdir())) == 1
    assert made.whole


@pytest.mark.usefixtures("here")
def test_a_build_that_fails_costs_no_other_one(matrix: Path, call: Call) -> None:
    (matrix.parent / "net1.onnx").write_bytes(b"not a model")
    result = call("batch", "build", matrix, "--json")
    assert result.exit_code == 1
    found = answer(result)
    assert "".join(row["state"][0] for row in found["builds"]) == "bbffbb"
    error = found["builds"][2]["error"]
    assert error["kind"] == "ModelError"
    assert error["message"].startswith("net1.onnx: is not an ONNX model")
    assert result.stderr == ""
    text = call("batch", "build", matrix)
    assert re.search("^  failed     [56] of 6  net1-ort-fp32 ", text.stderr, re.MULTILINE)
    assert text.exit_code == 1
    assert f"6 builds in {matrix.parent / 'boards'}: 4 kept, 2 failed" in text.stdout
    assert "  failed    net1-ort-fp32  net1.onnx: is not an ONNX model" in text.stdout


@pytest.mark.usefixtures("here")
def test_a_worker_with_other_tools_does_not_build(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = tool_versions()
    monkeypatch.setattr(module, "tool_versions", lambda: {**tools, "onnx": "0.1"})
    made = build_all(matrix)
    assert states(made.rows) == ["failed"] * 6
    assert made.rows[0]["error"] == {
        "kind": "UsageError",
        "message": f"this worker would build different bytes: it has onnx {tools['onnx']} instead of 0.1; "
        "install the same versions",
    }


@pytest.mark.usefixtures("here")
def test_models_samples_and_bundles_at_urls(matrix: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed (pip install '.[catalogue]')")
    import numpy as np

    store, folder = fsspec.filesystem("memory"), matrix.parent
    np.savez(folder / "s.npz", left=np.ones((1, 8), np.float32), right=np.ones((1, 8), np.float32))
    store.put_file(str(folder / "net0.onnx"), "/boards/net0.onnx")
    store.put_file(str(folder / "s.npz"), "/boards/day/s.npz")
    matrix.write_text(
        'output = "memory://boards/made"\nmodels = ["memory://boards/net0.onnx"]\ntargets = ["ort"]\n'
        'samples.day = "memory://boards/day"\n'
    )
    try:
        made = build_all(matrix)
        assert states(made.rows) == ["built"]
        content = store.cat_file("/boards/made/net0-ort-fp32-day.edgekit")
        alone = edgekit.build(folder / "net0.onnx", targets=["ort"], samples=folder / "s.npz")
        assert content == alone.save(folder / "alone.edgekit").read_bytes()
        assert states(build_all(matrix).rows) == ["kept"]
    finally:
        store.rm("/boards", recursive=True)


@pytest.mark.needs_report
@pytest.mark.usefixtures("here")
def test_one_page_tells_of_all(matrix: Path) -> None:
    (matrix.parent / "net1.onnx").write_bytes(b"<script>not a model")
    made = build_all(matrix)
    page = catalogue_page(made, "boards")
    assert "net0-ort-fp32" in page
    assert "6 builds in" in page
    assert "<script>not a model" not in page
    assert "verified on ONNX Runtime" in page
    assert catalogue_text(made).splitlines()[0].split() == [
        "bundle", "state", "variants", "size", "fastest", "p50", "build",
    ]  # fmt: skip


def test_a_lost_process_costs_a_retry(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    marker = matrix.parent / "ended"
    monkeypatch.setenv(workers_that_end.FATAL, f"net1-ort-fp32={marker}")
    monkeypatch.setattr(module, "run_job", workers_that_end.run_or_end)
    made = build_all(matrix, workers=1)
    assert states(made.rows) == ["built"] * 6
    assert marker.exists()


def test_a_process_that_dies_as_it_begins_is_lost_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    dying = partial(ProcessPoolExecutor, initializer=int, initargs=("no number",))
    with open_workers("local", 1) as opened:
        with monkeypatch.context() as patched:
            patched.setattr("edgekit.batch.workers.ProcessPoolExecutor", dying)
            assert isinstance(opened.submit(len, "abc").exception(60), opened.lost)
        assert opened.submit(len, "abc").result(60) == 3


def test_a_process_that_is_lost_each_time_is_told(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix.write_text('models = ["net0.onnx"]\ntargets = ["ort"]\n')
    monkeypatch.setattr(module, "run_job", workers_that_end.end_always)
    (row,) = build_all(matrix, workers=1, retries=1).rows
    assert row["state"] == "failed"
    assert row["error"] is not None
    assert row["error"]["message"].startswith("its worker was lost: BrokenProcessPool: ")
    assert row["error"]["message"].endswith("; tried 2 times")


def lost(job: Job) -> CatalogueRow:
    return failed_row(job, "CrashError", "net0.onnx: its process was killed by SIGKILL", "lost")


@pytest.mark.usefixtures("here")
def test_a_model_s_process_that_was_killed_is_tried_again(
    matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix.write_text('models = ["net0.onnx"]\ntargets = ["ort"]\n')
    runs: list[Job] = []

    def killed_twice(job: Job) -> CatalogueRow:
        runs.append(job)
        return run_job(job) if len(runs) == 3 else lost(job)

    monkeypatch.setattr(module, "run_job", killed_twice)
    assert states(build_all(matrix).rows) == ["built"]
    assert len(runs) == 3


@pytest.mark.parametrize(
    ("on", "count", "message"),
    [
        ("slurm://x", None, "--on is 'slurm://x'; it must be local, dask://HOST:PORT or ray://HOST:PORT"),
        ("dask://", None, "--on is 'dask://'; it must be local, dask://HOST:PORT or ray://HOST:PORT"),
        ("dask://x", 2, "--workers sets processes on this machine; dask://x has its own workers"),
    ],
)
def test_other_workers_are_refused(on: str, count: int | None, message: str) -> None:
    with pytest.raises(UsageError) as error, open_workers(on, count):
        pass
    assert str(error.value) == message


def test_a_url_needs_fsspec(matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    matrix.write_text('models = ["s3://x/y.onnx"]\ntargets = ["ort"]\n')
    with pytest.raises(MissingDependency) as error:
        build_all(matrix)
    assert str(error.value).startswith("fsspec is not installed, and opening s3://x/y.onnx needs it: ")


def test_a_record_of_a_stranger_names_no_file_elsewhere_and_ends_no_run() -> None:
    variant = {"name": "ort-fp32", "status": "verified on Ort", "size_bytes": 5, "p50_ms": 1.5}
    good = {
        "name": "a", "model": "a", "targets": ["ort"], "precision": "fp32", "samples": "", "key": "k",
        "state": "built", "bundle": "a.edgekit", "sha256": "0" * 64, "size_bytes": 5, "seconds": 1.5,
        "variants": [variant], "error": None,
    }  # fmt: skip

    def parsed(**other: object) -> CatalogueRow | None:
        return parse_record(json.dumps({**good, **other}).encode(), "k")

    assert parsed() == good
    for name in ("../../secret", "/etc/passwd", "..", "", "a\\b", "a\0b", 5, None):
        assert parsed(bundle=name) is None, name
    for wrong in ({"status": "fine"}, {"p50_ms": "1"}, {"p50_ms": True}, {"size_bytes": -1}, {"name": 1}):
        assert parsed(variants=[{**variant, **wrong}]) is None, wrong
    for more in ({"seconds": "1"}, {"targets": "ort"}, {"variants": [1]}, {"error": "x"}, {"key": "other"}):
        assert parsed(**more) is None, more
