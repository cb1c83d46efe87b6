"""What is signed can be checked, and what is larger than a check reads is not signed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgekit.errors import SignatureError
from edgekit.release.provenance import (
    bill_of_materials,
    check_document,
    provenance_of,
    sign_bill,
    sign_statement,
)
from edgekit.signing import SignedBy, TrustedKeys
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
        SignatureError, match=r"cannot be signed, because verification would reject it: .* the limit is 65536"
    ):
        sign_statement(b"x" * 60_000, load_private_key(private))


def test_a_statement_about_another_bundle(tmp_path: Path) -> None:
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    content = json.dumps(provenance_of(small_bundle(), "a", SHA256)).encode()
    document = tmp_path / "p.json"
    document.write_bytes(content)
    (tmp_path / "p.json.sig").write_bytes(sign_statement(content, load_private_key(private)))
    with pytest.raises(SignatureError) as error:
        check_document(document, TrustedKeys([public]), "cd" * 32)
    assert str(error.value) == f"{document} belongs to another bundle: its sha256 differs"


def test_a_bill_is_put_in_place_while_it_is_checked(tmp_path: Path) -> None:
    """What was read is not what the signature is checked with."""
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    forged, honest = (json.dumps(bill_of_materials(small_bundle(), name, SHA256)).encode() for name in "fh")
    document = tmp_path / "b.json"
    document.write_bytes(forged)
    (tmp_path / "b.json.sig").write_bytes(sign_bill("b.json", honest, load_private_key(private)))

    class Meanwhile(TrustedKeys):
        def check_content(self, path: Path, signature: bytes, name: str) -> SignedBy:
            path.write_bytes(honest)
            return super().check_content(path, signature, name)

    with pytest.raises(SignatureError) as error:
        check_document(document, Meanwhile([public]), SHA256)
    assert str(error.value) == f"{document} changed while it was checked"
