"""What is signed can be checked, and what is larger than a check reads is not signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.errors import SignatureError
from edgekit.release.provenance.attestation import check_document, sign_statement
from edgekit.release.provenance.slsa import provenance_of
from edgekit.signing import TrustedKeys
from edgekit.signing.signature_file import PAYLOAD_TYPE, parse_signature_file
from edgekit.signing.signing_keys import load_private_key
from tests.fixtures.bundles import small_bundle
from tests.fixtures.keys import KINDS, key_files

pytest.importorskip("cryptography")
SHA256 = "ab" * 32


@pytest.mark.parametrize("kind", ["P-256", "Ed25519"])
def test_a_statement_is_its_own_payload(tmp_path: Path, kind: str) -> None:
    private, public = key_files(tmp_path, "key", KINDS[kind]())
    content = json.dumps(provenance_of(small_bundle(), "a", SHA256)).encode()
    signature = sign_statement(content, load_private_key(private))
    assert json.loads(signature)["dsseEnvelope"]["payloadType"] == PAYLOAD_TYPE
    assert parse_signature_file(signature).payload == content
    document = tmp_path / "p.json"
    document.write_bytes(content)
    (tmp_path / "p.json.sig").write_bytes(signature)
    assert check_document(document, TrustedKeys([public]), SHA256).key.name == str(public)
    for changed in (content.replace(b"m.onnx", b"n.onnx"), content + b" ", b"{}", b"[" * 90_000):
        document.write_bytes(changed)
        with pytest.raises(SignatureError):
            check_document(document, TrustedKeys([public]), SHA256)


def test_a_statement_that_no_check_would_read(tmp_path: Path) -> None:
    private, _ = key_files(tmp_path, "key", KINDS["Ed25519"]())
    with pytest.raises(
        SignatureError, match=r"can't be signed, no check would read it: .* 65536 are allowed"
    ):
        sign_statement(b"x" * 60_000, load_private_key(private))
