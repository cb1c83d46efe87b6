"""The public keys that a device accepts, and the check of a file against its signature.

    keys = TrustedKeys(["/etc/app/release-2026.pem"])
    keys.check("detector.edgekit")  # raises SignatureError before anything of it is parsed

Keys are replaced by trusting both for a while: add the new one to the devices, sign with it, remove the old.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.errors import SignatureError, UsageError
from edgekit.signing.signature_file import (
    LIMIT_BYTES,
    SUFFIX,
    SignatureFile,
    message_of,
    parse_signature_file,
    signed_digest,
    statement_of,
)
from edgekit.signing.signing_keys import PrivateKey, PublicKey, load_public_key
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import read_plain, sha256_of


@dataclass(frozen=True)
class SignedBy:
    """A file whose signature holds."""

    key: PublicKey
    sha256: str


class TrustedKeys:
    """Public keys, one of which must have signed a file.

    Raises:
        UsageError: there is none, or one can't be read.
        MissingDependency: the package ``cryptography`` is not installed.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]]) -> None:
        if isinstance(paths, (str, os.PathLike)) or not paths:
            raise UsageError("give at least one public key, as a list of PEM files")
        self.keys = tuple(load_public_key(path) for path in paths)

    def check(
        self, path: str | os.PathLike[str], signature: str | os.PathLike[str] | None = None
    ) -> SignedBy:
        """Check a file. Only its bytes are hashed; nothing of it is parsed.

        Args:
            signature: Its signature file. None means ``path`` with ``.sig`` added.

        Raises:
            SignatureError: there is no signature, it is not by one of these keys, or of another file.
            OSError: the file can't be read.
        """
        signature_file = signature_path(path) if signature is None else Path(signature)
        name = os.fsdecode(path)
        try:
            content = read_plain(signature_file, LIMIT_BYTES)
        except FileNotFoundError:
            raise SignatureError(f"{name} is not signed: {signature_file} does not exist") from None
        return self.check_content(Path(path), content, str(signature_file))

    def check_content(self, path: Path, signature: bytes, name: str) -> SignedBy:
        """Check a file like ``check``, given the signature file's content and its name, ``name``."""
        try:
            parsed = parse_signature_file(signature)
            key = self._key_of(parsed, name)
            digest = signed_digest(parsed.payload)
        except JsonError as problem:
            raise SignatureError(f"{name} is not a signature that can be checked: {problem}") from None
        if sha256_of(path) != digest:
            raise SignatureError(
                f"{path} is not the file that was signed: its sha256 is not the one in {name}\n"
                "  it was changed or damaged since; get it again"
            )
        return SignedBy(key, digest)

    def check_payload(self, content: bytes, signature: bytes, name: str) -> SignedBy | None:
        """Check a signature that holds what it signs: an attestation.

        Returns:
            None if it holds another statement, which may be one about the content's hash.

        Raises:
            SignatureError: it is malformed, or not by one of these keys.
        """
        try:
            parsed = parse_signature_file(signature)
        except JsonError as problem:
            raise SignatureError(f"{name} is not a signature that can be checked: {problem}") from None
        key = self._key_of(parsed, name)
        return SignedBy(key, hashlib.sha256(content).hexdigest()) if parsed.payload == content else None

    def _key_of(self, parsed: SignatureFile, name: str) -> PublicKey:
        named = [key for key in self.keys if parsed.key_hint in ("", key.hint)]
        for key in named:
            if key.verifies(parsed.signature, parsed.message):
                return key
        if named:
            raise SignatureError(f"{name} does not hold: {named[0].name} did not make it, or it was changed")
        trusted = ", ".join(f"{key.name} ({key.hint[:12]})" for key in self.keys)
        raise SignatureError(
            f"{name} was made with the key {parsed.key_hint[:12]}, which is not trusted here\n"
            f"  trusted: {trusted}"
        )


def sign_file(path: Path, key: PrivateKey) -> bytes:
    """Return the content of a file's signature file.

    Raises:
        OSError: the file can't be read.
    """
    payload = statement_of(path.name, sha256_of(path))
    return SignatureFile(payload, key.sign(message_of(payload)), key.public.hint).encode()


def signature_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file's signature: beside it, with ``.sig`` added to its name."""
    return Path(os.fsdecode(path) + SUFFIX)
