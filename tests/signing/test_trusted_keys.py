from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.errors import MissingDependency, SignatureError, UsageError
from edgekit.signing import TrustedKeys
from edgekit.signing.signature_file import parse_signature_file, signed_digest, statement_of
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from edgekit.system.formats.strict_json import JsonError
from tests.fixtures.keys import KINDS, key_files

pytest.importorskip("cryptography")

OFFICIAL = Path(__file__).parent / "official"
"""Made by OpenSSF's own command line: model_signing 1.1.1 sign key signed.bin --private_key ...; and of a
folder of two files. The private key was thrown away."""

NEEDS_OFFICIAL = pytest.mark.skipif(
    importlib.util.find_spec("model_signing") is None, reason="model_signing is not installed"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "detector.edgekit"
    path.write_bytes(bytes(range(256)) * 9000)  # more than two chunks
    return path


def signed(file: Path, private: Path) -> Path:
    beside = file.with_name(f"{file.name}.sig")
    beside.write_bytes(sign_file(file, load_private_key(private)))
    return beside


@pytest.mark.parametrize("kind", ["P-256", "P-384", "P-521", "Ed25519"])
def test_what_is_signed_is_accepted_by_its_key_alone(tmp_path: Path, file: Path, kind: str) -> None:
    private, public = key_files(tmp_path, "a", KINDS[kind]())
    _, other = key_files(tmp_path, "b", KINDS[kind]())
    signed(file, private)
    assert TrustedKeys([other, public]).check(file).key.name == str(public)
    with pytest.raises(SignatureError, match=r"which is not trusted here\n  trusted: .*b\.pub"):
        TrustedKeys([other]).check(file)


def test_official_signatures_are_accepted(tmp_path: Path) -> None:
    keys = TrustedKeys([OFFICIAL / "key.pub"])
    found = keys.check(OFFICIAL / "signed.bin")
    assert found.key.hint == "019c99d95c7276493e2f7ac167e35e2429418448faee80d9d9e8fc656e06cd3c"
    with pytest.raises(SignatureError, match="made for a folder"):
        keys.check(OFFICIAL / "signed.bin", OFFICIAL / "folder.sig")


@NEEDS_OFFICIAL
@pytest.mark.parametrize("kind", ["P-256", "P-384", "P-521"])
def test_the_official_command_line_accepts_ours(tmp_path: Path, file: Path, kind: str) -> None:
    private, public = key_files(tmp_path, "a", KINDS[kind]())
    beside = signed(file, private)
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(file)]
    subprocess.run([*command, "--public_key", public, "--signature", beside], check=True)
    if kind != "P-256":
        return
    # And it refuses what it should, so that its answer means something.
    file.write_bytes(b"x" + file.read_bytes()[1:])
    found = subprocess.run([*command, "--public_key", public, "--signature", beside], check=False)
    assert found.returncode == 1


@NEEDS_OFFICIAL
@pytest.mark.parametrize("kind", ["P-256", "P-521"])
def test_ours_accepts_the_official_command_line_s(tmp_path: Path, file: Path, kind: str) -> None:
    private, public = key_files(tmp_path, "a", KINDS[kind]())
    beside = tmp_path / "official.sig"
    command = [sys.executable, "-m", "model_signing", "sign", "key", str(file)]
    subprocess.run([*command, "--private_key", private, "--signature", beside], check=True)
    assert TrustedKeys([public]).check(file, beside).key.name == str(public)


@pytest.mark.parametrize("at", [0, 8, 1_200_000, 2_303_999])
def test_a_file_changed_in_one_byte_fails(tmp_path: Path, file: Path, at: int) -> None:
    private, public = key_files(tmp_path, "a", KINDS["P-256"]())
    signed(file, private)
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content)
    with pytest.raises(SignatureError, match="not the file that was signed"):
        TrustedKeys([public]).check(file)


def test_every_byte_of_what_is_signed_counts(tmp_path: Path, file: Path) -> None:
    """Another byte anywhere in the payload or the signature, and neither key nor file matches."""
    private, public = key_files(tmp_path, "a", KINDS["Ed25519"]())
    beside, keys = signed(file, private), TrustedKeys([public])
    found = json.loads(beside.read_bytes())
    for part in (found["dsseEnvelope"], found["dsseEnvelope"]["signatures"][0]):
        name = "payload" if "payload" in part else "sig"
        text = part[name]
        for at in range(0, len(text) - 4, 7):
            part[name] = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
            beside.write_text(json.dumps(found))
            with pytest.raises(SignatureError):
                keys.check(file)
        part[name] = text
    beside.write_text(json.dumps(found))
    keys.check(file)


