"""A bundle in an experiment tracker: MLflow or Weights & Biases, by their own clients.

What is logged comes from the bundle's manifest, so nothing is run. A client that is not installed is reported
with the pip line. MLflow is told to send no usage statistics, and wandb no error reports, unless the user
has set it.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edgekit.bundle.advice import p50_ms
from edgekit.bundle.bundle import Bundle
from edgekit.bundle.report import checked_evidence
from edgekit.bundle.variant import Variant
from edgekit.errors import EdgeKitError, MissingDependency, UsageError, reason_of

T = TypeVar("T")

EXPERIMENT = "edgekit"
"""MLflow's experiment if MLFLOW_EXPERIMENT_NAME is not set."""
MLFLOW_VALUE_CHARS = 6000
"""Of a parameter; longer ones are cut. ``mlflow.utils.validation`` of MLflow 3.17 has the limits."""
MLFLOW_KEY_CHARS = 250
"""Maximum length of a parameter's or metric's name."""
WANDB_NAME_CHARS = 128
"""Maximum length of an artifact's name."""
MLFLOW_BATCH = 100
"""Parameters of one request; of metrics 1000 are allowed."""
_OWN_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "WANDB_ERROR_REPORTING": "false",
}
"""Of the clients, in the environment; what the user has set stays. With MLflow's 7 retries a server that is
not there would be waited for over minutes."""


class TrackerRecord(NamedTuple):
    """Record of a bundle for a tracker.

    Attributes:
        name: Name of the run: the bundle's file name.
        parameters: Text by name, e.g. ``VARIANT/precision`` for a variant.
        metrics: Number by name, e.g. ``VARIANT/p50_ms``: ``accuracy`` by the task's metric on labels, else by
            the agreement with the float model; ``snr_db`` of the worst output against the source model;
            ``ratio`` of the time over the float parent's; ``p50_ms`` on the machine of the build;
            ``size_mb``.
    """

    name: str
    parameters: dict[str, str]
    metrics: dict[str, float]


class Logged(NamedTuple):
    """Location of a logged bundle.

    Attributes:
        tracker: ``mlflow`` or ``wandb``.
        place: Name of the experiment or project.
        run: Id of the run.
        url: URL of the run in the tracker's own pages, or "".
        folder: Folder with unsent data of an offline client, or "".
    """

    tracker: str
    place: str
    run: str
    url: str = ""
    folder: str = ""


def record_of(bundle: Bundle, path: Path) -> TrackerRecord:
    """Return the record of a bundle in the file ``path``.

    Raises:
        BundleError: its evidence is not in the format that a build writes.
    """
    manifest = bundle.manifest
    source = manifest["source"]
    parameters = {
        "bundle/digest": bundle.digest,
        "edgekit": manifest["edgekit"],
        **{f"tool/{name}": version for name, version in manifest["tools"].items()},
        **{f"source/{key}": source[key] for key in ("file", "sha256", "opset", "nodes")},
    }
    metrics: dict[str, float] = {}
    with checked_evidence(bundle.name):
        for variant in bundle.variants:
            facts = {"target": variant.target, "profile": variant.profile, "precision": variant.precision}
            score = _accuracy(variant)
            if score is not None:
                facts["accuracy_metric"] = str(score["metric"])
            parameters |= {f"{variant.name}/{key}": text for key, text in facts.items()}
            parameters[f"{variant.name}/status"] = variant.status
            metrics |= {f"{variant.name}/{key}": value for key, value in _figures(variant, score).items()}
    return TrackerRecord(path.name, {key: str(value) for key, value in parameters.items()}, metrics)


def _accuracy(variant: Variant) -> Mapping[str, Any] | None:
    """Return the task's score, else the agreement. None if the variant has only an SNR, or no finite
    value."""
    for name in ("task", "agreement"):
        score = variant.evidence.get(name)
        if score and not score["unit"] and score["value"] is not None:
            return dict(score)
    return None


def _figures(variant: Variant, score: Mapping[str, Any] | None) -> dict[str, float]:
    evidence = variant.evidence
    errors = (evidence.get("accuracy") or {}).values()
    snr_db = [error["snr_db"] for error in errors if error["snr_db"] is not None]
    size_bytes = evidence.get("size_bytes")
    values = {
        "accuracy": None if score is None else score["value"],
        "snr_db": min(snr_db) if snr_db else None,
        "ratio": (evidence.get("timing") or {}).get("ratio"),
        "p50_ms": p50_ms(variant),
        "size_mb": None if size_bytes is None else size_bytes / 1e6,
    }
    figures = {key: value for key, value in values.items() if value is not None}
    for key, value in figures.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"{key} is not a number")
    return {key: float(value) for key, value in figures.items()}


def need_client(tracker: str) -> None:
    """Say what to install before any work is done.

    Raises:
        MissingDependency: the client of ``mlflow`` or ``wandb`` is not installed.
    """
    for name, value in _OWN_SETTINGS.items():
        os.environ.setdefault(name, value)
    # By import, because the clients leave folders of these names in the working directory.
    try:
        if tracker == "mlflow":
            from mlflow import MlflowClient  # noqa: F401
        else:
            from wandb import Artifact  # noqa: F401
    except ImportError:
        package = {"mlflow": "mlflow-skinny"}.get(tracker, tracker)
        raise MissingDependency(package, f"logging to {tracker}", extra=tracker) from None


