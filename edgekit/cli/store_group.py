"""The verbs of a device's store: bundles from a file, a folder or a USB stick, without a network."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import F, as_json_option, path_argument, path_option
from edgekit.cli.command_group import main
from edgekit.cli.release_group import signature_options
from edgekit.errors import UsageError

ROLLED_BACK = "rolled back by hand"


@main.group()
def store() -> None:
    """Update and roll back the bundles of a device."""


def store_options(verb: F) -> F:
    """``--store`` and ``--name``."""
    name = click.option("--name", help="Name of the model, if the store holds several.")
    store = path_option("--store", required=True, help="Folder of the device's store.")
    return store(name(verb))


@store.command(
    headings={"Advanced": "factory device_id proxy max_size every dry_run"},
)
@store_options
@click.option("--repo-url", required=True, help="URL of the repository, e.g. https://host/models.")
@click.option("--channel", required=True, help="Channel, e.g. stable.")
@click.option(
    "--model",
    metavar="NAME",
    default="",
    help="Name of the model.  [default: the channel's only model, or the installed one]",
)
@path_option("--root", help="Trusted 1.root.json of the repository, shipped with the device; needed once.")
@path_option("--factory", help="Bundle shipped with the device, as a base for deltas.")
@path_option(
    "--key",
    "keys",
    multiple=True,
    help="Public key in PEM; repeatable. The bundle is accepted only if one of them signed it.",
)
@click.option(
    "--device-id",
    default="",
    help="Device id for staged rollouts; it is not sent.  [default: a random one, kept]",
)
@click.option(
    "--proxy", default="", help="Proxy, http://host:port. Variables of the environment are ignored."
)
@click.option(
    "--max-size-mb", "max_size", type=int, default=2048, show_default=True, help="Maximum size of a bundle."
)
@click.option(
    "--every", default="", help="Keep running, and check at random intervals of this average length: 15m, 1h."
)
@click.option("--dry-run", is_flag=True, help="Print what would be installed, and install nothing.")
@as_json_option
def update(
    store: Path,
    name: str | None,
    repo_url: str,
    channel: str,
    model: str,
    root: Path | None,
    factory: Path | None,
    keys: tuple[Path, ...],
    device_id: str,
    proxy: str,
    max_size: int,
    every: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Install the latest published bundle.

    What is signed and is for this device is installed. The store's bundle answers meanwhile; the new one is
    loaded at the app's next start.
    """
    if every:
        from edgekit.release.updates import polling

        arguments = polling.without_every(sys.argv[1:])
        polling.poll(lambda: polling.run_child(arguments), polling.interval_s(every))
    from edgekit.release.updates.http_files import HttpFiles
    from edgekit.release.updates.update import update as run
    from edgekit.runtime.store.bundle_store import Store

    opened = Store(store, factory, keys or None, name=name)
    files = HttpFiles(repo_url, proxy)
    done = run(
        opened, files, channel, model, root, device_id, size_limit_bytes=max_size << 20, dry_run=dry_run
    )
    document = {
        "outcome": done.outcome,
        "channel": channel,
        "model": done.model,
        "release": done.release,
        "bundle": done.bundle,
        "fetched_bytes": done.fetched_bytes,
        "notes": list(done.notes),
    }
    subject = f"release {done.release} of {done.model}" if done.release else done.model
    more = f", {done.fetched_bytes / 1e6:.2f} MB fetched" if done.fetched_bytes else ""
    lines = [f"  {done.outcome}  {subject}, channel {channel}{more}"]
    lines += [f"  note  {note}" for note in done.notes]
    if done.outcome == "installed":
        lines.append("  the app loads it at its next start")
    terminal.answer(as_json, document, "\n".join(lines))


@store.command()
@path_argument("bundle", metavar="BUNDLE|FOLDER")
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
    from edgekit.runtime.store import commands as stores
    from edgekit.runtime.store.bundle_store import Store

    if signature is not None and not keys:
        raise UsageError("--signature needs --key, a public key")
    path = stores.find_bundle(bundle, name)
    opened = Store(store, None, keys or None, name=name)
    digest = opened.install(path, signature, version=bundle_version)
    document = {"bundle": str(path), "digest": digest, "phase": opened.state.phase(digest)}
    lines = [f"  {path}  {digest[:12]} is {document['phase']} in {store}"]
    lines.append("  it runs from the app's next start on, and is committed when it has shown that it works")
    terminal.answer(as_json, document, "\n".join(lines))


@store.command()
@store_options
@as_json_option
def status(store: Path, name: str | None, as_json: bool) -> None:
    """Show the bundles of the store.

    Each is staged, a candidate, committed, the previous one or given up.
    """
    from edgekit.runtime.store import commands as stores

    store_status = stores.status(store, name)
    terminal.answer(as_json, store_status, stores.status_text(store_status))


@store.command()
@store_options
@as_json_option
def commit(store: Path, name: str | None, as_json: bool) -> None:
    """Commit the candidate bundle."""
    from edgekit.runtime.store import commands as stores

    digest = stores.commit(stores.opened(store, name))
    terminal.answer(as_json, {"committed": digest}, f"  {digest[:12]} is committed")


@store.command()
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
