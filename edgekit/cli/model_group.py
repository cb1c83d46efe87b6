"""The group ``model``: what is done with a model before it is built."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import ModelPath, as_json_option, need_writable, path_argument, path_option
from edgekit.cli.command_group import main
from edgekit.cli.request_options import (
    OPENING,
    arguments_of,
    given_beside,
    request_options,
)
from edgekit.errors import UsageError
from edgekit.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from edgekit.compiler.hub.address import HubAddress
    from edgekit.compiler.pipeline.distil import DistilledModel
    from edgekit.generate.host.distil.distil_draft import DistilledDraft


@main.group()
def model() -> None:
    """Import, describe, shrink and distil models."""


@model.command("import", writes=True)
@path_argument("model")
@path_option("-o", "--output", required=True, help="ONNX file to write.")
@request_options("BuildRequest", only=OPENING)
@as_json_option
def import_command(model: Path, output: Path, as_json: bool, **opening: Any) -> None:
    """Convert a model of another framework to ONNX.

    Compares the two where the framework is installed. check and build take MODEL as it is, and do the same.
    """
    need_writable(output, "the model")
    if output.suffix.lower() != ".onnx":
        raise UsageError(f"{output} must be an ONNX file; end its name in .onnx")
    from edgekit import import_model

    imported = import_model(model, **arguments_of("BuildRequest", opening))
    imported.save(output)
    following = f"  next: edgekit check {quote(str(output))}, or edgekit build"
    text = f"{imported.text()}\n\n  {output}\n{following}"
    terminal.answer(as_json, {"onnx": str(output), **imported.as_json()}, text)


@model.command(writes=True)
@click.argument("model", type=ModelPath())
@path_option("-o", "--output", required=True, help="card.toml to write.")
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@request_options("BuildRequest", only=OPENING)
@as_json_option
def card(model: Path | HubAddress, output: Path, overwrite: bool, as_json: bool, **opening: Any) -> None:
    """Draft a card for a model.

    How its input is made and what its outputs mean, read from the model's metadata, its graph and the form of
    its outputs. Each line says why, and those that the model does not settle are marked as guessed.
    """
    need_writable(output, "the card")
    if output.exists() and not overwrite:
        raise UsageError(f"{output} already exists; give --overwrite to replace it, or another name")
    from edgekit import draft_card
    from edgekit.compiler.card_inference.draft import drafted_text

    options = arguments_of("BuildRequest", opening)
    draft = draft_card(model, **options)
    write_atomically(output, [draft.text.encode("utf-8")])
    document = {"card": str(output), "guessed": list(draft.guessed), "content": draft.card.as_json()}
    terminal.answer(as_json, document, drafted_text(draft, model, output, options["trust_pickle"]))


@model.command(writes=True)
@path_argument("model")
@path_option("-o", "--output", required=True, help="ONNX file to write.")
@request_options("ShrinkRequest")
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
    **options: Any,
) -> None:
    """Prune channels of a model, without training.

    Those that cost the least accuracy go, and the weights that are left are fitted on the samples. A third of
    the samples is held out, and the result is judged on those. It is timed against MODEL on the engines of
    -t, or on all that are installed, and written only if one of them runs it faster.
    """
    need_writable(output, "the model")
    if output.suffix.lower() != ".onnx":
        raise UsageError(f"{output} must be an ONNX file; end its name in .onnx")
    from edgekit import shrink as shrink_model

    arguments = arguments_of("ShrinkRequest", options)
    shrunk = shrink_model(model, **arguments)
    saved = shrunk.faster or force
    if saved:
        shrunk.save(output)
    if not as_json:
        click.echo("", err=True)
    ending = f"  {output}\n  next: edgekit build {quote(str(output))}" if saved else "  nothing was written"
    written = str(output) if saved else None
    terminal.answer(as_json, {"onnx": written, **shrunk.as_json()}, f"{shrunk.text()}\n\n{ending}")
    ctx.exit(0 if saved else 1)


@model.command(
    writes=True,
    headings={"Draft model": "draft layers", "Advanced": "force"},
)
@path_argument("teacher")
@path_option("-o", "--output", required=True, help="ONNX file to write; with --train-draft a folder.")
@click.option(
    "--train-draft",
    "draft",
    is_flag=True,
    help="TEACHER is a language model: train a draft model from a few of its layers, for build --draft.",
)
@request_options("DraftRequest", only=("layers",))
@request_options("DistilRequest", required=False)
@click.option("--force", is_flag=True, help="Write the model even if it is not better than before.")
@as_json_option
@click.pass_context
def distil(
    ctx: click.Context,
    /,
    teacher: Path,
    output: Path,
    draft: bool,
    force: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Distil a model into a smaller one.

    It runs on the CPU, in PyTorch (extra train), on samples without labels. Some of them are held out: they
    choose the best weights and judge the result, which is written only if it is better than before. Ctrl-C
    ends the training and keeps the best so far; --resume goes on.
    """
    if draft:
        named = given_beside("DraftRequest", "DistilRequest", options)
        if named:
            raise UsageError(f"{', '.join(named)}: not available with --train-draft; remove it")
        ctx.exit(_draft(teacher, output, force, as_json, arguments_of("DraftRequest", options)))
    if options["layers"] is not None:
        raise UsageError("--layers needs --train-draft")
    if options["student"] is None or options["samples"] is None:
        raise UsageError("give --student and --samples, or --train-draft for a language model")
    need_writable(output, "the model")
    if output.suffix.lower() != ".onnx":
        raise UsageError(f"{output} must be an ONNX file; end its name in .onnx")
    if options["epochs"] is None and options["minutes"] is None:
        raise UsageError("the training has no time limit; give --epochs, --minutes or both")
    from edgekit import distil as distil_model

    checkpoint = output.with_name(f"{output.name}.checkpoint")
    arguments = arguments_of("DistilRequest", options)
    distilled = distil_model(teacher, **arguments, checkpoint=checkpoint)
    saved = _end(distilled, output, checkpoint, force)
    if not as_json:
        click.echo("", err=True)
    written = f"  {output}\n  next: edgekit build {quote(str(output))}"
    ending = _ending(written if saved else "", distilled, checkpoint)
    document = {"onnx": str(output) if saved else None, **distilled.as_json()}
    terminal.answer(as_json, document, f"{distilled.text()}\n\n{ending}")
    ctx.exit(0 if saved else 1)


