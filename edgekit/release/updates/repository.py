"""A TUF repository in a folder: its metadata is changed so that no reader sees half of it.

    REPO/metadata/N.root.json, N.targets.json, N.CHANNEL.json, N.snapshot.json    never changed
    REPO/metadata/timestamp.json                                                  the one that is replaced
    REPO/targets/CHANNEL/NAME/SHA256.N.edgekit                                    the bundles

Consistent snapshots: every file but ``timestamp.json`` has a name of its own for each version, so that it may
be cached for ever, and a publication becomes visible with one rename. One that was cut off leaves files that
nothing names; the next one overwrites them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError, need_package
from edgekit.release.updates.repository_keys import OFFLINE, ONLINE, RoleKeys
from edgekit.system.atomic_files import write_atomically
from edgekit.system.regular_file import read_plain

if TYPE_CHECKING:
    from tuf.api.metadata import Metadata, Targets

LIMIT_BYTES = 5_000_000
"""Of a metadata file, as python-tuf's client has it for targets."""
EXPIRES_DAYS = {"root": 365, "targets": 365, "snapshot": 30, "timestamp": 7}
"""Until when a role's metadata holds after it was signed; a channel's is ``CHANNEL_DAYS``."""
CHANNEL_DAYS = 180
CHANNEL = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")


def now_utc() -> datetime:
    """Return the current time in whole seconds, as in TUF's dates."""
    return datetime.now(timezone.utc).replace(microsecond=0)


