"""Signed statement: an in-toto statement (v1) of OpenSSF model signing, version 1.0, about one file.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": "detector.edgekit", "digest": {"sha256": sha256 of all resources' digests}}],
     "predicateType": "https://model_signing/signature/v1.0",
     "predicate": {"serialization": {"method": "files", "hash_type": "sha256", ...},
                   "resources": [{"name": ".", "algorithm": "sha256", "digest": sha256 of the file}]}}

The name is the one that the file had when it was signed; a renamed file is the same file.
"""

from __future__ import annotations

import hashlib

from edgekit.system.formats import strict_json
from edgekit.system.formats.strict_json import JsonError
from edgekit.tensor_spec import Json

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://model_signing/signature/v1.0"
LIMIT_BYTES = 65_536


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
    decoded = strict_json.decode(statement, "its statement", LIMIT_BYTES)
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
