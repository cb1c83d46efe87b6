"""The verb ``evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import (
    BundlePath,
    as_json_option,
    engine_option,
    path_option,
    threads_option,
    variant_option,
)
from edgekit.cli.command_group import main
from edgekit.cli.device_verbs import device_option, need_device, print_line
from edgekit.system.progress import step


@main.command()
@click.argument("model", metavar="BUNDLE|MODEL", type=BundlePath())
@path_option("--samples", required=True, metavar="DIR", help="Folder of samples and their labels.")
@path_option(
    "--card",
    help="Card (card.toml) that describes the model's pre- and post-processing. A bundle has its own.",
)
@path_option("--source", help="Path of the model. It is evaluated too, and losses are relative to it.")
@engine_option
@variant_option
@threads_option
@device_option
@click.option("-v", "--verbose", is_flag=True, help="List all classes and more of the worst samples.")
@as_json_option
@click.pass_context
def evaluate(
    ctx: click.Context,
    model: Path,
    samples: Path,
    card: Path | None,
    source: Path | None,
    engine: str | None,
    variant: str | None,
    threads: int | None,
    device: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Measure accuracy on labelled samples.

    The task's metric with a 95 % interval for each variant, or for a model with its card: mAP, top-1 and
    others. Labels are YOLO, COCO, VOC and other boxes, a folder for each class, or a table.

    For example: edgekit evaluate detector.edgekit --samples val --source detector.onnx
    """
    from edgekit.compiler.accuracy.evaluate import evaluate as evaluate_model

    options: dict[str, Any] = {"card": card, "variant": variant, "engine": engine, "threads": threads}
    if device is None:
        evaluation = evaluate_model(model, samples, source=source, **options)
    else:
        from edgekit.devices.evaluate import evaluate_on

        need_device(device, False, {"--source": source})
        with step("measuring") as notify:
            notify(device)
            evaluation = evaluate_on(device, model, samples, print_line, **options)
    terminal.answer(as_json, evaluation.as_json(), evaluation.text(verbose))
    ctx.exit(0 if evaluation.ran else 3)
