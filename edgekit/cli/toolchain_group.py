"""The group ``toolchain``: vendors' compilers and releases of engines, in environments of their own."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option
from edgekit.cli.command_group import main

if TYPE_CHECKING:
    from edgekit.compiler.toolchains.declaration import Toolchain


@main.group()
def toolchain() -> None:
    """Install vendors' compilers and older engines.

    Each has a Python environment of its own in the cache. A compiler's packages are locked, with hashes. An
    engine's release, e.g. onnxruntime==1.17, is for edgekit build --runtime.
    """


@toolchain.command("list")
@as_json_option
def list_command(as_json: bool) -> None:
    """List them and where they are installed."""
    from edgekit.compiler.toolchains import list_toolchains as toolchains

    rows = toolchains.toolchain_rows()
    terminal.answer(as_json, {"toolchains": rows}, toolchains.toolchains_text(rows))


@toolchain.command()
@click.argument("name")
@click.option("--accept-terms", is_flag=True, help="Accept the vendor's terms, which are printed otherwise.")
@as_json_option
def install(name: str, accept_terms: bool, as_json: bool) -> None:
    """Install a vendor's compiler, or a release of an engine."""
    from edgekit.compiler.toolchains import list_toolchains as toolchains

    def accepts(toolchain: Toolchain) -> bool:
        if accept_terms:
            return True
        if as_json or not sys.stdin.isatty():
            return False
        click.echo(toolchain.terms.strip(), err=True)
        return click.confirm(toolchains.ASK, err=True)

    installed = toolchains.install_toolchain(name, accepts)
    terminal.answer(as_json, installed, f"  {name} is installed in {installed['folder']}")


@toolchain.command()
@click.argument("name")
@as_json_option
def remove(name: str, as_json: bool) -> None:
    """Remove what was installed."""
    from edgekit.compiler.toolchains import list_toolchains as toolchains

    removal = toolchains.remove_toolchain(name)
    gone = f"  {name} was removed" if removal["removed"] else f"  {name} is not installed"
    terminal.answer(as_json, removal, gone)
