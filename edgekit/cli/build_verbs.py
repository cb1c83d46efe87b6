"""The verbs that take a model: check and build."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    ModelPath,
    as_json_option,
    below,
    need_replaceable,
    need_writable,
    path_option,
    verbose_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.request_options import OPENING, arguments_of, request_options
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.compiler.hub.address import HubAddress


@main.command()
@click.argument("model", type=ModelPath())
@request_options("BuildRequest", only=("targets", *OPENING))
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "github"]),
    default="text",
    show_default=True,
    help="Format of the findings. github: annotations of a GitHub Actions run.",
)
@as_json_option
@click.pass_context
def check(
    ctx: click.Context,
    /,
    model: Path | HubAddress,
    targets: tuple[str, ...],
    form: str,
    as_json: bool,
    **opening: Any,
) -> None:
    """List nodes that a target can't run or runs slowly.

    Nothing is compiled. Without -t, checks every target whose compiler is installed.
    """
    from edgekit import check as check_model
    from edgekit.diagnostics import as_annotations, check_text, errors
    from edgekit.target.installed_profiles import profile_names

    if as_json and form != "text":
        raise UsageError("--format does not go with --json")
    options = arguments_of("BuildRequest", opening)
    findings = check_model(model, list(targets) or None, **options)
    refused = bool(errors(findings))
    if form == "github":
        click.echo("\n".join(as_annotations(str(model), findings)), nl=bool(findings))
        ctx.exit(1 if refused else 0)
    names = targets or sorted(set(profile_names().values()))
    text = check_text(model, names, findings, options["shapes"], options["trust_pickle"])
    terminal.answer(as_json, {"ok": not refused, "findings": [f.as_json() for f in findings]}, text)
    ctx.exit(1 if refused else 0)


@main.command(writes=True, left="nothing was written", headings={"Advanced": "bundle_version"})
@click.argument("model", type=ModelPath())
@path_option("-o", "--output", help="Bundle file to write.  [default: MODEL.edgekit in the current folder]")
@request_options("BuildRequest")
@click.option("--recursive", is_flag=True, help="Take samples from the folders below --samples too.")
@path_option("--report", metavar="FILE.html", help="Write a report to this .html file.")
@click.option(
    "--bundle-version",
    type=click.IntRange(0),
    help="Version number, which must rise with each release.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@verbose_option
@as_json_option
@click.pass_context
def build(
    ctx: click.Context,
    /,
    model: Path | HubAddress,
    output: Path | None,
    recursive: bool,
    report: Path | None,
    bundle_version: int | None,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Compile a model, verify every variant, write a bundle.

    Every variant is run and compared with the source model. Inaccurate or slower variants are rejected, and
    the report says by how much.

    For example: edgekit build detector.onnx -t ort -t tflite
    """
    if not options["targets"] and isinstance(model, Path):
        from edgekit.target.model_packages import package_target

        options["targets"] = tuple(filter(None, [package_target(model)]))
    if not options["targets"]:
        raise UsageError(
            "no target given: use -t at least once, e.g. -t ort -t tflite (run edgekit targets for a list)"
        )
    output = output or Path(f"{model.stem}.edgekit")
    need_writable(output, "the bundle")
    need_replaceable(output)
    if report is not None:
        from edgekit.report.page import need_page

        need_page(report)
        need_writable(report, "the page")
    from edgekit import build as build_bundle
    from edgekit.cli.bundle_text import built_text, bundle_json, faults

    arguments, began_s = arguments_of("BuildRequest", options), time.monotonic()
    if recursive:
        arguments["samples"] = below(arguments.get("samples"))
    bundle = build_bundle(model, **arguments)
    if bundle_version is not None:
        from edgekit.bundle.model_version import with_version

        bundle = with_version(bundle, bundle_version)
    bundle.save(output)
    if report is not None:
        bundle.name = str(output)  # as the page of an opened one calls it
        bundle.report(report)
    if not (quiet or as_json):
        click.echo("", err=True)
    bugs = faults(bundle)
    document = {**bundle_json(bundle, output), "faults": bugs}
    text = built_text(bundle, output, time.monotonic() - began_s, quiet=quiet, verbose=verbose)
    terminal.answer(as_json, document, text)
    lost = [v.name for v in bundle.variants if v.rejected and v.shrunk is None]
    rejected = bool(lost) and options["precision"] != "auto"
    if rejected and not (quiet or as_json):
        click.echo(f"exit code 1: the build rejected {', '.join(lost)}", err=True)
    ctx.exit(1 if rejected or bugs else 0)
