"""The verb that joins a small and a large classifier."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, need_replaceable, need_writable
from edgekit.cli.command_group import main


@main.command()
@click.argument("small", type=click.Path(path_type=Path))
@click.argument("large", type=click.Path(path_type=Path), required=False)
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
    required=True,
    help="Folder or glob of .npz or .npy files, images or videos that neither model was trained on.",
)
@click.option("--small", "small_variant", metavar="VARIANT", help="Variant of SMALL.  [default: the fastest]")
@click.option(
    "--large", "large_variant", metavar="VARIANT", help="Variant of LARGE.  [default: the most accurate]"
)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="Bundle file to write.")
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

    found = defer_to(
        small,
        large,
        samples=samples,
        disagreement=disagreement,
        confidence=confidence,
        small_variant=small_variant,
        large_variant=large_variant,
        progress=terminal.stage,
    )
    click.echo("", err=True)
    if found.bundle is not None:
        found.bundle.save(output)
    ending = (
        f"  {output}\n  next: edgekit verify {quote(str(output))}"
        if found.bundle
        else "  nothing was written"
    )
    written = str(output) if found.bundle is not None else None
    terminal.answer(as_json, {"bundle": written, **found.as_json()}, f"{found.text()}\n\n{ending}")
    ctx.exit(0 if found.worthwhile else 1)
