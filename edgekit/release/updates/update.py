"""One update of a device's store: read the channel, decide, fetch, install. Inference goes on meanwhile.

    STORE/updates/metadata       what of TUF's metadata is trusted
    STORE/updates/root.json      the root that the device was given
    STORE/updates/downloads      files that are coming, or wait for their install
    STORE/updates/device         this device's id, if none is given; it is never sent
    STORE/updates/CHANNEL.MODEL.json   what was installed from a channel

It runs in a process of its own, so that python-tuf's 26 MB and 0.3 s are not the app's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.bundle.bundle import HEADER
from edgekit.errors import UpdateError, UsageError
from edgekit.release.updates.download import download, rebuild, remove_others
from edgekit.release.updates.http_files import HttpFiles
from edgekit.release.updates.releases import Release, Target, choose
from edgekit.release.updates.tuf_metadata import ChannelState, open_channel, utc_now
from edgekit.system import ownership
from edgekit.system.atomic_files import locked, private_folder, write_atomically
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import read_plain, sha256_of

if TYPE_CHECKING:
    from edgekit.runtime.store.bundle_store import Store

LOCK_SECONDS = 1.0
LIMIT_BYTES = 512_000
"""Maximum size of a root file, as in python-tuf's client."""
SIZE_LIMIT_BYTES = 2 << 30


@dataclass(frozen=True)
class Updated:
    """Result of an update.

    Attributes:
        outcome: ``installed``, ``up to date``, ``no release for this device`` or ``stopped``.
        release: Number of the device's current release, or 0 if it has none of this channel.
        bundle: Digest of that release's bundle, or "".
        fetched_bytes: Number of bytes downloaded for it.
        notes: Notes for people: skipped releases, a wrong clock, ...
    """

    outcome: str
    model: str
    release: int
    bundle: str
    fetched_bytes: int
    notes: tuple[str, ...]


def update(
    store: Store,
    files: HttpFiles,
    channel: str,
    model: str = "",
    root: Path | None = None,
    device: str = "",
    size_limit_bytes: int = SIZE_LIMIT_BYTES,
    now: Callable[[], datetime] = utc_now,
    dry_run: bool = False,
) -> Updated:
    """Bring a store to the channel's release for this device.

    Args:
        model: The model. "" means the channel's only one, or the one of several whose release this device
            has.
        root: Root metadata. None means that of an earlier run.
        device: The device's id for rollouts. "" means a random id that is stored here.
        size_limit_bytes: Maximum size of a fetched bundle.

    Raises:
        UpdateError: it is rejected or cannot be fetched, or another update runs. The store is unchanged.
        BundleError: the store rejects it.
        UsageError: no root is known.
        OSError: the folder cannot be written.
    """
    private_folder(store.root, parents=False)
    folder = store.root / "updates"
    private_folder(folder, parents=False)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock", LOCK_SECONDS))
        except TimeoutError:
            raise UpdateError(f"another update of {store.root} is running; nothing has changed") from None
        trusted = _root(folder, root)
        identity = device or _device(folder)
        with open_channel(files, folder, trusted, channel, now) as state:
            if root is not None:  # it held for this repository
                write_atomically(folder / "root.json", [trusted], 0o600)
            return _updated(store, files, folder, state, model, identity, size_limit_bytes, dry_run)


def _updated(
    store: Store,
    files: HttpFiles,
    folder: Path,
    state: ChannelState,
    model: str,
    device: str,
    size_limit_bytes: int,
    dry_run: bool,
) -> Updated:
    model = state.channel.model(model, _followed(store, folder, state))
    record = _record(folder, state.channel.name, model)
    had = record.get("release") if record.get("bundle") == store.state.current else 0
    prior = had if isinstance(had, int) else 0
    notes: tuple[str, ...] = (state.clock_note,) if state.clock_note else ()
    if state.channel.stopped:
        stopped = f"channel {state.channel.name} is stopped: {state.channel.stopped}"
        return Updated("stopped", model, prior, store.state.current if prior else "", 0, (*notes, stopped))
    refused: Mapping[str, str] = dict(store.state.given_up)
    chosen = choose(
        state.channel.models[model], lambda number: state.release(model, number), device, prior, refused
    )
    notes += chosen.notes
    release = chosen.release
    if release is None:
        has = store.state.current if prior else ""
        return Updated("up to date" if prior else "no release for this device", model, prior, has, 0, notes)
    if release.bundle == store.state.current:
        _remember(folder, state.channel.name, model, release)
        remove_others(folder / "downloads", set())
        return Updated("up to date", model, release.number, release.bundle, 0, notes)
    if release.target.size_bytes > size_limit_bytes:
        raise UpdateError(
            f"{release.target.path} has {release.target.size_bytes >> 20} MB; "
            f"at most {size_limit_bytes >> 20} MB are fetched (--max-size-mb)"
        )
    if dry_run:
        return Updated("available", model, release.number, release.bundle, 0, notes)
    install_notes: list[str] = []
    fetched = _install(store, files, folder / "downloads", state, release, install_notes)
    _remember(folder, state.channel.name, model, release)
    remove_others(folder / "downloads", set())
    return Updated("installed", model, release.number, release.bundle, fetched, (*notes, *install_notes))


