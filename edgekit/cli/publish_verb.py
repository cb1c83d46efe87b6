"""The verb that puts bundles where devices get them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgekit.cli import terminal
from edgekit.cli.arguments import as_json_option, path_argument, path_option, refuse_others
from edgekit.cli.release_group import release
from edgekit.errors import UsageError
from edgekit.system.formats.plain_text import size

if TYPE_CHECKING:
    from edgekit.release.updates.repository import Repository

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
    if action == "init":
        document |= _init(repository, list(channels) or ["stable", "canary"])
    elif bundle is not None:
        document |= _publish(repository, bundle, channel, options)
    else:
        document |= _change(repository, action, channel, options)
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


def _init(repository: Repository, channels: list[str]) -> dict[str, Any]:
    repository.create(channels)
    root = repository.metadata / "1.root.json"
    text = f"{repository.folder}  made, with channels {', '.join(channels)}; devices need a copy of {root}"
    notes = [
        f"keep {repository.keys.offline} off-line, and a copy of it: without root's key nobody can replace it"
    ]
    return {"text": text, "channels": channels, "root": str(root), "notes": notes}


def _publish(repository: Repository, bundle: Path, channel: str, options: dict[str, Any]) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    percent = 100.0 if options["rollout"] is None else options["rollout"]
    shared = {key: options[key] for key in ("keep", "deltas", "add_model")}
    done = publishing.publish(repository, bundle, channel, options["name"], percent, **shared)
    text = f"{done.target}  release {done.release} for {percent:g} % of the devices of {channel}"
    return {
        "text": text,
        "target": done.target,
        "release": done.release,
        "percent": percent,
        "size_bytes": done.size_bytes,
        "notes": list(done.notes),
    }


def _change(repository: Repository, action: str, channel: str, options: dict[str, Any]) -> dict[str, Any]:
    from edgekit.release.updates import publishing

    reason, name = options["reason"], options["name"]
    if action == "rollout":
        percent = options["rollout"]
        model, number = publishing.roll_out(repository, channel, name, percent)
        text = f"{model} release {number} is for {percent:g} % of the devices of {channel}"
        return {"text": text, "model": model, "release": number, "percent": percent}
    if action == "withdraw":
        reason = reason or "its publisher withdrew it"
        model, number = publishing.withdraw(repository, channel, name, options["withdraw"], reason)
        text = f"{model} release {number} is withdrawn from {channel}: devices go to the one before it"
        return {"text": text, "model": model, "release": number, "reason": reason}
    if action == "stop":
        reason = reason or "its publisher stopped it"
        publishing.set_stopped(repository, channel, reason)
        return {"text": f"channel {channel}: stopped, {reason}", "reason": reason}
    if action == "resume":
        publishing.set_stopped(repository, channel, "")
        return {"text": f"channel {channel}: installs go on", "reason": ""}
    if action == "add_channel":
        repository.add_channel(options["add_channel"])
        return {"text": f"channel {options['add_channel']} made", "channels": repository.channels()}
    if action == "rotate":
        role = options["rotate"]
        repository.rotate(role)
        path = repository.keys.path(role)
        return {"text": f"{path}  is the new key of {role}", "role": role, "key": str(path)}
    signed = publishing.refresh(repository)
    return {"text": f"signed again: {', '.join(signed)}", "signed": list(signed)}
