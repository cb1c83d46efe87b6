"""Releases in a repository's channels: published, rolled out by percent, withdrawn; channels stopped."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.bundle.bundle import Bundle
from edgekit.errors import BundleError, UsageError
from edgekit.release.updates.delta import make_delta
from edgekit.release.updates.releases import BUCKETS, INDEX, KEY, NAME, RELEASES_LIMIT, TIME, release_path
from edgekit.release.updates.repository import Repository
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.atomic_files import write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.progress import counted
from edgekit.system.regular_file import open_regular, sha256_of

KEEP = 5
"""Number of releases that a channel lists, so that devices can fall back from a withdrawn one."""
DELTAS = 2
"""Number of previous releases that get a delta."""
WORTH = 0.9
"""Maximum size of a published delta, as a share of the file's size."""


@dataclass(frozen=True)
class Published:
    """A bundle in a channel."""

    target: str
    release: int
    size_bytes: int
    notes: tuple[str, ...]


def publish(
    repository: Repository,
    bundle: Path,
    channel: str,
    model: str = "",
    percent: float = 100.0,
    keep: int = KEEP,
    deltas: int = DELTAS,
    add_model: bool = False,
) -> Published:
    """Put a bundle into a channel as its model's newest release. Every byte of it is checked first.

    Without a name, the bundle is a release of the model of the channel that its file or its source model is
    named after, or of the channel's only model if it has the same inputs and outputs. The first model of a
    channel is named after its source.

    Args:
        bundle: The file; its signature file next to it, if any, is published too.
        model: The model's name. "" means as above.
        percent: Share of the devices that install it, 0 to 100.
        keep: Maximum number of releases that the channel lists.
        deltas: To how many of the releases before it differences are made.
        add_model: Whether the channel, which has other models, gets this one too.

    Raises:
        BundleError: it is damaged.
        UsageError: the name, the percentage or the channel does not fit, or a key is missing.
        OSError: a file cannot be written; the repository is as it was.
    """
    if not 1 <= keep <= RELEASES_LIMIT:
        raise UsageError(f"--keep must be 1 to {RELEASES_LIMIT}, not {keep}")
    metadata = repository.load(channel)
    index = _index(metadata, channel)
    with Bundle.open(bundle) as opened:
        opened.verify_entries()
        digest = opened.digest
        model = model or _model_of(opened, bundle, repository, metadata, index, channel, add_model)
    if not NAME.fullmatch(model):
        raise UsageError(
            f"{model!r} cannot name a model in a repository: letters, digits, - and _; give --model"
        )
    if index["models"] and model not in index["models"] and not add_model:
        raise UsageError(
            f"channel {channel} has {_names(index)} but not {model}; nothing has changed\n"
            "  give --model for a release of a model that it has; --add-model for one more model, after "
            "which new devices need `edgekit store update --model`"
        )
    releases = index["models"].get(model, [])
    newest = releases and metadata.signed.targets[release_path(channel, model, releases[0])].custom[KEY]
    if newest and newest["bundle"] == digest:
        raise UsageError(
            f"{bundle} is release {releases[0]} of {model} in {channel} already; nothing has changed"
        )
    number = max(releases, default=0) + 1
    custom: dict[str, Any] = {"release": number, "bundle": digest, "withdrawn": ""}
    custom["buckets"] = _buckets(percent)
    path, notes = release_path(channel, model, number), []
    signature_file = signature_path(bundle)
    if signature_file.exists():
        custom["signature"] = f"{path}.sig"
        _add_file(repository, metadata, custom["signature"], signature_file, {})
        notes.append(f"with its signature {signature_file.name}")
    size_bytes = _add_file(repository, metadata, path, bundle, {KEY: custom})
    for old in counted(releases[:deltas], "deltas"):
        notes.append(_add_delta(repository, metadata, release_path(channel, model, old), path))
    index["models"][model] = [number, *releases][:keep]
    for old in releases[keep - 1 :]:
        _forget(metadata, release_path(channel, model, old))
    _commit(repository, metadata, channel, index)
    return Published(path, number, size_bytes, tuple(notes))


