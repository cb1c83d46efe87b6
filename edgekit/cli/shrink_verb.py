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
from edgekit.cli.request_options import OPENING, arguments_of, build_request, request_options
from edgekit.errors import UsageError


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--flops", metavar="-20%", help="How many multiplications fewer.")
@click.option("--size", metavar="-30%", help="How many bytes of weights fewer.")
@click.option(
    "--latency", metavar="-25%@TARGET", help="How much less latency, measured here on TARGET's engine."
)
@click.option(
    "--samples",
    metavar="PATH",
    required=True,
    help="Folder or glob of .npz or .npy files or, with a card, images and videos.",
)
@click.option("--card", type=click.Path(path_type=Path), help="card.toml: pre- and post-processing of MODEL.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="ONNX file to write.")
@request_options(build_request, only=("targets", *OPENING))
@click.option("--force", is_flag=True, help="Write the model even if no engine runs it faster.")
@as_json_option
@click.pass_context
def shrink(
    ctx: click.Context,
    /,
    model: Path,
    flops: str | None,
    size: str | None,
    latency: str | None,
    samples: str,
    card: Path | None,
    output: Path,
    targets: tuple[str, ...],
    force: bool,
    as_json: bool,
    **opening: Any,
) -> None:
    """Remove channels of MODEL, without training.

    Those that cost the least accuracy go, and the weights that are left are fitted on the samples. A third of
    the samples is held out, and the result is judged on those. It is timed against MODEL on the engines of
    -t, or on all that are installed, and written only if one of them runs it faster.
    """
    need_writable(output, "the model")
    if output.suffix.lower() != ".onnx":
        raise UsageError(f"{output} is to be an ONNX file: end its name in .onnx")
    from edgekit import shrink as shrink_model

    found = shrink_model(
        model,
        samples=samples,
        flops=flops,
        size=size,
        latency=latency,
        card=card,
        targets=targets,
        **arguments_of(build_request(), opening),
        progress=terminal.stage,
    )
    kept = found.faster or force
    if kept:
        found.save(output)
    click.echo("", err=True)
    ending = f"  {output}\n  next: edgekit build {quote(str(output))}" if kept else "  nothing was written"
    written = str(output) if kept else None
    terminal.answer(as_json, {"onnx": written, **found.as_json()}, f"{found.text()}\n\n{ending}")
    ctx.exit(0 if kept else 1)
