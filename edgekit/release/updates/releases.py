"""Releases of a channel, and the choice of one for a device. Uses no disk and no network.

A channel's TUF role signs this as ``custom`` of its targets, under the key ``edgekit``:

    CHANNEL/channel.json        {"issued": "2026-11-22T10:00:00Z", "stopped": "",
                                 "models": {"detector": [3, 2]}}
    CHANNEL/detector/3.edgekit  {"release": 3, "bundle": DIGEST, "buckets": 2500, "withdrawn": "",
                                 "signature": "", "deltas": {SHA256 of an old file: target of the difference}}
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone

from edgekit.errors import UpdateError, printable
from edgekit.tensor_spec import Json

INDEX = "channel.json"
"""Name of the target whose ``custom`` says what a channel holds."""
KEY = "edgekit"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
"""Of a model, in a target's path."""
RELEASES_LIMIT = 100
BUCKETS = 10_000
TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class Target:
    """A file that TUF's metadata names.

    Attributes:
        path: Its name, e.g. ``stable/detector/3.edgekit``.
        url_path: Path relative to the repository's URL.
    """

    path: str
    url_path: str
    size_bytes: int
    sha256: str
    custom: Json


@dataclass(frozen=True)
class Channel:
    """Index of a channel.

    Attributes:
        issued: Time of the last signature, UTC.
        stopped: Reason why the channel is stopped, or "" if it is not.
        models: Model -> its releases, the newest first.
    """

    name: str
    issued: datetime
    stopped: str
    models: Mapping[str, tuple[int, ...]]

    def model(self, requested: str, followed: Sequence[str] = ()) -> str:
        """Return the model to update: the requested one, the only one, or the only one the device follows.

        Args:
            followed: Models of the channel of which this device has installed a release.

        Raises:
            UpdateError: the model does not exist, or there are several and none is requested.
        """
        if not requested and 1 in (len(self.models), len(followed)):
            (requested,) = self.models if len(self.models) == 1 else followed
        if not requested and self.models:
            names = sorted(self.models)
            raise UpdateError(
                f"channel {self.name} has {len(names)} models: {', '.join(names)}\n"
                f"  give --model, e.g. --model {names[0]}; the device stays with the model that it installed"
            )
        if requested not in self.models:
            problem = f"has no model {requested}" if requested else "has no model yet"
            has = f"; it has: {', '.join(sorted(self.models))}" if self.models else ""
            raise UpdateError(f"channel {self.name} {problem}{has}")
        return requested


@dataclass(frozen=True)
class Release:
    """One bundle of a channel.

    Attributes:
        number: Release number from 1; a device only installs a lower one if its own is withdrawn.
        buckets: Number of the ``BUCKETS`` equal groups of devices that install it.
        withdrawn: Reason why it is withdrawn, or "" if it is not.
        signature: Target with its signature file, or "".
        deltas: sha256 of an old file -> target with the delta from it.
    """

    number: int
    target: Target
    bundle: str
    buckets: int = BUCKETS
    withdrawn: str = ""
    signature: str = ""
    deltas: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """Choice of a release for a device."""

    release: Release | None
    notes: tuple[str, ...]


def release_path(channel: str, model: str, number: int) -> str:
    return f"{channel}/{model}/{number}.edgekit"


def bucket(device: str, target: str) -> int:
    """Return the group of a device, 0 to 9,999. It is the same at each run, and differs between targets.

    >>> bucket("camera-7", "stable/detector/3.edgekit")
    891
    """
    digest = hashlib.sha256(f"{target}\0{device}".encode()).digest()
    return int.from_bytes(digest[:8], "big") % BUCKETS


def choose(
    releases: Sequence[int],
    read: Callable[[int], Release],
    device: str,
    installed: int,
    refused: Mapping[str, str],
) -> Choice:
    """Choose the newest release that is for this device.

    Args:
        releases: The channel's, the newest first.
        installed: The release that it has, 0: none of this channel.
        refused: Digests of bundles that its store has dropped, with the reason.
    """
    notes: list[str] = []
    for number in releases:
        release = read(number)
        if release.withdrawn:
            notes.append(f"release {number} is withdrawn: {release.withdrawn}")
        elif number == installed:
            return Choice(release, tuple(notes))
        elif number < installed and not (installed in releases and read(installed).withdrawn):
            break  # never back, unless the channel itself says so
        elif release.bundle in refused:
            notes.append(f"release {number} did not work here: {refused[release.bundle]}")
        elif bucket(device, release.target.path) >= release.buckets:
            share = f"{release.buckets * 100 / BUCKETS:g} %"
            notes.append(f"release {number} is released to {share} of the devices, not yet to this one")
        else:
            return Choice(release, tuple(notes))
    return Choice(None, tuple(notes))


def parse_channel(name: str, custom: Json) -> Channel:
    """Parse a channel's index.

    Raises:
        UpdateError: it is malformed: not made by ``edgekit release publish``, or by a newer version.
    """
    table = _object(custom, name)
    try:
        issued = datetime.strptime(_text(table, "issued", 20, name), TIME).replace(tzinfo=timezone.utc)
    except ValueError:
        raise _malformed(name, "issued") from None
    models = table.get("models")
    if not isinstance(models, dict):
        raise _malformed(name, "models")
    lists: dict[str, tuple[int, ...]] = {}
    for model, numbers in models.items():
        fits = NAME.fullmatch(model) and isinstance(numbers, list) and len(numbers) <= RELEASES_LIMIT
        if not fits or not all(type(n) is int and 0 < n < 1 << 31 for n in numbers):
            raise _malformed(name, "models")
        lists[model] = tuple(sorted(set(numbers), reverse=True))
    return Channel(name, issued, _text(table, "stopped", 1000, name), lists)


def parse_release(target: Target) -> Release:
    """Parse a release's target. Raises UpdateError if it is malformed."""
    table, location = _object(target.custom, target.path), target.path
    number, buckets, deltas = table.get("release"), table.get("buckets"), table.get("deltas", {})
    if type(number) is not int or not 0 < number < 1 << 31:
        raise _malformed(location, "release")
    if type(buckets) is not int or not 0 <= buckets <= BUCKETS:
        raise _malformed(location, "buckets")
    if not isinstance(deltas, dict) or not all(is_sha256(k) and type(v) is str for k, v in deltas.items()):
        raise _malformed(location, "deltas")
    bundle = _text(table, "bundle", 64, location)
    if not is_sha256(bundle):
        raise _malformed(location, "bundle")
    withdrawn, signature = _text(table, "withdrawn", 1000, location), _text(table, "signature", 300, location)
    return Release(number, target, bundle, buckets, withdrawn, signature, deltas)


def is_sha256(text: Json) -> bool:
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def _object(custom: Json, location: str) -> dict[str, Json]:
    table = custom.get(KEY) if isinstance(custom, dict) else None
    if not isinstance(table, dict):
        raise _malformed(location, KEY)
    return table


def _text(table: Mapping[str, Json], key: str, limit: int, location: str) -> str:
    text = table.get(key, "")
    if not isinstance(text, str) or len(text) > limit:
        raise _malformed(location, key)
    return printable(text)  # who signs a channel may be another than who reads its notes on a terminal


def _malformed(location: str, key: str) -> UpdateError:
    return UpdateError(
        f"{location}: what is signed about it has no valid {key!r}\n"
        "  it was not made by `edgekit release publish`, or by a newer one than this"
    )