def _install(
    store: Store, files: HttpFiles, downloads: Path, state: ChannelState, release: Release, notes: list[str]
) -> int:
    """Fetch a release, as a difference if there is one, and install it. Return the number of downloaded
    bytes."""
    slot = store.slot(release.bundle)
    if release.bundle in store.state.named and slot.exists() and sha256_of(slot) == release.target.sha256:
        store.install(slot)  # it is kept here, its signature with it
        return 0
    old, delta = _delta(store, state, release)
    signature = state.target(release.signature) if release.signature else None
    targets = [target for target in (release.target, delta, signature) if target is not None]
    remove_others(downloads, {target.sha256 for target in targets})
    fetched = 0
    if delta is not None:
        try:
            reason = rebuild(old, download(files, delta, downloads), release.target, downloads)
            fetched += delta.size_bytes
        except UpdateError as problem:
            reason = str(problem).partition("\n")[0]
        if reason:
            notes.append(f"the difference to the installed bundle is not used: {reason}")
            delta = None
            remove_others(downloads, {target.sha256 for target in targets[:1]})
    fetched += 0 if delta is not None else release.target.size_bytes
    bundle = download(files, release.target, downloads)
    if ownership.read_own(bundle, HEADER.size)[-32:].hex() != release.bundle:
        raise UpdateError(f"{release.target.path} is not the bundle that its channel names; publish it again")
    store.install(bundle, None if signature is None else download(files, signature, downloads))
    return fetched + (0 if signature is None else signature.size_bytes)


def _delta(store: Store, state: ChannelState, release: Release) -> tuple[Path, Target | None]:
    """Return the installed bundle, and the difference between it and a release if that is smaller than the
    release."""
    old = Path()
    if not release.deltas or find_spec("zstandard") is None:
        return old, None
    try:
        old = store.path
        path = release.deltas.get(sha256_of(old))
    except (OSError, UsageError):  # UsageError: the factory's is current, and was not named
        return old, None
    target = state.target(path) if path is not None else None
    return old, target if target is not None and target.size_bytes < release.target.size_bytes else None


def _root(folder: Path, root: Path | None) -> bytes:
    path = folder / "root.json" if root is None else root
    try:
        if root is None:
            return ownership.read_own(path, LIMIT_BYTES)
        return read_plain(path, LIMIT_BYTES)
    except FileNotFoundError:
        if root is not None:
            raise UsageError(f"{path}: file not found") from None
        raise UsageError(
            "the first update needs the repository's root: give --root, a copy of its metadata/1.root.json "
            "that came with the device"
        ) from None


def _device(folder: Path) -> str:
    path = folder / "device"
    try:
        identifier = ownership.read_own(path, 64).decode("ascii", "replace").strip()
    except FileNotFoundError:
        identifier = ""
    if len(identifier) != 32:
        identifier = os.urandom(16).hex()
        write_atomically(path, [identifier.encode()], 0o600)
    return identifier


def _followed(store: Store, folder: Path, state: ChannelState) -> list[str]:
    """Return the channel's models of which this device has installed a release. If the current bundle is one
    of several, return only its model."""
    records = {model: _record(folder, state.channel.name, model) for model in state.channel.models}
    installed = [model for model, record in records.items() if record]
    now = [model for model in installed if records[model].get("bundle") == store.state.current]
    return now or installed


def _record(folder: Path, channel: str, model: str) -> dict[str, object]:
    path = folder / f"{channel}.{model}.json"
    try:
        record = strict_json.decode(ownership.read_own(path, 4096), "record", 4096)
    except (OSError, JsonError):
        return {}
    return dict(record) if isinstance(record, dict) else {}


def _remember(folder: Path, channel: str, model: str, release: Release) -> None:
    entry = {"release": release.number, "bundle": release.bundle}
    if _record(folder, channel, model) != entry:
        path = folder / f"{channel}.{model}.json"
        write_atomically(path, [strict_json.encode(entry)], 0o600)
