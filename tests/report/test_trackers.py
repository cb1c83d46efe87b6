"""Logging to experiment trackers, with their own clients and stores on this disk."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from edgekit.bundle import Bundle, Variant
from edgekit.errors import BundleError, MissingDependency, UsageError
from edgekit.report.trackers import (
    TrackerRecord,
    _refusals,
    log_to_mlflow,
    log_to_wandb,
    need_client,
    record_of,
)
from tests.fixtures.bundles import small_bundle


def variant(name: str, status: str = "verified on Ort 1", **evidence: Any) -> Variant:
    files = {} if status.startswith("rejected") else {"model.bin": f"variants/{name}/model.bin"}
    return Variant(name, "ort", "ort", "int8", files, {}, status, evidence)


@pytest.fixture
def bundle() -> Bundle:
    errors = {"y": {"snr_db": 15.0, "max_abs": 0.1}, "z": {"snr_db": None, "max_abs": 0.0}}
    agreement = {"metric": "self-mAP", "value": 0.91, "unit": ""}
    task = {"metric": "mAP", "value": 0.33, "unit": "", "float": 0.34}
    timing = {"p50_ms": 6.0, "ratio": 0.6}
    return small_bundle(
        [
            variant(
                "all", accuracy=errors, task=task, agreement=agreement, timing=timing, size_bytes=1_500_000
            ),
            variant("agrees", agreement=agreement, size_bytes=2_000_000),
            variant("noise", agreement={"metric": "SNR", "value": 20.0, "unit": "dB"}),
            variant("lost", "rejected: self-mAP 0.072", agreement={**agreement, "value": None}),
        ]
    )


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "m.edgekit", tmp_path / "report.html"]
    for path in found:
        path.write_text(path.name, "utf-8")
    return found


def test_a_record_has_what_was_measured_and_nothing_else(bundle: Bundle) -> None:
    record = record_of(bundle, Path("somewhere/m.edgekit"))
    assert record.name == "m.edgekit"
    assert record.metrics == {
        "all/accuracy": 0.33,
        "all/snr_db": 15.0,
        "all/ratio": 0.6,
        "all/p50_ms": 6.0,
        "all/size_mb": 1.5,
        "agrees/accuracy": 0.91,
        "agrees/size_mb": 2.0,
    }
    assert record.parameters["all/accuracy_metric"] == "mAP"
    assert record.parameters["agrees/accuracy_metric"] == "self-mAP"
    assert record.parameters["lost/status"] == "rejected: self-mAP 0.072"
    assert record.parameters["bundle/digest"] == bundle.digest
    assert record.parameters["source/file"] == "m.onnx"


@pytest.mark.parametrize(("tracker", "package"), [("mlflow", "mlflow-skinny"), ("wandb", "wandb")])
def test_a_missing_client_is_told_with_the_pip_line(
    monkeypatch: pytest.MonkeyPatch, tracker: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, tracker, None)
    with pytest.raises(MissingDependency, match=rf"{package} is not installed.*\[{tracker}\]"):
        need_client(tracker)


def test_mlflow_has_the_run_with_its_files(
    bundle: Bundle, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(module)
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    record = record_of(bundle, files[0])
    many = {f"many/{number}": "x" * 6500 for number in range(250)}  # more than one request takes
    many["odd: ü"] = "1"
    record = TrackerRecord(record.name, {**record.parameters, **many}, record.metrics)
    first = log_to_mlflow(record, files, uri)
    second = log_to_mlflow(record, files, uri)
    client = MlflowClient(tracking_uri=uri)
    run = client.get_run(first.run)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "m.edgekit"
    assert run.data.metrics == record.metrics
    assert len(run.data.params) == len(record.parameters)
    assert run.data.params["many/249"] == "x" * 6000
    assert run.data.params["odd_ _"] == "1"
    assert [each.path for each in client.list_artifacts(first.run)] == ["m.edgekit", "report.html"]
    assert Path(client.download_artifacts(first.run, "m.edgekit")).read_text("utf-8") == "m.edgekit"
    assert client.get_run(second.run).info.experiment_id == run.info.experiment_id
    assert first.place == "edgekit"

    with pytest.raises(UsageError, match="MLflow did not take the bundle"):
        log_to_mlflow(record, [tmp_path / "none"], uri)
    states = [each.info.status for each in client.search_runs([run.info.experiment_id])]
    assert sorted(states) == ["FAILED", "FINISHED", "FINISHED"]


def test_a_server_that_is_not_there_is_one_error_without_the_password(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(UsageError) as caught:
        log_to_mlflow(record_of(bundle, Path("m.edgekit")), [], "http://kim:secret@127.0.0.1:1")
    assert str(caught.value).startswith("MLflow did not take the bundle at http://127.0.0.1:1: ")
    assert "secret" not in str(caught.value)


def test_wandb_offline_keeps_the_run_with_its_files(
    bundle: Bundle, files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    record = record_of(bundle, files[0])
    logged = log_to_wandb(record, files, "team/edge")
    assert (logged.tracker, logged.place, logged.url) == ("wandb", "team/edge", "")
    (kept,) = Path(logged.folder).glob("*.wandb")  # protobuf messages, their texts in plain
    content = kept.read_bytes()
    for text in (*record.metrics, *record.parameters, "edgekit-bundle", "report.html", "m.edgekit"):
        assert text.encode() in content, text


@pytest.mark.parametrize("ratio", ["nan", "0.5", True, [1.0], {"p50": 1}])
def test_a_figure_that_is_no_number_is_refused(ratio: Any) -> None:
    with pytest.raises(BundleError, match="invalid evidence"):
        record_of(small_bundle([variant("v", timing={"p50_ms": 1.0, "ratio": ratio})]), Path("m.edgekit"))


def test_names_that_mlflow_refuses_are_written_otherwise(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(module)
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    names = [
        "a:b",
        "a_b",
        "../../x",
        "//",
        "n" * 300,
        "n" * 301,
        "<script>",
        "line\nline",
        "\u202ex",
        "..",
        "",
    ]
    record = TrackerRecord("m.edgekit", dict.fromkeys(names, "text"), dict.fromkeys(names, 1.0))
    logged = log_to_mlflow(record, files, uri)
    run = MlflowClient(tracking_uri=uri).get_run(logged.run)
    assert run.info.status == "FINISHED"
    keys = {
        "a_b",
        "a_b_2",
        "x",
        "_",
        "n" * 242,
        "n" * 242 + "_2",
        "_script_",
        "line_line",
        "_x",
        "__2",
        "__3",
    }
    assert set(run.data.params) == set(run.data.metrics) == keys


def test_a_long_name_is_cut_for_wandb(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    for name in ("WANDB_CACHE_DIR", "WANDB_DATA_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "own"))
    assert log_to_wandb(TrackerRecord("n" * 200, {}, {}), files, "p").folder


@pytest.mark.parametrize(
    "address",
    ["https://kim:secret@host/a", "https://kim:se/secret@host", "https://kim:a@secret@host",
     "https://host/?token=secret", "postgresql://host/db?sslpassword=secret&x=1"],
)  # fmt: skip
def test_no_message_holds_a_password(address: str) -> None:
    with pytest.raises(UsageError) as error, _refusals("MLflow", address):
        raise OSError(f"no answer of '{address}': closed")
    assert "secret" not in str(error.value)
    assert "closed" in str(error.value)
