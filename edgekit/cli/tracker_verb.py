"""The verbs ``log`` and ``drift``: what other tools read."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shlex import quote

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    as_json_option,
    bundle_argument,
    engine_option,
    threads_option,
    variant_option,
)
from edgekit.cli.command_group import main
from edgekit.errors import MissingDependency, UsageError


@main.command()
@bundle_argument
@click.option("--mlflow", "uri", metavar="URI", help="MLflow's server or store, e.g. sqlite:///mlflow.db.")
@click.option("--wandb", "project", metavar="[ENTITY/]PROJECT", help="Project of Weights & Biases.")
@as_json_option
def log(bundle: Path, uri: str | None, project: str | None, as_json: bool) -> None:
    """Log a bundle to MLflow or Weights & Biases.

    Parameters, the figures of every variant and, as files, the bundle and its report. Nothing is run.
    """
    from edgekit.bundle.bundle import Bundle
    from edgekit.report import trackers
    from edgekit.report.page import need_packages, page_of, write_page

    if bool(uri) == bool(project):
        raise UsageError("give one of --mlflow URI and --wandb PROJECT")
    trackers.need_client("mlflow" if uri else "wandb")
    no_page = ""
    with tempfile.TemporaryDirectory(prefix="edgekit-") as folder:
        files = [bundle]
        with Bundle.open(bundle) as opened:
            opened.verify_entries()
            record = trackers.record_of(opened, bundle)
            try:
                need_packages()
                files.append(Path(folder) / "report.html")
                write_page(files[-1], page_of(opened))
            except MissingDependency as problem:
                no_page = str(problem)
        if uri:
            logged = trackers.log_to_mlflow(record, files, uri)
        else:
            logged = trackers.log_to_wandb(record, files, str(project))
    names = [file.name for file in files]
    lines = [
        f"  {logged.tracker:<9} run {logged.run} of {logged.place}",
        f"  logged    {len(record.parameters)} parameters, {len(record.metrics)} metrics, {', '.join(names)}",
        *([f"  page      {logged.url}"] if logged.url else []),
        *([f"  note      without the report: {no_page}"] if no_page else []),
        *([f"  next: wandb sync {quote(logged.folder)}"] if logged.folder else []),
    ]
    found = {**logged._asdict(), "parameters": record.parameters, "metrics": record.metrics, "files": names}
    terminal.answer(as_json, found, "\n".join(lines))


@main.command()
@bundle_argument
@click.argument("base")
@click.argument("new")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder for reference.csv and current.csv.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), help="Maximum number of samples of each set, evenly spread."
)
@engine_option
@variant_option
@threads_option
@as_json_option
def drift(
    bundle: Path,
    base: str,
    new: str,
    output: Path,
    limit: int | None,
    engine: str | None,
    variant: str | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Detect drift between two sample sets.

    Writes two tables for a drift monitor such as Evidently.
    BASE and NEW are files, folders or globs: what the model was made for, and what it sees now. A row has
    figures of a sample's inputs and outputs and of its answer, never the sample itself.
    """
    from edgekit.bundle.bundle import Bundle
    from edgekit.compiler.evaluate.drift import drift_of

    if output.exists() and not output.is_dir():
        raise UsageError(f"{output} is a file; give a folder")
    with Bundle.open(bundle) as opened:
        found = drift_of(opened, base, new, engine=engine, variant=variant, threads=threads, limit=limit)
    written = [str(path) for path in found.save(output)]
    text = f"{found.text()}\n  written   {', '.join(written)}"
    terminal.answer(as_json, {**found.as_json(), "files": written}, text)
