"""Keys in PEM files: EC on P-256, P-384 or P-521 with ECDSA, and Ed25519. Needs the extra ``trust``.

ECDSA hashes with SHA-256, -384 or -512 by the curve's size, as Sigstore's specification has it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.errors import UsageError, need_package
from edgekit.system.regular_file import read_plain

KEY_LIMIT_BYTES = 65_536
CURVES = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""Curve -> hash."""
KINDS = "an EC key on P-256, P-384 or P-521, or an Ed25519 key"


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Attributes:
        hint: sha256 of its PEM text (SubjectPublicKeyInfo), as hexadecimal digits: the name of the key in a
            signature file.
    """

    name: str
    hint: str
    _key: Any

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Return whether the signature is this key's for the message."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, message, *_algorithm(self._key))
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A private key, and the public key that belongs to it."""

    public: PublicKey
    _key: Any

    @property
    def kind(self) -> str:
        """``Ed25519``, or the curve."""
        curve = getattr(self._key, "curve", None)
        return f"EC {curve.name}" if curve is not None else "Ed25519"

    def sign(self, message: bytes) -> bytes:
        """Return the signature of the message: DER (ECDSA, not deterministic) or 64 bytes (Ed25519)."""
        signature: bytes = self._key.sign(message, *_algorithm(self._key.public_key()))
        return signature


def load_public_key(path: str | os.PathLike[str]) -> PublicKey:
    """Load a public key in PEM, as ``openssl pkey -pubout`` writes it.

    Raises:
        UsageError: it can't be read, or is not a public key of a known kind.
        MissingDependency: the package ``cryptography`` is not installed.
    """
    serialization = _serialization()
    content, name = _read(path), os.fsdecode(path)
    try:
        key = serialization.load_pem_public_key(content)
    except Exception:  # ValueError, TypeError, UnsupportedAlgorithm: cryptography documents no common root
        hint = "; this is a private key" if b"PRIVATE KEY" in content else ""
        raise UsageError(f"{name} is not a public key in PEM{hint}: give {KINDS}") from None
    return _public(name, key)


def load_private_key(path: str | os.PathLike[str], password: bytes | None = None) -> PrivateKey:
    """Load a private key in PEM, as ``openssl genpkey`` writes it.

    Raises:
        UsageError: it can't be read, is not a private key of a known kind, or its password is not this.
        MissingDependency: the package ``cryptography`` is not installed.
    """
    serialization = _serialization()
    content, name = _read(path), os.fsdecode(path)
    if b"PRIVATE KEY" not in content:
        raise UsageError(f"{name} is not a private key in PEM: give {KINDS}")
    try:
        key = serialization.load_pem_private_key(content, password)
    except TypeError:  # encrypted and no password, or the reverse
        without = password is None
        raise UsageError(
            f"{name} is encrypted: set EDGEKIT_KEY_PASSWORD" if without else f"{name} has no password"
        ) from None
    except Exception:
        hint = "or its password is wrong" if password is not None else f"give {KINDS}"
        raise UsageError(f"{name} can't be read as a private key, {hint}") from None
    return PrivateKey(_public(name, key.public_key()), key)


def is_encrypted(path: str | os.PathLike[str]) -> bool:
    """Return whether a private key needs a password.

    Raises:
        UsageError: it can't be read.
    """
    return b"ENCRYPTED" in _read(path)


def _public(name: str, key: Any) -> PublicKey:
    serialization = _serialization()
    if _algorithm(key) is None:
        raise UsageError(f"{name} is a key of an unsupported kind: give {KINDS}")
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    text = key.public_bytes(serialization.Encoding.PEM, form)
    return PublicKey(name, hashlib.sha256(text).hexdigest(), key)


def _algorithm(key: Any) -> Any:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    if isinstance(key, ed25519.Ed25519PublicKey):
        return ()
    if isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in CURVES:
        return (ec.ECDSA(getattr(hashes, CURVES[key.curve.name])()),)
    return None


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        return read_plain(Path(path), KEY_LIMIT_BYTES)
    except OSError as problem:
        reason = problem.strerror or problem
        raise UsageError(f"{os.fsdecode(path)}: the key can't be read: {reason}") from None


def _serialization() -> Any:
    with need_package("cryptography", "signing and checking signatures", extra="trust"):
        from cryptography.hazmat.primitives import serialization
    return serialization
