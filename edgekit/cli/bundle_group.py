"""The group ``bundle``: bundles from bundles, and their figures for other tools."""

from __future__ import annotations

import tempfile
from pathlib import Path
from shlex import quote
from typing import Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    VariantName,
    as_json_option,
    bundle_argument,
    engine_option,
    need_replaceable,
    need_writable,
    path_argument,
    path_option,
    threads_option,
    variant_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.request_options import arguments_of, request_options
from edgekit.errors import MissingDependency, UsageError


@main.group()
def bundle() -> None:
    """Combine, select, rebuild and log bundles; detect drift."""


@bundle.command(writes=True)
@path_argument("cascade")
@path_option("-o", "--output", required=True, help="Bundle file to write.")
@as_json_option
def cascade(cascade: Path, output: Path, as_json: bool) -> None:
    """Chain bundles: run models on each detection.

    CASCADE is a TOML file that names the bundles of the stages and how things are cropped (docs/cascades.md).
    """
    need_writable(output, "the bundle")
    need_replaceable(output)
    from edgekit import build_cascade
    from edgekit.cli.bundle_text import bundle_json, cascade_text

    bundle = build_cascade(cascade)
    bundle.save(output)
    terminal.answer(as_json, bundle_json(bundle, output), cascade_text(bundle, output))


@bundle.command(writes=True)
@path_argument("small")
@path_argument("large", required=False)
@click.option(
    "--disagreement",
    metavar="1%",
    required=True,
    help="Maximum share of predictions that may differ from the large model's.",
)
@click.option(
    "--confidence", metavar="95%", default="95%", show_default=True, help="Confidence of that bound."
)
@click.option(
    "--samples",
    metavar="PATH",
    type=click.Path(),
    required=True,
    help="Folder or glob of .npz or .npy files, images or videos that neither model was trained on.",
)
@click.option("--small", "small_variant", metavar="VARIANT", help="Variant of SMALL.  [default: the fastest]")
@click.option(
    "--large", "large_variant", metavar="VARIANT", help="Variant of LARGE.  [default: the most accurate]"
)
@path_option("-o", "--output", required=True, help="Bundle file to write.")
@as_json_option
@click.pass_context
def defer(
    ctx: click.Context,
    small: Path,
    large: Path | None,
    disagreement: str,
    confidence: str,
    samples: str,
    small_variant: str | None,
    large_variant: str | None,
    output: Path,
    as_json: bool,
) -> None:
    """Route uncertain inputs to a larger model.

    SMALL and LARGE are bundles built with the same card; without LARGE both are variants of SMALL. The
    threshold is found on the samples, so that with the given confidence at most that share of the answers
    differs from the large one's. Nothing is written where there is no gain.
    """
    need_writable(output, "the bundle")
    need_replaceable(output)
    from edgekit import defer as defer_to

    deferral = defer_to(
        small,
        large,
        samples=samples,
        disagreement=disagreement,
        confidence=confidence,
        small_variant=small_variant,
        large_variant=large_variant,
    )
    if not as_json:
        click.echo("", err=True)
    if deferral.bundle is not None:
        deferral.bundle.save(output)
    ending = (
        f"  {output}\n  next: edgekit verify {quote(str(output))}"
        if deferral.bundle
        else "  nothing was written"
    )
    written = str(output) if deferral.bundle is not None else None
    terminal.answer(as_json, {"bundle": written, **deferral.as_json()}, f"{deferral.text()}\n\n{ending}")
    ctx.exit(0 if deferral.worthwhile else 1)


@bundle.command()
@path_argument("bundle")
@path_option("-o", "--output", help="New bundle.  [default: BUNDLE]")
@request_options("BuildRequest", for_rebuild=True)
@path_option("--tools", help="Requirements file with the versions of the tools to use.")
@click.option("--seconds", type=float, default=10, show_default=True, help="Measuring time for each variant.")
@path_option(
    "--changes", metavar="FILE.md", help="Markdown file with the changes.  [default: BUNDLE.changes.md]"
)
@as_json_option
@click.pass_context
def rebuild(
    ctx: click.Context,
    /,
    bundle: Path,
    output: Path | None,
    tools: Path | None,
    seconds: float,
    changes: Path | None,
    as_json: bool,
    **overrides: Any,
) -> None:
    """Rebuild a bundle with today's tools if it is not worse.

    It is built with today's tools. Variants are compared by their score, their size, and timed against each
    other. Exit code 1: one is worse, or may be slower than is accepted, and BUNDLE is as it was.
    """
    changes = changes or bundle.with_name(f"{bundle.name}.changes.md")
    need_writable(output or bundle, "the bundle")
    need_writable(changes, "the changes")
    from edgekit.batch.change_report import change_markdown, change_text
    from edgekit.batch.rebuild import rebuild as rebuild_bundle
    from edgekit.system.atomic_files import write_atomically

    arguments = arguments_of("BuildRequest", overrides)
    rebuilt = rebuild_bundle(bundle, output, tools=tools, seconds=seconds, **arguments)
    write_atomically(changes, [change_markdown(rebuilt, bundle.name).encode("utf-8")])
    terminal.answer(as_json, {**rebuilt.as_json(), "report": str(changes)}, change_text(rebuilt))
    ctx.exit(1 if rebuilt.worse or rebuilt.unproved else 0)


@bundle.command(writes=True)
@bundle_argument
@click.argument("base", type=click.Path())
@click.argument("new", type=click.Path())
@path_option("-o", "--output", required=True, help="Folder for reference.csv and current.csv.")
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
        report = drift_of(opened, base, new, engine=engine, variant=variant, threads=threads, limit=limit)
    written = [str(path) for path in report.save(output)]
    text = f"{report.text()}\n  written   {', '.join(written)}"
    terminal.answer(as_json, {**report.as_json(), "files": written}, text)


@bundle.command(writes=True)
@bundle_argument
@click.argument("variants", metavar="VARIANT...", nargs=-1, required=True, type=VariantName())
@path_option("-o", "--output", required=True, help="Bundle file to write.")
@as_json_option
def select(bundle: Path, variants: tuple[str, ...], output: Path, as_json: bool) -> None:
    """Write a bundle with some of a bundle's variants.

    It is for devices that need no others: they fetch and store less. Publish it as a model of its own.
    """
    need_writable(output, "the bundle")
    need_replaceable(output)
    from edgekit.bundle.bundle import Bundle
    from edgekit.cli.bundle_text import bundle_json
    from edgekit.release.export.select_variants import select_variants

    with Bundle.open(bundle) as opened:
        selected = select_variants(opened, variants)
        selected.save(output)
    sizes = [path.stat().st_size / 1e6 for path in (output, bundle)]
    text = f"  written   {output}  {sizes[0]:.1f} of {sizes[1]:.1f} MB, with {', '.join(variants)}"
    terminal.answer(
        as_json, bundle_json(selected, output), f"{text}\n  sign it   edgekit release sign {output}"
    )


@bundle.command()
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
    answer = {**logged._asdict(), "parameters": record.parameters, "metrics": record.metrics, "files": names}
    terminal.answer(as_json, answer, "\n".join(lines))