def test_a_hint_of_another_key_is_no_way_in(tmp_path: Path, file: Path) -> None:
    """The hint is not signed: whoever sets it to a trusted key's still lacks the key."""
    private, _ = key_files(tmp_path, "mine", KINDS["P-256"]())
    _, public = key_files(tmp_path, "trusted", KINDS["P-256"]())
    beside, keys = signed(file, private), TrustedKeys([public])
    found = json.loads(beside.read_bytes())
    for hint in (keys.keys[0].hint, ""):
        found["verificationMaterial"]["publicKey"]["hint"] = hint
        beside.write_text(json.dumps(found))
        with pytest.raises(SignatureError, match="does not hold"):
            keys.check(file)


def test_an_unsigned_file_fails(tmp_path: Path, file: Path) -> None:
    _, public = key_files(tmp_path, "a", KINDS["P-256"]())
    with pytest.raises(SignatureError, match="is not signed"):
        TrustedKeys([public]).check(file)
    beside = Path(f"{file}.sig")
    beside.write_bytes(b" " * (4 << 20))
    with pytest.raises(OSError, match="it has more than 256 kB"):
        TrustedKeys([public]).check(file)
    beside.unlink()
    os.mkfifo(beside)
    with pytest.raises(OSError, match="it is not a regular file"):
        TrustedKeys([public]).check(file)


@given(st.binary(max_size=300))
def test_any_bytes_as_a_signature_are_one_clear_error(content: bytes) -> None:
    keys = TrustedKeys([OFFICIAL / "key.pub"])
    with pytest.raises(SignatureError, match="not a signature that can be checked"):
        keys.check_content(OFFICIAL / "signed.bin", content, "x.sig")


@given(st.data())
def test_a_signature_with_parts_replaced_is_one_clear_error(data: st.DataObject) -> None:
    """Any part of a real one replaced by any JSON."""
    found = json.loads((OFFICIAL / "signed.bin.sig").read_bytes())
    at = found
    while True:
        key = data.draw(st.sampled_from(sorted(at)))
        if not isinstance(at[key], dict) or data.draw(st.booleans()):
            break
        at = at[key]
    at[key] = data.draw(st.none() | st.integers() | st.text(max_size=9) | st.lists(st.none(), max_size=2))
    keys = TrustedKeys([OFFICIAL / "key.pub"])
    try:
        keys.check_content(OFFICIAL / "signed.bin", json.dumps(found).encode(), "x.sig")
    except SignatureError:
        return
    assert key in ("hint", "tlogEntries", "publicKey")  # nothing of it is signed, or needed


def test_keys_that_are_none(tmp_path: Path, file: Path) -> None:
    private, public = key_files(tmp_path, "a", KINDS["P-256"](), b"secret")
    with pytest.raises(UsageError, match="this is a private key"):
        TrustedKeys([private])
    with pytest.raises(UsageError, match="is not a private key in PEM"):
        load_private_key(public)
    with pytest.raises(UsageError, match="is encrypted: set EDGEKIT_KEY_PASSWORD"):
        load_private_key(private)
    with pytest.raises(UsageError, match="its password is wrong"):
        load_private_key(private, b"guess")
    assert load_private_key(private, b"secret").kind == "EC secp256r1"
    _, other = key_files(tmp_path, "rsa", KINDS["RSA"]())
    with pytest.raises(UsageError, match="unsupported kind: give an EC key"):
        TrustedKeys([other])
    with pytest.raises(UsageError, match="No such file"):
        TrustedKeys([tmp_path / "missing.pem"])
    with pytest.raises(UsageError, match="at least one public key"):
        TrustedKeys([])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(MissingDependency, match="checking signatures needs it"):
        TrustedKeys([OFFICIAL / "key.pub"])


def test_what_is_written_is_read_back(tmp_path: Path, file: Path) -> None:
    private, _ = key_files(tmp_path, "a", KINDS["Ed25519"]())
    parsed = parse_signature_file(signed(file, private).read_bytes())
    assert parse_signature_file(parsed.encode()) == parsed


def test_a_statement_has_a_limit_of_its_own() -> None:
    """A signature file may have four times as many bytes."""
    with pytest.raises(JsonError, match="the limit is 65536"):
        signed_digest(statement_of("x" * 70_000, "0" * 64))
