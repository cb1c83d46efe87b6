"""The verb that puts bundles where devices get them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, path_argument, path_option, refuse_others
from edgekit.cli.release_group import release
from edgekit.errors import UsageError
from edgekit.system.formats.plain_text import size

ACTIONS = ("init", "add_channel", "rotate", "refresh", "stop", "resume", "withdraw")


@release.command(
    headings={
        "Rollout": "rollout stop resume withdraw reason",
        "Repository": "init add_channel add_model offline_keys keep deltas refresh rotate",
        "Hugging Face Hub": "hub",
    },
)
@path_argument("bundle", required=False)
@path_option("--repo", help="Folder of the repository, which a web server serves.")
@path_option("--keys", help="Folder with the online keys, used at each publication.")
@path_option(
    "--offline-keys",
    help="Folder with the keys of root and targets: for --init, --add-channel, --rotate, yearly --refresh.",
)
@click.option("--channel", "channels", multiple=True, help="Channel, e.g. stable; with --init repeatable.")
@click.option(
    "--model",
    "name",
    metavar="NAME",
    default="",
    help="Name of the model.  [default: the channel's only model, or the name of BUNDLE's source]",
)
@click.option("--add-model", is_flag=True, help="Add BUNDLE's model to the channel's other models.")
@click.option("--rollout", type=float, help="Percentage of the devices that install it.  [default: 100]")
@click.option(
    "--keep", type=int, default=5, show_default=True, help="Number of releases that the channel lists."
)
@click.option(
    "--deltas",
    type=int,
    default=2,
    show_default=True,
    help="Number of earlier releases for which a delta is made.",
)
@click.option("--init", is_flag=True, help="Create the repository, its keys and channels.")
@click.option("--add-channel", default="", help="Create another channel.")
@click.option("--withdraw", type=int, help="Release to withdraw; devices no longer install it.")
@click.option("--stop-installs", "stop", is_flag=True, help="Stop all installs of the channel.")
@click.option("--resume-installs", "resume", is_flag=True, help="Resume the installs of the channel.")
@click.option("--reason", default="", help="Reason for --stop-installs or --withdraw, which devices show.")
@click.option("--refresh", is_flag=True, help="Renew signatures that would expire; run it daily.")
@click.option("--rotate", default="", help="Role whose key to replace: a channel, timestamp, root, ...")
@click.option(
    "--hub",
    metavar="hf://OWNER/NAME",
    help="Instead of --repo: repository on the Hugging Face Hub (extra hub). A new one is private.",
)
@as_json_option
def publish(
    bundle: Path | None,
    repo: Path | None,
    keys: Path | None,
    offline_keys: Path | None,
    channels: tuple[str, ...],
    hub: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Publish a bundle by TUF or the Hugging Face Hub.

    A TUF repository (--repo) has channels, rollouts and deltas; a repository on the Hugging Face Hub (--hub)
    also gets a model card, made from the bundle's evidence. Or change what is published: without BUNDLE,
    --rollout changes the newest release of the channel. The folder holds plain files only: any web server or
    object store serves it.
    """
    if hub is not None:
        refuse_others("hub", "bundle", "name", "as_json")
        _publish_hub(hub, bundle, options["name"], as_json)
        return
    if repo is None or keys is None:
        raise UsageError("give --repo and --keys, or --hub")
    from edgekit.release.updates.repository import Repository
    from edgekit.release.updates.repository_keys import RoleKeys

    action = _action(bundle, options)
    channel = _channel(action, channels)
    repository = Repository(repo, RoleKeys(keys, offline_keys, repo))
    document: dict[str, Any] = {"repository": str(repo), "done": action, "channel": channel}
    document |= _DO[action](repository, bundle, list(channels), channel, options)
    lines = [f"  {document['text']}"] + [f"  note  {note}" for note in document.get("notes", ())]
    if action == "init":
        lines.append(
            f"  next: edgekit release publish BUNDLE --repo {repo} --keys {keys} "
            f"--channel {document['channels'][0]}"
        )
    terminal.answer(as_json, document, "\n".join(lines))