class Repository:
    """One repository.

    Raises:
        UsageError: by each method: a key or a file is missing, or malformed.
        MissingDependency: the package ``tuf`` is not installed.
    """

    def __init__(self, folder: Path, keys: RoleKeys, now: Callable[[], datetime] = now_utc) -> None:
        self.folder, self.keys, self.now = folder, keys, now
        self.metadata, self.targets = folder / "metadata", folder / "targets"
        self.api = _api()

    # --- reading -----------------------------------------------------------------------------------------

    def root_version(self) -> int:
        """Return the version of the newest root, or 0 if there is no repository."""
        return max(
            (int(path.name.split(".")[0]) for path in self.metadata.glob("*.root.json")),
            default=0,
        )

    def load(self, role: str) -> Metadata[Any]:
        """Load a role's metadata, in the version that the newest timestamp names."""
        if role == "root":
            return self._read(f"{self.root_version()}.root.json")
        timestamp = self._read("timestamp.json")
        if role == "timestamp":
            return timestamp
        snapshot = self._read(f"{timestamp.signed.snapshot_meta.version}.snapshot.json")
        if role == "snapshot":
            return snapshot
        entry = snapshot.signed.meta.get(f"{role}.json")
        if entry is None:
            raise UsageError(
                f"{self.folder} has no channel {role}; it has: {', '.join(self.channels()) or 'none'}\n"
                f"  edgekit release publish --repo {self.folder} --keys {self.keys.online} --offline-keys "
                f"FOLDER --add-channel {role} makes it"
            )
        return self._read(f"{entry.version}.{role}.json")

    def channels(self) -> list[str]:
        delegations = self.load("targets").signed.delegations
        return sorted(delegations.roles) if delegations is not None and delegations.roles else []

    def _read(self, name: str) -> Metadata[Any]:
        from tuf.api.serialization import DeserializationError

        path = self.metadata / name
        try:
            return self.api.Metadata.from_bytes(read_plain(path, LIMIT_BYTES))
        except OSError as problem:
            raise UsageError(
                f"{path} can't be read: {problem.strerror or problem}\n"
                f"  edgekit release publish --init --repo {self.folder} makes a repository"
            ) from None
        except DeserializationError:
            raise UsageError(f"{path} is not metadata of TUF; restore it from a copy") from None

    # --- writing -----------------------------------------------------------------------------------------

    def create(self, channels: list[str]) -> None:
        api = self.api
        if self.root_version():
            raise UsageError(f"{self.folder} is a repository already")
        for channel in channels:
            check_channel(channel)
        for role in (*OFFLINE, *ONLINE, *channels):  # before anything is written
            if self.keys.path(role).exists():
                raise UsageError(f"{self.keys.path(role)} exists: a key is never overwritten; move it away")
        signers = {role: self.keys.make(role) for role in (*OFFLINE, *ONLINE)}
        root = api.Root(consistent_snapshot=True, expires=self._until("root"))
        for role, signer in signers.items():
            root.add_key(signer.public_key, role)
        targets = api.Targets(expires=self._until("targets"), delegations=api.Delegations({}, {}))
        roles = {"targets": api.Metadata(targets)}
        for channel in channels:
            roles[channel] = self._new_channel(targets, channel)
        self._write_root(api.Metadata(root), [self.keys.load("root")])
        self.commit(roles, first=True)

    def add_channel(self, channel: str) -> None:
        """Add a delegated role with its own key; needs the offline key of targets."""
        check_channel(channel)
        if channel in self.channels():
            raise UsageError(f"{self.folder} has the channel {channel} already")
        targets = self.load("targets")
        self.keys.load("targets")
        self.commit({channel: self._new_channel(targets.signed, channel), "targets": targets})

    def rotate(self, role: str) -> None:
        """Replace a role's key by a new one; the old file is kept with ``.old`` added.

        Root's own is signed with the old and the new key, so that devices with the old root follow. Devices
        drop what they know of timestamp and snapshot when one of these keys changes: so a repository recovers
        from versions that an attacker has run up (TUF, section 5.3.11, fast-forward).
        """
        roles = (*OFFLINE, *ONLINE, *self.channels())
        if role not in roles:
            raise UsageError(f"unknown role {role}; available: {', '.join(roles)}")
        parent_role = "targets" if role not in (*OFFLINE, *ONLINE) else "root"
        parent = self.load(parent_role)
        signers = [self.keys.load(parent_role)]
        path = self.keys.path(role)
        old = parent.signed.get_delegated_role(role).keyids[:]
        old_content = read_plain(path, LIMIT_BYTES)
        write_atomically(path.with_name(f"{path.name}.old"), [old_content], 0o600)
        signer = self.keys.make(role, replace=True)
        for keyid in old:
            parent.signed.revoke_key(keyid, role)
        parent.signed.add_key(signer.public_key, role)
        if role == "root":
            signers.append(signer)
        if parent_role == "targets":
            self.commit({"targets": parent, role: self.load(role)})
            return
        changed = {"targets": self.load("targets")} if role == "targets" else {}
        parent.signed.version += 1
        parent.signed.expires = self._until("root")
        pending = self._signed(changed)  # what may fail comes before the root is written
        self._write_root(parent, signers)
        self._publish(pending, self.load("snapshot"), self.load("timestamp"))

    def renew_root(self) -> None:
        """Sign the root for another year, with its offline key."""
        root = self.load("root")
        signer = self.keys.load("root")
        root.signed.version += 1
        root.signed.expires = self._until("root")
        self._write_root(root, [signer])

    def commit(self, changed: dict[str, Metadata[Any]], first: bool = False) -> None:
        """Sign changed targets roles, then snapshot and timestamp, and write them in that order."""
        api = self.api
        if first:
            snapshot = api.Metadata(api.Snapshot(expires=self.now(), meta={}))
            timestamp = api.Metadata(api.Timestamp(expires=self.now()))
        else:
            snapshot, timestamp = self.load("snapshot"), self.load("timestamp")
        self._publish(self._signed(changed), snapshot, timestamp)

    def _signed(self, changed: dict[str, Metadata[Any]]) -> dict[str, Metadata[Any]]:
        for role, metadata in changed.items():
            metadata.signed.version += bool(metadata.signatures)  # a new one is version 1
            metadata.signed.expires = self._until(role)
            metadata.sign(self.keys.load(role))
        return changed

    def _publish(
        self, changed: dict[str, Metadata[Any]], snapshot: Metadata[Any], timestamp: Metadata[Any]
    ) -> None:
        encoded: list[tuple[str, bytes]] = []
        for role, metadata in changed.items():
            content = metadata.to_bytes()
            meta = self.api.MetaFile.from_data(metadata.signed.version, content, ["sha256"])
            snapshot.signed.meta[f"{role}.json"] = meta
            encoded.append((f"{metadata.signed.version}.{role}.json", content))
        for role, metadata in (("snapshot", snapshot), ("timestamp", timestamp)):
            metadata.signed.version += bool(metadata.signatures)
            metadata.signed.expires = self._until(role)
            if role == "timestamp":
                version, content = snapshot.signed.version, encoded[-1][1]
                metadata.signed.snapshot_meta = self.api.MetaFile.from_data(version, content, ["sha256"])
            metadata.sign(self.keys.load(role))
            name = "timestamp.json" if role == "timestamp" else f"{metadata.signed.version}.{role}.json"
            encoded.append((name, metadata.to_bytes()))
        for name, content in encoded:
            self._write(name, content)

    def _write_root(self, root: Metadata[Any], signers: list[Any]) -> None:
        root.signatures.clear()
        for signer in signers:
            root.sign(signer, append=True)
        self._write(f"{root.signed.version}.root.json", root.to_bytes())

    def _write(self, name: str, content: bytes) -> None:
        self.metadata.mkdir(parents=True, exist_ok=True)
        write_atomically(self.metadata / name, [content], 0o644)

    def _new_channel(self, targets: Targets, channel: str) -> Metadata[Any]:
        api, signer = self.api, self.keys.make(channel)
        paths = [f"{channel}/*", f"{channel}/*/*"]
        role = api.DelegatedRole(channel, [], 1, terminating=True, paths=paths)
        assert targets.delegations is not None
        assert targets.delegations.roles is not None
        targets.delegations.roles[channel] = role
        targets.add_key(signer.public_key, channel)
        return api.Metadata(api.Targets(expires=self._until(channel)))

    def _until(self, role: str) -> datetime:
        return self.now() + timedelta(days=EXPIRES_DAYS.get(role, CHANNEL_DAYS))


def check_channel(name: str) -> None:
    """Check that a name is valid for a channel. Raises UsageError if it is not."""
    if not CHANNEL.fullmatch(name) or name in (*OFFLINE, *ONLINE):
        raise UsageError(f"{name!r} cannot name a channel: a-z, 0-9 and -, at most 41, and no role of TUF")


def _api() -> Any:
    with need_package("tuf", "publishing updates", extra="update"):
        import tuf.api.metadata as api
    return api
