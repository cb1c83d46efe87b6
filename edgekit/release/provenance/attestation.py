"""Signatures of provenance and bills of materials, with the keys of ``edgekit release sign``.

A statement is its own payload: its signature file is a DSSE envelope around it, which is what attestation
tools read. A bill of materials is signed as any file is, by its hash.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from edgekit.errors import SignatureError
from edgekit.release.provenance.slsa import PREDICATE_TYPE
from edgekit.signing import SignedBy, TrustedKeys
from edgekit.signing.signature_file import LIMIT_BYTES, SignatureFile, message_of, parse_signature_file
from edgekit.signing.signing_keys import PrivateKey
from edgekit.signing.statement import statement_of
from edgekit.signing.trusted_keys import signature_path
from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.system.regular_file import read_plain
from edgekit.tensor_spec import Json

DOCUMENT_LIMIT_BYTES = 8 << 20


def sign_statement(statement: bytes, key: PrivateKey) -> bytes:
    """Return the content of a statement's signature file.

    Raises:
        SignatureError: the statement is larger than what a check reads.
    """
    content = SignatureFile(statement, key.sign(message_of(statement)), key.public.hint).encode()
    try:
        parse_signature_file(content)
    except JsonError as problem:
        raise SignatureError(
            f"the statement cannot be signed, because verification would reject it: {problem}"
        ) from None
    return content


def sign_bill(name: str, bill: bytes, key: PrivateKey) -> bytes:
    """Return the content of the signature file of a bill of materials in a file of this name."""
    return sign_statement(statement_of(name, hashlib.sha256(bill).hexdigest()), key)


def check_document(document: Path, keys: TrustedKeys, bundle_sha256: str) -> SignedBy:
    """Check a statement or a bill of materials: signed by one of the keys, and about this bundle.

    Args:
        document: Its file; the signature lies beside it, with ``.sig`` added to its name.
        keys: The trusted ones.
        bundle_sha256: SHA-256 of the bundle's file.

    Raises:
        SignatureError: it is not signed by one of them, was changed, or is about another bundle.
        OSError: it can't be read.
    """
    content = read_plain(document, DOCUMENT_LIMIT_BYTES)
    signature_file = signature_path(document)
    try:
        signature = read_plain(signature_file, LIMIT_BYTES)
    except FileNotFoundError:
        raise SignatureError(f"{document} is not signed: {signature_file} does not exist") from None
    signed = keys.check_payload(content, signature, str(signature_file))
    if signed is None:
        signed = keys.check_content(document, signature, str(signature_file))
    if hashlib.sha256(content).hexdigest() != signed.sha256:
        raise SignatureError(f"{document} changed while it was checked")
    if _about(content, document) != bundle_sha256:
        raise SignatureError(f"{document} belongs to another bundle: its sha256 differs")
    return signed


def _about(content: bytes, document: Path) -> Json:
    """Return the SHA-256 of the bundle that a document describes."""
    try:
        table = strict_json.decode(content, str(document), DOCUMENT_LIMIT_BYTES)
        if table.get("predicateType") == PREDICATE_TYPE:
            return table["subject"][0]["digest"]["sha256"]
        return table["metadata"]["component"]["hashes"][0]["content"]
    except (JsonError, AttributeError, LookupError, TypeError):
        raise SignatureError(
            f"{document} is neither SLSA provenance nor a CycloneDX bill of materials"
        ) from None
