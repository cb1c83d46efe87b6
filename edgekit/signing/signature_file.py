"""A signature file: a Sigstore bundle, version 0.3, in JSON, with a DSSE envelope.

DSSE: https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md. What is signed is not the payload
alone but its type too, both with their lengths, so that no signature can be taken for one of something else.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass

from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.tensor_spec import Json

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://model_signing/signature/v1.0"
STATEMENT_LIMIT_BYTES = 65_536
MEDIA_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
SUFFIX = ".sig"
"""A signature lies beside its bundle: ``detector.edgekit.sig``."""
LIMIT_BYTES = 262_144
"""Maximum size of a signature file."""


def statement_of(name: str, digest: str) -> bytes:
    """Return the statement about a file.

    Args:
        digest: Its sha256, as hexadecimal digits.
    """
    return strict_json.encode(
        {
            "_type": STATEMENT,
            "subject": [{"name": name, "digest": {"sha256": _root(digest)}}],
            "predicateType": PREDICATE,
            "predicate": {
                "serialization": {
                    "method": "files",
                    "hash_type": "sha256",
                    "allow_symlinks": False,
                    "ignore_paths": [],
                },
                "resources": [{"name": ".", "algorithm": "sha256", "digest": digest}],
            },
        }
    )


def signed_digest(statement: bytes) -> str:
    """Return the sha256 of the file that a statement is about.

    Raises:
        JsonError: it is malformed, of another kind, or about a folder.
    """
    decoded = strict_json.decode(statement, "its statement", STATEMENT_LIMIT_BYTES)
    _expect(_member(decoded, "_type") == STATEMENT, "its statement is not in-toto's version 1")
    _expect(_member(decoded, "predicateType") == PREDICATE, "it is not OpenSSF model signing's version 1.0")
    method = _member(decoded, "predicate", "serialization", "method")
    resources, subjects = _member(decoded, "predicate", "resources"), _member(decoded, "subject")
    _expect(isinstance(resources, list) and isinstance(subjects, list), "its statement names no files")
    one = method == "files" and len(resources) == 1 == len(subjects) and _member(resources[0], "name") == "."
    _expect(one, "it was made for a folder or for parts of a file; a bundle is one file")
    algorithm, digest = _member(resources[0], "algorithm"), _member(resources[0], "digest")
    _expect(algorithm == "sha256" and _is_sha256(digest), "the file's digest is not a sha256")
    root = _member(subjects[0], "digest", "sha256")
    _expect(root == _root(digest), "its subject is not what its resources hash to")
    return str(digest)


def _root(digest: str) -> str:
    return hashlib.sha256(bytes.fromhex(digest)).hexdigest()


def _is_sha256(text: Json) -> bool:
    return isinstance(text, str) and len(text) == 64 and set(text) <= set("0123456789abcdef")


def _member(value: Json, *keys: str) -> Json:
    for key in keys:
        _expect(isinstance(value, dict) and key in value, f"its statement has no {key!r}")
        value = value[key]
    return value


def _expect(holds: bool, reason: str) -> None:
    if not holds:
        raise JsonError(reason)


@dataclass(frozen=True)
class SignatureFile:
    """The content of a signature file.

    Attributes:
        key_hint: Hint of the key that made it: ``PublicKey.hint``; "" if it does not say.
    """

    payload: bytes
    signature: bytes
    key_hint: str

    @property
    def message(self) -> bytes:
        """Return the bytes that are signed."""
        return message_of(self.payload)

    def encode(self) -> bytes:
        """Return the content of the file."""
        return strict_json.encode(
            {
                "mediaType": MEDIA_TYPE,
                "verificationMaterial": {"publicKey": {"hint": self.key_hint}, "tlogEntries": []},
                "dsseEnvelope": {
                    "payload": base64.b64encode(self.payload).decode(),
                    "payloadType": PAYLOAD_TYPE,
                    "signatures": [{"sig": base64.b64encode(self.signature).decode(), "keyid": ""}],
                },
            }
        )


def message_of(payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding of a statement."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def parse_signature_file(content: bytes) -> SignatureFile:
    """Parse a signature file. Nothing in it is believed yet.

    Raises:
        JsonError: it is malformed, or of another kind.
    """
    document = strict_json.decode(content, "it", LIMIT_BYTES)
    if not isinstance(document, dict) or document.get("mediaType") != MEDIA_TYPE:
        raise JsonError(f"it is not a Sigstore bundle of type {MEDIA_TYPE}")
    envelope, material = document.get("dsseEnvelope"), document.get("verificationMaterial")
    if not isinstance(envelope, dict) or envelope.get("payloadType") != PAYLOAD_TYPE:
        raise JsonError("it has no DSSE envelope with an in-toto statement")
    key = material.get("publicKey") if isinstance(material, dict) else None
    if not isinstance(key, dict):
        raise JsonError("it was made without a key: certificates and keyless signatures are not checked")
    signatures, hint = envelope.get("signatures"), key.get("hint") or ""
    if not isinstance(signatures, list) or len(signatures) != 1 or not isinstance(signatures[0], dict):
        raise JsonError("it does not hold exactly one signature")
    if not isinstance(hint, str):
        raise JsonError("the hint of its key is not a text")
    return SignatureFile(_bytes(envelope.get("payload")), _bytes(signatures[0].get("sig")), hint)


def _bytes(text: Json) -> bytes:
    if not isinstance(text, str):
        raise JsonError("its payload or signature is missing")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise JsonError("its payload or signature is not base64") from None
