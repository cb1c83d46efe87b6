"""Keys of a repository's roles, one PEM file each, mode 0600, never in the folder that is served.

    OFFLINE/root.pem, OFFLINE/targets.pem           needed to change keys and channels; keep them off-line
    ONLINE/snapshot.pem, ONLINE/timestamp.pem       needed at each publication
    ONLINE/CHANNEL.pem                              of one channel: who has it publishes there, nowhere else

They are Ed25519 keys; an EC key on P-256 in the same place is taken too. ``EDGEKIT_KEY_PASSWORD`` encrypts
what is written and opens what is read.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgekit.errors import UsageError, need_package
from edgekit.system.atomic_files import private_folder, write_atomically
from edgekit.system.ownership import why_foreign
from edgekit.system.regular_file import read_plain

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

OFFLINE = ("root", "targets")
ONLINE = ("snapshot", "timestamp")
PASSWORD = "EDGEKIT_KEY_PASSWORD"
LIMIT_BYTES = 65_536


class RoleKeys:
    """The folders with the private keys.

    Args:
        online: Folder with the keys of snapshot, timestamp and the channels.
        offline: Folder with the keys of root and targets; None if neither is signed.

    Raises:
        UsageError: a folder of keys is inside the one that is served.
    """

    def __init__(self, online: Path, offline: Path | None, repository: Path) -> None:
        self.online, self.offline = online, offline
        for folder in (online, offline):
            if folder is not None and folder.resolve().is_relative_to(repository.resolve()):
                raise UsageError(f"{folder} is in {repository}, which is served to everybody; choose another")

    def path(self, role: str) -> Path:
        """Return the path of a role's key. Raises UsageError if the folder is not given."""
        if role not in OFFLINE:
            return self.online / f"{role}.pem"
        if self.offline is None:
            raise UsageError(f"the {role} role is signed with its offline key: give --offline-keys")
        return self.offline / f"{role}.pem"

    def load(self, role: str) -> CryptoSigner:
        """Load a role's key.

        Raises:
            UsageError: it is missing, readable by others, no key, or its password is not this.
        """
        path, signing = self.path(role), _signing()
        try:
            content = read_plain(path, LIMIT_BYTES)
            facts = path.stat()
        except OSError as problem:
            raise UsageError(f"{path}: the key can't be read: {problem.strerror or problem}") from None
        if os.name == "posix" and (facts.st_mode & 0o077 or why_foreign(facts)):
            raise UsageError(f"{path}: others may read or write this key; run chmod 600 {path}")
        try:
            key = signing.serialization.load_pem_private_key(content, _password())
            signer: CryptoSigner = signing.signer(key)
        except Exception:  # ValueError, TypeError, UnsupportedAlgorithm: cryptography has no common root
            raise UsageError(
                f"{path} can't be read as a private key in PEM, or its password is not {PASSWORD}"
            ) from None
        return signer

    def make(self, role: str, replace: bool = False) -> CryptoSigner:
        """Create a new Ed25519 key for a role and write it.

        Raises:
            UsageError: there is one, and ``replace`` is false; or it cannot be written.
        """
        path, signing = self.path(role), _signing()
        if path.exists() and not replace:
            raise UsageError(
                f"{path} exists: keys are not overwritten; move it away, or choose another folder"
            )
        form, password = signing.serialization, _password()
        private = signing.ed25519.Ed25519PrivateKey.generate()
        encryption = form.BestAvailableEncryption(password) if password else form.NoEncryption()
        content = private.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, encryption)
        try:
            private_folder(path.parent, parents=False)
            write_atomically(path, [content], 0o600)
        except OSError as problem:
            raise UsageError(f"{path} cannot be written: {problem.strerror or problem}") from None
        signer: CryptoSigner = signing.signer(private)
        return signer


class _Signing:
    def __init__(self, signer: Any, serialization: Any, ed25519: Any) -> None:
        self.signer, self.serialization, self.ed25519 = signer, serialization, ed25519


def _signing() -> _Signing:
    with need_package("tuf", "publishing updates", extra="update"):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
        from securesystemslib.signer import CryptoSigner
    return _Signing(CryptoSigner, serialization, ed25519)


def _password() -> bytes | None:
    return os.environ.get(PASSWORD, "").encode() or None