def log_to_mlflow(record: TrackerRecord, files: Sequence[Path], uri: str) -> Logged:
    """Log a run to MLflow with parameters, metrics, and files as artifacts.

    Args:
        uri: URI of the tracking server or of a store, e.g. ``sqlite:///mlflow.db``.

    Raises:
        MissingDependency: the client is not installed.
        UsageError: MLflow refuses it; a run that was begun is marked as failed.
    """
    need_client("mlflow")
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.utils.time import get_current_time_millis

    experiment = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    with _refusals("MLflow", uri):
        client = MlflowClient(tracking_uri=uri)
        existing = client.get_experiment_by_name(experiment)
        number = client.create_experiment(experiment) if existing is None else existing.experiment_id
        run = client.create_run(number, run_name=record.name).info.run_id
        ended = "FAILED"
        try:
            now = get_current_time_millis()
            params = [
                Param(key, value[:MLFLOW_VALUE_CHARS]) for key, value in _mlflow_keys(record.parameters)
            ]
            metrics = [Metric(key, value, now, 0) for key, value in _mlflow_keys(record.metrics)]
            for start in range(0, max(len(params), len(metrics)), MLFLOW_BATCH):
                part = slice(start, start + MLFLOW_BATCH)
                client.log_batch(run, metrics[part], params[part])
            for file in files:
                client.log_artifact(run, str(file))
            ended = "FINISHED"
        finally:
            with contextlib.suppress(Exception) if ended == "FAILED" else contextlib.nullcontext():
                client.set_terminated(run, ended)
    return Logged("mlflow", experiment, run)


def log_to_wandb(record: TrackerRecord, files: Sequence[Path], project: str) -> Logged:
    """Log a run to Weights & Biases: parameters as configuration, metrics as summary, files in an artifact.

    The client's own settings hold, e.g. WANDB_MODE=offline, WANDB_DIR and WANDB_API_KEY.

    Args:
        project: ``PROJECT`` or ``ENTITY/PROJECT``.

    Raises:
        MissingDependency: the client is not installed.
        UsageError: the client refuses it; a run that was begun is marked as failed.
    """
    need_client("wandb")
    import wandb

    entity, _, name = project.rpartition("/")
    with _refusals("Weights & Biases", project):
        run = wandb.init(
            project=name,
            entity=entity or None,
            name=record.name,
            job_type="edgekit bundle log",
            config=record.parameters,
            settings=wandb.Settings(silent=True, console="off", disable_git=True, save_code=False),
        )
        failed = 1
        try:
            run.summary.update(record.metrics)
            title = _plain(record.name).replace("/", "_").replace(" ", "_")
            artifact = wandb.Artifact(title[:WANDB_NAME_CHARS], "edgekit-bundle")
            for file in files:
                artifact.add_file(str(file))
            run.log_artifact(artifact)
            failed = 0
        finally:
            run.finish(exit_code=failed)
        if run.offline:
            return Logged("wandb", project, str(run.id), folder=str(run.settings.sync_dir))
        return Logged("wandb", project, str(run.id), str(run.url or ""))


@contextlib.contextmanager
def _refusals(tracker: str, place: str) -> Iterator[None]:
    """Convert every exception of a client to one error while the block runs."""
    try:
        yield
    except EdgeKitError:
        raise
    except Exception as problem:
        message = _without_password(f"{tracker} did not take the bundle at {place}: {reason_of(problem)}")
        raise UsageError(f"{message}\n  check the address, and what the client needs to sign in") from problem


def _mlflow_keys(values: Mapping[str, T]) -> Iterator[tuple[str, T]]:
    """Yield the values with names that MLflow accepts. MLflow refuses all values if two names are equal, so
    later duplicates are numbered."""
    used: set[str] = set()
    for name, value in values.items():
        # MLflow takes a name for a path and wants it in its shortest form.
        parts = [part for part in _plain(name).split("/") if part.strip(".")]
        key = free = "/".join(parts)[: MLFLOW_KEY_CHARS - 8] or "_"
        number = 2
        while free in used:
            free, number = f"{key}_{number}", number + 1
        used.add(free)
        yield free, value


def _plain(key: str) -> str:
    """Return a name of the characters that MLflow takes on every system."""
    return re.sub(r"[^A-Za-z0-9_\-./ ]", "_", key)


def _without_password(text: str) -> str:
    """Remove user, password and tokens from the addresses in a text, for a message.

    >>> _without_password("no answer of https://kim:a@b@host:5000/a"), _without_password("sqlite:///m.db")
    ('no answer of https://host:5000/a', 'sqlite:///m.db')
    """
    text = re.sub(r"://[^\s'\"]*@", "://", text)
    return re.sub(r"(?i)([?&;][^=&;\s]*(?:password|token|secret|key)[^=&;\s]*=)[^&;\s'\"]*", r"\1...", text)
