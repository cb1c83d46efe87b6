"""The verbs of a device's store: bundles from a file, a folder or a USB stick, without a network."""

from __future__ import annotations

from pathlib import Path

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import F, as_json_option
from edgekit.cli.command_group import main
from edgekit.cli.trust_verbs import signature_options

ROLLED_BACK = "rolled back by hand"


def store_options(verb: F) -> F:
    """``--store`` and ``--name``."""
    name = click.option("--name", help="Name of the model, if the store holds several.")
    store = click.option(
        "--store", required=True, type=click.Path(path_type=Path), help="Folder of the device's store."
    )
    return store(name(verb))


@main.command()
@click.argument("bundle", metavar="BUNDLE|FOLDER", type=click.Path(path_type=Path))
@store_options
@click.option(
    "--bundle-version",
    type=click.IntRange(0),
    help="Version number, which must rise with each release.  [default: the one in BUNDLE]",
)
@signature_options
@as_json_option
def install(
    bundle: Path,
    store: Path,
    name: str | None,
    bundle_version: int | None,
    keys: tuple[Path, ...],
    signature: Path | None,
    as_json: bool,
) -> None:
    """Stage a bundle from a file or a USB stick.

    The app's next start takes it. FOLDER, e.g. a USB stick, is searched for it. Every byte is checked, and
    what runs is not touched.
    """
    from edgekit.errors import UsageError
    from edgekit.runtime.store import commands as stores
    from edgekit.runtime.store.bundle_store import Store

    if signature is not None and not keys:
        raise UsageError("--signature is checked with a public key: give --key")
    path = stores.find_bundle(bundle, name)
    opened = Store(store, None, keys or None, name=name)
    digest = opened.install(path, signature, version=bundle_version)
    found = {"bundle": str(path), "digest": digest, "phase": opened.state.phase(digest)}
    lines = [f"  {path}  {digest[:12]} is {found['phase']} in {store}"]
    lines.append("  it runs from the app's next start on, and is committed when it has shown that it works")
    terminal.answer(as_json, found, "\n".join(lines))


@main.command()
@store_options
@as_json_option
def status(store: Path, name: str | None, as_json: bool) -> None:
    """Show the bundles of the store.

    Each is staged, a candidate, committed, the previous one or given up.
    """
    from edgekit.runtime.store import commands as stores

    found = stores.status(store, name)
    terminal.answer(as_json, found, stores.status_text(found))


@main.command()
@store_options
@as_json_option
def commit(store: Path, name: str | None, as_json: bool) -> None:
    """Commit the candidate bundle."""
    from edgekit.runtime.store import commands as stores

    digest = stores.commit(stores.opened(store, name))
    terminal.answer(as_json, {"committed": digest}, f"  {digest[:12]} is committed")


@main.command()
@store_options
@click.option("--reason", default=ROLLED_BACK, help="Reason, stored with the rejected bundle.")
@as_json_option
def rollback(store: Path, name: str | None, reason: str, as_json: bool) -> None:
    """Reject the newest bundle and return to the one before.

    The one before it is used again, at last the factory's.
    """
    from edgekit.runtime.store import commands as stores

    digest, now = stores.rollback(stores.opened(store, name), reason)
    text = f"  {digest[:12]} is given up; the next start takes {now[:12] or 'the factory bundle'}"
    terminal.answer(as_json, {"given_up": digest, "next": now}, text)