def _model_of(
    opened: Bundle,
    path: Path,
    repository: Repository,
    metadata: Any,
    index: dict[str, Any],
    channel: str,
    add_model: bool,
) -> str:
    """Return the name of the model that a bundle is a release of. :func:`publish` documents the order of the
    checks."""
    models: dict[str, list[int]] = index["models"]
    source = Path(opened.manifest["source"]["file"]).stem
    source = re.sub(r"[^A-Za-z0-9_-]+", "-", source).strip("-_")[:80]
    for name in (path.name.removesuffix(".edgekit"), source):
        if name in models:
            return name
    if not models or add_model:
        return source
    if len(models) == 1:
        ((only, releases),) = models.items()
        target = release_path(channel, only, releases[0])
        before = _place(repository, target, metadata.signed.targets[target].hashes["sha256"])
        with contextlib.suppress(OSError, BundleError), Bundle.open(before) as newest:
            sides = [(bundle.manifest["inputs"], bundle.manifest["outputs"]) for bundle in (newest, opened)]
            if sides[0] == sides[1] != ([], []):  # language models have none
                return only
    raise UsageError(
        f"{path} may be a release of {_names(index)} in channel {channel}, or another model: neither its "
        f"file nor its source {source!r} has that name, and its inputs and outputs do not decide it; "
        "nothing has changed\n"
        "  give --model, or --add-model for one more model"
    )


def _names(index: dict[str, Any]) -> str:
    return ", ".join(sorted(index["models"])) or "none yet"


def change_release(
    repository: Repository, channel: str, model: str, number: int, change: Callable[[dict[str, Any]], None]
) -> tuple[str, int]:
    """Change what is signed about a release; number 0: the newest. Returns its model and number."""
    metadata = repository.load(channel)
    index = _index(metadata, channel)
    if not model and len(index["models"]) == 1:
        model = next(iter(index["models"]))
    releases = index["models"].get(model)
    if not releases:
        model_text = model or "(give --model)"
        raise UsageError(f"channel {channel} has no model {model_text}; it has: {_names(index)}")
    number = number or releases[0]
    if number not in releases:
        raise UsageError(
            f"{model} in {channel} has no release {number}; it has: {', '.join(map(str, releases))}"
        )
    change(metadata.signed.targets[release_path(channel, model, number)].custom[KEY])
    _commit(repository, metadata, channel, index)
    return model, number


def roll_out(repository: Repository, channel: str, model: str, percent: float) -> tuple[str, int]:
    """Set the share of the devices that install the newest release, 0 to 100."""
    buckets = _buckets(percent)
    return change_release(repository, channel, model, 0, lambda custom: custom.update(buckets=buckets))


def withdraw(repository: Repository, channel: str, model: str, number: int, reason: str) -> tuple[str, int]:
    """Say that a release is not to be installed any more: devices that have it go to the one before."""
    return change_release(repository, channel, model, number, lambda custom: custom.update(withdrawn=reason))


def set_stopped(repository: Repository, channel: str, reason: str) -> None:
    """Stop all installs of a channel, with the reason, or let them go on: ""."""
    metadata = repository.load(channel)
    index = _index(metadata, channel)
    index["stopped"] = reason
    _commit(repository, metadata, channel, index)


def refresh(repository: Repository) -> tuple[str, ...]:
    """Sign snapshot and timestamp again, and every channel, so that none expires. Returns what was signed.

    Root and targets hold for a year and need the offline keys; they are signed if these are given.
    """
    roles = {channel: repository.load(channel) for channel in repository.channels()}
    for channel, metadata in roles.items():
        _set_index(repository, metadata, channel, _index(metadata, channel))
    if repository.keys.offline is not None:
        roles["targets"] = repository.load("targets")
        repository.renew_root()
    repository.commit(roles)
    offline = () if repository.keys.offline is None else ("root",)
    return (*offline, *roles, "snapshot", "timestamp")


