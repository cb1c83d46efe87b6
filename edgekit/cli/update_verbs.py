"""The verbs of updates: publish bundles as a TUF repository or in an OCI image layout, and update a
device's store from one."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option
from edgekit.cli.command_group import main
from edgekit.errors import UsageError

ACTIONS = ("init", "add_channel", "rotate", "refresh", "stop", "resume", "withdraw")


@main.command()
@click.argument("bundle", type=click.Path(path_type=Path), required=False)
@click.option("--repo", type=click.Path(path_type=Path), help="Folder that is served.")
@click.option("--keys", type=click.Path(path_type=Path), help="Folder with the keys of each publication.")
@click.option(
    "--offline-keys",
    type=click.Path(path_type=Path),
    help="Folder with the keys of root and targets: for --init, --add-channel, --rotate, yearly --refresh.",
)
@click.option("--channel", "channels", multiple=True, help="Channel, e.g. stable; with --init repeatable.")
@click.option("--name", default="", help="The model's name; default: BUNDLE's, or the channel's only one.")
@click.option("--rollout", type=float, help="Percent of the devices that install it. Default: 100.")
@click.option("--keep", type=int, default=5, show_default=True, help="Releases that the channel names.")
@click.option(
    "--deltas", type=int, default=2, show_default=True, help="Releases before it that get a difference."
)
@click.option("--init", is_flag=True, help="Make the repository, its keys and channels.")
@click.option("--add-channel", default="", help="Make one more channel.")
@click.option("--withdraw", type=int, help="Release that is not to be installed any more.")
@click.option("--stop", is_flag=True, help="Stop all installs of the channel.")
@click.option("--resume", is_flag=True, help="Let the installs of the channel go on.")
@click.option("--reason", default="", help="Of --stop or --withdraw; devices show it.")
@click.option("--refresh", is_flag=True, help="Sign again what would expire; run it daily.")
@click.option("--rotate", default="", help="Role whose key is replaced: a channel, timestamp, root, ...")
@click.option(
    "--oci",
    type=click.Path(path_type=Path),
    help="Instead of --repo: OCI image layout, a folder that oras or skopeo push to a container registry.",
)
@click.option("--tag", default="latest", show_default=True, help="With --oci: the artifact's tag.")
@as_json_option
def publish(
    bundle: Path | None,
    repo: Path | None,
    keys: Path | None,
    offline_keys: Path | None,
    channels: tuple[str, ...],
    oci: Path | None,
    tag: str,
    as_json: bool,
    **asked: Any,
) -> None:
    """Publish BUNDLE to devices, by TUF or as an OCI artifact.

    A TUF repository (--repo) has channels, rollouts and deltas; an OCI image layout (--oci) is pushed to a
    container registry. Or change what is published: without BUNDLE, --rollout changes the newest release of
    the channel. The folder holds plain files only: any web server or object store serves it.
    """
    if oci is not None:
        _refuse_others("oci", "bundle", "tag", "name", "as_json")
        _publish_oci(oci, bundle, tag, asked["name"], as_json)
        return
    if repo is None or keys is None:
        raise UsageError("give --repo and --keys, or --oci")
    _refuse_given(["tag"], "needs --oci")
    from edgekit.updates.repository import Repository
    from edgekit.updates.repository_keys import RoleKeys

    action = _action(bundle, asked)
    channel = _channel(action, channels)
    repository = Repository(repo, RoleKeys(keys, offline_keys, repo))
    found: dict[str, Any] = {"repository": str(repo), "done": action, "channel": channel}
    found |= _DO[action](repository, bundle, list(channels), channel, asked)
    lines = [f"  {found['text']}"] + [f"  note  {note}" for note in found.get("notes", ())]
    if action == "init":
        lines.append(
            f"  next: edgekit publish BUNDLE --repo {repo} --keys {keys} --channel {found['channels'][0]}"
        )
    terminal.answer(as_json, found, "\n".join(lines))


def _publish_oci(folder: Path, bundle: Path | None, tag: str, name: str, as_json: bool) -> None:
    from edgekit.updates.oci_publishing import publish as add

    if bundle is None:
        raise UsageError("give the BUNDLE that is published")
    made = add(folder, bundle, tag, name)
    found = {
        "layout": str(folder),
        "done": "publish",
        "tag": tag,
        "digest": made.digest,
        "file": made.file,
        "size_bytes": made.size_bytes,
        "signed": made.signature is not None,
    }
    lines = [f"  {folder}:{tag}  {made.digest}", f"  {made.file}, {made.size_bytes / 1e6:.2f} MB"]
    lines[1] += ", with its signature" if made.signature is not None else ", not signed"
    lines.append(f"  next: oras cp --from-oci-layout {folder}:{tag} REGISTRY/NAME:{tag}")
    terminal.answer(as_json, found, "\n".join(lines))


def _refuse_others(option: str, *allowed: str) -> None:
    """Refuse what was given on the command line besides an option and what goes with it."""
    others = click.get_current_context().params.keys() - {option, *allowed}
    _refuse_given(others, f"does not go with --{option}")


def _refuse_given(names: Collection[str], why: str) -> None:
    context = click.get_current_context()
    for each in context.command.params:
        given = context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
        if given and each.name in names:
            raise UsageError(f"{each.opts[0]} {why}")


def _action(bundle: Path | None, asked: dict[str, Any]) -> str:
    actions = [name for name in ACTIONS if asked[name] not in ("", False, None)]
    actions += ["publish"] if bundle is not None else []
    if not actions and asked["rollout"] is not None:
        return "rollout"
    if len(actions) != 1:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in ACTIONS)
        raise UsageError(f"give one of BUNDLE, --rollout, {options}")
    if asked["reason"] and actions[0] not in ("stop", "withdraw"):
        raise UsageError("--reason belongs to --stop or --withdraw")
    if asked["rollout"] is not None and actions[0] != "publish":
        raise UsageError(f"--rollout does not go with --{actions[0].replace('_', '-')}")
    return actions[0]


def _channel(action: str, channels: tuple[str, ...]) -> str:
    if action == "init":
        return ""
    if action in ("add_channel", "rotate", "refresh"):
        if channels:
            raise UsageError(f"--channel does not go with --{action.replace('_', '-')}")
        return ""
    if len(channels) != 1:
        raise UsageError("give one --channel")
    return channels[0]


def _init(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    channels = channels or ["stable", "canary"]
    repository.create(channels)
    root = repository.metadata / "1.root.json"
    text = f"{repository.folder}  made, with channels {', '.join(channels)}; devices need a copy of {root}"
    notes = [
        f"keep {repository.keys.offline} off-line, and a copy of it: without root's key nobody can replace it"
    ]
    return {"text": text, "channels": channels, "root": str(root), "notes": notes}


def _publish(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.updates import publishing

    assert bundle is not None
    percent = 100.0 if asked["rollout"] is None else asked["rollout"]
    done = publishing.publish(
        repository, bundle, channel, asked["name"], percent, asked["keep"], asked["deltas"]
    )
    text = f"{done.target}  release {done.release} for {percent:g} % of the devices of {channel}"
    return {
        "text": text,
        "target": done.target,
        "release": done.release,
        "percent": percent,
        "size_bytes": done.size_bytes,
        "notes": list(done.notes),
    }


def _rollout(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.updates import publishing

    percent = asked["rollout"]
    model, number = publishing.roll_out(repository, channel, asked["name"], percent)
    return {
        "text": f"{model} release {number} is for {percent:g} % of the devices of {channel}",
        "model": model,
        "release": number,
        "percent": percent,
    }


def _withdraw(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.updates import publishing

    reason = asked["reason"] or "its publisher withdrew it"
    model, number = publishing.withdraw(repository, channel, asked["name"], asked["withdraw"], reason)
    text = f"{model} release {number} is withdrawn from {channel}: devices go to the one before it"
    return {"text": text, "model": model, "release": number, "reason": reason}


def _stop(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.updates import publishing

    reason = (asked["reason"] or "its publisher stopped it") if asked["stop"] else ""
    publishing.set_stopped(repository, channel, reason)
    return {
        "text": f"channel {channel}: {f'stopped, {reason}' if reason else 'installs go on'}",
        "reason": reason,
    }


def _add_channel(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    repository.add_channel(asked["add_channel"])
    return {"text": f"channel {asked['add_channel']} made", "channels": repository.channels()}


def _rotate(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    repository.rotate(asked["rotate"])
    path = repository.keys.path(asked["rotate"])
    return {"text": f"{path}  is the new key of {asked['rotate']}", "role": asked["rotate"], "key": str(path)}


def _refresh(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, asked: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.updates import publishing

    signed = publishing.refresh(repository)
    return {"text": f"signed again: {', '.join(signed)}", "signed": list(signed)}


_DO = {
    "init": _init,
    "publish": _publish,
    "rollout": _rollout,
    "withdraw": _withdraw,
    "stop": _stop,
    "resume": _stop,
    "add_channel": _add_channel,
    "rotate": _rotate,
    "refresh": _refresh,
}


@main.command()
@click.option("--store", required=True, type=click.Path(path_type=Path), help="The device's store.")
@click.option("--name", help="Of one of several models in the store.")
@click.option("--repo-url", help="Where the repository is served, e.g. https://host/models.")
@click.option("--channel", help="Channel, e.g. stable.")
@click.option(
    "--oci",
    metavar="DIR[:TAG]",
    help="Instead of --repo-url: OCI image layout that oras or skopeo copied from a container registry.",
)
@click.option("--model", default="", help="The model; default: the channel's only one.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    help="The repository's 1.root.json, which came with the device; needed once.",
)
@click.option(
    "--factory",
    type=click.Path(path_type=Path),
    help="The bundle shipped with the device, for differences to it.",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Public key in PEM: only bundles that one of them signed are installed. Repeatable.",
)
@click.option("--device-id", default="", help="For rollouts; default: drawn once. It is not sent.")
@click.option("--proxy", default="", help="http://host:port; default: none, whatever the environment says.")
@click.option("--max-size", type=int, default=2048, show_default=True, help="Largest bundle, in MB.")
@click.option("--every", default="", help="Go on for ever, at random times so far apart on average: 15m, 1h.")
@click.option("--dry-run", is_flag=True, help="Say what would be installed; install nothing.")
@as_json_option
def update(
    store: Path,
    name: str | None,
    repo_url: str | None,
    channel: str | None,
    oci: str | None,
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
    """Bring a device's store to what was published.

    What is signed and is for this device is installed. The store's bundle answers meanwhile; the new one is
    loaded at the app's next start.
    """
    if oci is not None:
        _refuse_others("oci", "store", "name", "factory", "keys", "max_size", "dry_run", "as_json")
        _update_oci(store, name, factory, keys, oci, max_size, dry_run, as_json)
        return
    if repo_url is None or channel is None:
        raise UsageError("give --repo-url and --channel, or --oci")
    if every:
        from edgekit.updates import polling

        again = polling.without_every(sys.argv[1:])
        polling.poll(lambda: polling.run_child(again), polling.interval_s(every))
    from edgekit.runtime.bundle_store import Store
    from edgekit.updates.http_files import HttpFiles
    from edgekit.updates.update import update as run

    opened = Store(store, factory, keys or None, name=name)
    files = HttpFiles(repo_url, proxy)
    done = run(
        opened, files, channel, model, root, device_id, size_limit_bytes=max_size << 20, dry_run=dry_run
    )
    found = {
        "outcome": done.outcome,
        "channel": channel,
        "model": done.model,
        "release": done.release,
        "bundle": done.bundle,
        "fetched_bytes": done.fetched_bytes,
        "notes": list(done.notes),
    }
    what = f"release {done.release} of {done.model}" if done.release else done.model
    more = f", {done.fetched_bytes / 1e6:.2f} MB fetched" if done.fetched_bytes else ""
    lines = [f"  {done.outcome}  {what}, channel {channel}{more}"]
    lines += [f"  note  {note}" for note in done.notes]
    if done.outcome == "installed":
        lines.append("  the app loads it at its next start")
    terminal.answer(as_json, found, "\n".join(lines))


def _update_oci(
    root: Path,
    name: str | None,
    factory: Path | None,
    keys: tuple[Path, ...],
    reference: str,
    max_size: int,
    dry_run: bool,
    as_json: bool,
) -> None:
    from edgekit.runtime.bundle_store import Store
    from edgekit.updates.oci_layout import update as run

    store = Store(root, factory, keys or None, name=name)
    outcome, artifact, bundle = run(store, reference, bool(keys), max_size << 20, dry_run)
    notes = [] if keys else ["digests show damage, not who made it; --key demands a signature"]
    found = {"outcome": outcome, "tag": artifact.tag, "digest": artifact.digest, "file": artifact.file}
    lines = [f"  {outcome}  {artifact.file}, {artifact.digest}"] + [f"  note  {note}" for note in notes]
    if outcome == "installed":
        lines.append("  the app loads it at its next start")
    terminal.answer(as_json, {**found, "bundle": bundle, "notes": notes}, "\n".join(lines))
