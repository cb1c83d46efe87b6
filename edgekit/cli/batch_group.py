"""The group ``batch``: many builds, on this machine or a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, need_writable, path_argument, path_option
from edgekit.cli.command_group import main

if TYPE_CHECKING:
    from edgekit.batch.build_job import CatalogueRow


@main.group()
def batch() -> None:
    """Build all bundles of a matrix file."""


@batch.command("build", left="what was built is kept")
@path_argument("matrix")
@click.option("--on", metavar="WHERE", default="local", show_default=True,
              help="local, dask://HOST:PORT or ray://HOST:PORT.")  # fmt: skip
@click.option(
    "--workers", type=click.IntRange(1), help="Number of local processes.  [default: half of the cores]"
)
@click.option("--memory-mb", type=int, help="Memory limit of one build.  [default: by the model's size]")
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=2,
    show_default=True,
    help="Number of retries after a worker is lost.",
)
@path_option("--report", metavar="FILE.html", help="Write a report of all builds to this .html file.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@as_json_option
@click.pass_context
def build_all(
    ctx: click.Context,
    matrix: Path,
    on: str,
    workers: int | None,
    memory_mb: int | None,
    retries: int,
    report: Path | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Build all combinations of a matrix file.

    MATRIX is a TOML file: models, targets, precisions and sample sets. What is there already is kept, so the
    same command goes on where it was cut.
    """
    if report is not None:
        from edgekit.report.page import need_page

        need_page(report)
        need_writable(report, "the page")
    from edgekit import build_all as build_matrix
    from edgekit.batch.build_all import catalogue_page, catalogue_text
    from edgekit.system.progress import Stage, step
    from edgekit.system.progress import report as report_stage

    def report_row(row: CatalogueRow, done: int, count: int) -> None:
        seconds = row["seconds"] if row["state"] == "built" else 0.0
        report_stage(Stage(row["state"], f"{done} of {count}  {row['name']}", seconds))
        notify("", done, count, "builds")

    with step("building") as notify:
        catalogue = build_matrix(
            matrix, on=on, workers=workers, memory_mb=memory_mb, retries=retries, progress=report_row
        )
    if report is not None:
        from edgekit.report.page import write_page

        write_page(report, catalogue_page(catalogue, matrix.stem))
    if not (quiet or as_json):
        click.echo("", err=True)
    terminal.answer(as_json, catalogue.as_json(), catalogue_text(catalogue))
    ctx.exit(0 if catalogue.whole else 1)