def _draft(model: Path, output: Path, force: bool, as_json: bool, options: dict[str, Any]) -> int:
    if output.exists() and not (output.is_dir() and (force or not any(output.iterdir()))):
        raise UsageError(f"{output} already exists; give --force to write into it, or another folder")
    need_writable(output, "the draft")
    if not options.keys() & {"epochs", "minutes"}:
        raise UsageError("the training has no time limit; give --epochs, --minutes or both")
    from edgekit.generate.host.distil.distil_draft import distil_draft

    checkpoint = output.with_name(f"{output.name}.checkpoint")
    distilled = distil_draft(model, checkpoint=checkpoint, **options)
    saved = _end(distilled, output, checkpoint, force)
    if not as_json:
        click.echo("", err=True)
    written = f"  {output}\n  next: edgekit build {quote(str(model))} --draft {quote(str(output))}"
    ending = _ending(written if saved else "", distilled, checkpoint)
    document = {"folder": str(output) if saved else None, **distilled.as_json()}
    terminal.answer(as_json, document, f"{distilled.text()}\n\n{ending}")
    return 0 if saved else 1


def _end(trained: DistilledDraft | DistilledModel, output: Path, checkpoint: Path, force: bool) -> bool:
    """Write what was trained if it is better, or forced. Returns whether it was."""
    saved = trained.better or force
    if saved:
        trained.save(output)
    if trained.finished:
        checkpoint.unlink(missing_ok=True)
    return saved


def _ending(written: str, trained: DistilledDraft | DistilledModel, checkpoint: Path) -> str:
    """Return the end of the output: written files, and the next step."""
    ending = written or "  nothing was written"
    if not trained.finished:
        ending += f"\n  {checkpoint} is kept: the same command with --resume goes on"
    return ending