def _buckets(percent: float) -> int:
    """Convert a percentage to buckets for signing: TUF's canonical JSON does not support fractions."""
    if not 0 <= percent <= 100:
        raise UsageError(f"a rollout must be 0 to 100 percent, not {percent:g}")
    return round(percent * BUCKETS / 100)


def _index(metadata: Any, channel: str) -> dict[str, Any]:
    target = metadata.signed.targets.get(f"{channel}/{INDEX}")
    return dict(target.custom[KEY]) if target is not None else {"stopped": "", "models": {}}


def _commit(repository: Repository, metadata: Any, channel: str, index: dict[str, Any]) -> None:
    _set_index(repository, metadata, channel, index)
    repository.commit({channel: metadata})


def _set_index(repository: Repository, metadata: Any, channel: str, index: dict[str, Any]) -> None:
    index["issued"] = repository.now().strftime(TIME)
    path, content = f"{channel}/{INDEX}", strict_json.encode(index)
    target = repository.api.TargetFile.from_data(path, content, ["sha256"])
    target.unrecognized_fields["custom"] = {KEY: index}
    place = _place(repository, path, target.hashes["sha256"])
    place.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(place, [content], 0o644)
    metadata.signed.targets[path] = target


def _add_file(repository: Repository, metadata: Any, path: str, file: Path, custom: dict[str, Any]) -> int:
    """Copy a file to where its hash names it, and name it in the metadata; its size."""
    place = _place(repository, path, sha256_of(file))
    place.parent.mkdir(parents=True, exist_ok=True)
    with open_regular(file) as source:
        write_atomically(place, iter(lambda: source.read(1 << 20), b""), 0o644)
    target = repository.api.TargetFile.from_file(path, str(place), ["sha256"])
    if not place.name.startswith(target.hashes["sha256"]):
        raise UsageError(f"{file} was changed while it was read; nothing has been published")
    if custom:
        target.unrecognized_fields["custom"] = custom
    metadata.signed.targets[path] = target
    return int(target.length)


def _add_delta(repository: Repository, metadata: Any, old: str, new: str) -> str:
    """Publish the difference from one release to another if it is small enough. Return what was done."""
    targets = metadata.signed.targets
    before, after = (_place(repository, path, targets[path].hashes["sha256"]) for path in (old, new))
    custom = targets[new].custom[KEY]
    label = f"difference to release {targets[old].custom[KEY]['release']}"
    with tempfile.TemporaryDirectory(prefix=".delta.", dir=repository.targets) as draft:
        delta_file = Path(draft, "delta")
        try:
            with open(delta_file, "wb") as out:
                make_delta(before, after, out)
        except (BundleError, OSError, ValueError) as problem:
            return f"no {label}: {problem}"
        size, whole = delta_file.stat().st_size, targets[new].length
        if size > WORTH * whole:
            return f"no {label}: it would have {size / whole:.0%} of the file's size"
        path = f"{new.removesuffix('.edgekit')}.from-{targets[old].custom[KEY]['release']}.delta"
        _add_file(repository, metadata, path, delta_file, {})
    custom.setdefault("deltas", {})[targets[old].hashes["sha256"]] = path
    return f"{label}: {size / 1e6:.2f} MB, {size / whole:.1%} of the file"


def _forget(metadata: Any, path: str) -> None:
    """Remove a release from the metadata. Its file is kept, because a device may be fetching it."""
    custom = metadata.signed.targets.pop(path).custom[KEY]
    for target in (custom.get("signature"), *custom.get("deltas", {}).values()):
        metadata.signed.targets.pop(target, None)


def _place(repository: Repository, path: str, sha256: str) -> Path:
    folder, _, name = path.rpartition("/")
    return repository.targets / folder / f"{sha256}.{name}"
