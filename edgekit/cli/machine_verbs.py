"""The verbs about this machine: which engines and targets it has."""

from __future__ import annotations

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option
from edgekit.cli.command_group import main


@main.command()
@as_json_option
def targets(as_json: bool) -> None:
    """List engines and device profiles.

    For a missing engine, shows the pip command that installs it.
    """
    from edgekit.cli import doctor

    rows = doctor.targets()
    terminal.answer(as_json, {"targets": rows}, doctor.targets_text(rows))


@main.command()
@as_json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Show this machine's engines, CPU, memory and governor."""
    from edgekit.cli import doctor as examine

    engines = examine.engines()
    report = examine.doctor(engines)
    terminal.answer(as_json, report, examine.doctor_text(report))
    ctx.exit(1 if any(engine.broken for engine in engines) else 0)