def _publish_hub(address: str, bundle: Path | None, name: str, as_json: bool) -> None:
    from edgekit.compiler.hub.address import HubAddress
    from edgekit.release.export.hub_publishing import publish as commit

    if bundle is None:
        raise UsageError("give the BUNDLE that is published")
    done = commit(HubAddress(address), bundle, name)
    document = {"done": "publish", **done._asdict(), "size_bytes": bundle.stat().st_size}
    lines = [f"  {done.address}", f"  {', '.join(done.files)}; {size(bundle.stat().st_size)}"]
    if done.is_new:
        lines.append(
            f"  note  the repository is new and private; {done.url} is its page, which can change that"
        )
    if done.keeps_readme:
        lines.append("  note  its README stays: EdgeKit did not write it")
    lines.append(f"  next: edgekit inspect {done.address}")
    terminal.answer(as_json, document, "\n".join(lines))


def _action(bundle: Path | None, arguments: dict[str, Any]) -> str:
    actions = [name for name in ACTIONS if arguments[name] not in ("", False, None)]
    actions += ["publish"] if bundle is not None else []
    if not actions and arguments["rollout"] is not None and not arguments["add_model"]:
        return "rollout"
    if len(actions) != 1:
        options = ", ".join(map(_flag, ACTIONS))
        raise UsageError(f"give one of BUNDLE, --rollout, {options}")
    if arguments["reason"] and actions[0] not in ("stop", "withdraw"):
        raise UsageError("--reason needs --stop-installs or --withdraw")
    if arguments["add_model"] and actions[0] != "publish":
        raise UsageError("--add-model needs the BUNDLE that is published")
    if arguments["rollout"] is not None and actions[0] != "publish":
        raise UsageError(f"--rollout does not go with {_flag(actions[0])}")
    return actions[0]


def _flag(name: str) -> str:
    command = click.get_current_context().command
    return next(param.opts[0] for param in command.params if param.name == name)


def _channel(action: str, channels: tuple[str, ...]) -> str:
    if action == "init":
        return ""
    if action in ("add_channel", "rotate", "refresh"):
        if channels:
            raise UsageError(f"--channel does not go with {_flag(action)}")
        return ""
    if len(channels) != 1:
        raise UsageError("give one --channel")
    return channels[0]


def _init(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
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
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    assert bundle is not None
    percent = 100.0 if options["rollout"] is None else options["rollout"]
    done = publishing.publish(
        repository,
        bundle,
        channel,
        options["name"],
        percent,
        options["keep"],
        options["deltas"],
        options["add_model"],
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
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    percent = options["rollout"]
    model, number = publishing.roll_out(repository, channel, options["name"], percent)
    return {
        "text": f"{model} release {number} is for {percent:g} % of the devices of {channel}",
        "model": model,
        "release": number,
        "percent": percent,
    }


def _withdraw(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    reason = options["reason"] or "its publisher withdrew it"
    model, number = publishing.withdraw(repository, channel, options["name"], options["withdraw"], reason)
    text = f"{model} release {number} is withdrawn from {channel}: devices go to the one before it"
    return {"text": text, "model": model, "release": number, "reason": reason}


def _stop(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    reason = (options["reason"] or "its publisher stopped it") if options["stop"] else ""
    publishing.set_stopped(repository, channel, reason)
    return {
        "text": f"channel {channel}: {f'stopped, {reason}' if reason else 'installs go on'}",
        "reason": reason,
    }


def _add_channel(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    repository.add_channel(options["add_channel"])
    return {"text": f"channel {options['add_channel']} made", "channels": repository.channels()}


def _rotate(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    repository.rotate(options["rotate"])
    path = repository.keys.path(options["rotate"])
    return {
        "text": f"{path}  is the new key of {options['rotate']}",
        "role": options["rotate"],
        "key": str(path),
    }


def _refresh(
    repository: Any, bundle: Path | None, channels: list[str], channel: str, options: dict[str, Any]
) -> dict[str, Any]:
    from edgekit.release.updates import publishing

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
