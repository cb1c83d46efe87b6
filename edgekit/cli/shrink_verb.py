"""The verb that makes a model smaller."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    as_json_option,
    need_writable,
)
from edgekit.cli.command_group import main
from edgekit.cli.request_options import arguments_of, request_options, shrink_request
from edgekit.errors import UsageError


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="ONNX file to write.")
@request_options(shrink_request)
@click.option("--force", is_flag=True, help="Write the model even if no engine runs it faster.")
@as_json_option
@click.pass_context
def shrink(
    ctx: click.Context,
    /,
    model: Path,
    output: Path,
    force: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Prune channels of a model, without training.

    Those that cost the least accuracy go, and the weights that are left are fitted on the samples. A third of
    the samples is held out, and the result is judged on those. It is timed against MODEL on the engines of
    -t, or on all that are installed, and written only if one of them runs it faster.
    """
    need_writable(output, "the model")
    if output.suffix.lower() != ".onnx":
        raise UsageError(f"{output} is to be an ONNX file: end its name in .onnx")
    from edgekit import shrink as shrink_model

    arguments = arguments_of(shrink_request(), given)
    found = shrink_model(model, **arguments, progress=terminal.stage)
    kept = found.faster or force
    if kept:
        found.save(output)
    click.echo("", err=True)
    ending = f"  {output}\n  next: edgekit build {quote(str(output))}" if kept else "  nothing was written"
    written = str(output) if kept else None
    terminal.answer(as_json, {"onnx": written, **found.as_json()}, f"{found.text()}\n\n{ending}")
    ctx.exit(0 if kept else 1)
