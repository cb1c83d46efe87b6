"""Listing, installation and removal of toolchains, for ``edgekit toolchain``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgekit.compiler.toolchains.declaration import Toolchain, toolchains
from edgekit.compiler.toolchains.engine_releases import installed_releases, named_toolchain
from edgekit.compiler.toolchains.environment import installed
from edgekit.compiler.toolchains.install import install, remove
from edgekit.errors import UsageError
from edgekit.system.formats.plain_text import table

ASK = "Do you accept these terms?"


def toolchain_rows() -> list[dict[str, Any]]:
    """Return every toolchain: ``{name, status, purpose, folder, size_mb, install}``. ``install`` is None if
    the toolchain is installed."""
    return [_row(toolchain) for toolchain in (*toolchains().values(), *installed_releases())]


def toolchain_words(row: Mapping[str, Any]) -> str:
    """Return a row as a line."""
    return f"{row['name']}: {row['status']}; {row['purpose']}" + (
        f": {row['install']}" if row["install"] else ""
    )


def toolchains_text(rows: list[dict[str, Any]]) -> str:
    """Format the output of ``edgekit toolchain list``."""
    if not rows:
        return "  no installed target has a toolchain"
    lines = [(r["name"], r["status"], f"{r['size_mb']:,} MB", r["purpose"], r["folder"] or "-") for r in rows]
    missing = [f"  missing   {r['name']}: {r['install']}" for r in rows if r["install"]]
    return "\n".join(
        [*table(("toolchain", "status", "size", "what it does", "folder"), lines), "", *missing]
    ).rstrip()


def install_toolchain(name: str, accepts: Callable[[Toolchain], bool]) -> dict[str, Any]:
    """Install a toolchain, once its terms are accepted.

    Args:
        name: Name of the toolchain.
        accepts: Function that shows the terms and returns whether they are accepted; not called if installed.

    Raises:
        UsageError: there is no toolchain of that name, or its terms were not accepted.
        ToolchainError: it could not be installed.
    """
    toolchain = named_toolchain(name)
    if installed(toolchain) is None:
        if toolchain.terms and not accepts(toolchain):
            raise UsageError(
                f"{toolchain.terms.strip()}\n"
                f"the terms of {name} were not accepted, so nothing was installed: read them above, and "
                "accept them with --accept-terms"
            )
        install(toolchain)
    return _row(toolchain)


def remove_toolchain(name: str) -> dict[str, Any]:
    """Remove a toolchain's environments.

    Raises:
        UsageError: there is none of that name.
    """
    toolchain = named_toolchain(name)
    return {**_row(toolchain), "status": "missing", "folder": None, "removed": remove(toolchain)}


def _row(toolchain: Toolchain) -> dict[str, Any]:
    environment = installed(toolchain)
    return {
        "name": toolchain.name,
        "status": "ok" if environment is not None else "missing",
        "purpose": toolchain.purpose,
        "folder": None if environment is None else str(environment.folder),
        "size_mb": toolchain.size_mb,
        "install": None if environment is not None else toolchain.install,
    }
