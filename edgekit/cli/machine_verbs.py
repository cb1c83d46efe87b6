"""The verbs about this machine: which engines and targets it has."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option
from edgekit.cli.command_group import main
from edgekit.errors import UsageError

if TYPE_CHECKING:
    from edgekit.compiler.toolchains.declaration import Toolchain


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
    found = examine.doctor(engines)
    terminal.answer(as_json, found, examine.doctor_text(found))
    ctx.exit(1 if any(engine.broken for engine in engines) else 0)


@main.command()
@click.argument("action", type=click.Choice(["list", "install", "remove"]))
@click.argument("name", required=False)
@click.option("--accept-terms", is_flag=True, help="Accept the vendor's terms, which are printed otherwise.")
@as_json_option
def toolchain(action: str, name: str | None, accept_terms: bool, as_json: bool) -> None:
    """List, install or remove vendor compilers.

    Each needs a Python environment of its own, made in the cache from a lock file with hashes.
    """
    from edgekit.compiler.toolchains import list_toolchains as toolchains

    if action == "list":
        if name is not None or accept_terms:
            raise UsageError("edgekit toolchain list takes no name and no terms")
        rows = toolchains.toolchain_rows()
        terminal.answer(as_json, {"toolchains": rows}, toolchains.toolchains_text(rows))
        return
    if name is None:
        raise UsageError(f"edgekit toolchain {action} needs a name; edgekit toolchain list has them")
    if action == "remove":
        found = toolchains.remove_toolchain(name)
        gone = f"  {name} was removed" if found["removed"] else f"  {name} is not installed"
        terminal.answer(as_json, found, gone)
        return

    def accepts(asked: Toolchain) -> bool:
        if accept_terms:
            return True
        if as_json or not sys.stdin.isatty():
            return False
        click.echo(asked.terms.strip(), err=True)
        return click.confirm(toolchains.ASK, err=True)

    found = toolchains.install_toolchain(name, accepts, lambda line: click.echo(f"  {line}", err=True))
    terminal.answer(as_json, found, f"  {name} is installed in {found['folder']}")
