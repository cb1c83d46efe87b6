"""A signed bundle that was changed anywhere, packed again or given another artifact is parsed by nobody."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgekit.bundle import Bundle
from edgekit.bundle import manifest as schema
from edgekit.cli import main
from edgekit.errors import SignatureError
from edgekit.runtime import Session
from edgekit.runtime.store.bundle_store import Store
from edgekit.signing import TrustedKeys
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from tests.fixtures.bundles import pack, packed_parts, small_bundle, variant
from tests.fixtures.keys import KINDS, key_files

pytest.importorskip("cryptography")

BUNDLE = small_bundle([variant("a", "ort"), variant("b", "ort")])
WHOLE = b"".join(bytes(piece) for piece in BUNDLE.pieces())
MANIFEST, DATA = packed_parts(BUNDLE)
START = len(WHOLE) - len(DATA)
"""Offset of the entries."""


def byte_classes() -> dict[str, int]:
    """A byte of every part of the file that has a meaning of its own: name -> offset."""
    found = {"magic": 0, "version": 8, "zero": 12, "manifest size": 16, "file size": 24, "digest": 40}
    text = WHOLE[64:START].rstrip(b"\0")
    found |= {"first of the manifest": 64, "last of the manifest": 63 + len(text)}
    for key in ("sha256", "status", "offset", "name", "dtype", "format", "source"):
        found[f"manifest, {key}"] = 64 + text.index(f'"{key}":'.encode()) + len(key) + 3
    found["after the manifest"] = START - 1
    for entry in MANIFEST["entries"]:
        first, last = START + entry["offset"], START + entry["offset"] + entry["size"] - 1
        found |= {f"first of {entry['name']}": first, f"last of {entry['name']}": last}
        if last + 1 < len(WHOLE):
            found[f"after {entry['name']}"] = last + 1
    return found


def laid_out(parts: dict[str, bytes]) -> bytes:
    """The bundle with these entries, every hash of it made to fit again: a bundle that opens."""
    kept = {key: value for key, value in MANIFEST.items() if key != "entries"}
    return b"".join(bytes(piece) for piece in Bundle.create(kept, parts).pieces())


def zipped() -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("detector.edgekit", WHOLE)
    return whole.getvalue()


PARTS = {entry["name"]: bytes(BUNDLE.read(entry["name"])) for entry in MANIFEST["entries"]}
A, B = "variants/a/model.bin", "variants/b/model.bin"
REPACKED = {
    "with spaces": pack(json.dumps(MANIFEST, indent=1).encode(), DATA),
    "in another order": pack(json.dumps(dict(reversed(MANIFEST.items()))).encode(), DATA),
    "artifacts swapped": laid_out({**PARTS, A: PARTS[B], B: PARTS[A]}),
    "another artifact": laid_out({**PARTS, A: b"mine"}),
    "an entry more": laid_out({**PARTS, "more": b"x"}),
    "zipped": zipped(),
    "cut short": WHOLE[:-1],
    "longer": WHOLE + b"\0",
    "empty": b"",
}


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """The bundle beside its signature; the public key is ``key.pub``."""
    private, _ = key_files(tmp_path, "key", KINDS["P-256"]())
    path = tmp_path / "detector.edgekit"
    path.write_bytes(WHOLE)
    path.with_name("detector.edgekit.sig").write_bytes(sign_file(path, load_private_key(private)))
    return path


@pytest.fixture
def parsers(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, whatever looks into a bundle fails the test."""

    def parsed(*_: object, **__: object) -> None:
        raise AssertionError("it was parsed")

    def trap() -> None:
        monkeypatch.setattr(Bundle, "open", parsed)
        monkeypatch.setattr(Bundle, "_parse", parsed)
        monkeypatch.setattr(schema, "decode_manifest", parsed)
        monkeypatch.setattr(Session, "__init__", parsed)

    return trap


def test_what_opens_among_the_repacked() -> None:
    """The signature is what refuses these: without it most of them are bundles."""
    opened = {name for name, content in REPACKED.items() if content[:8] == WHOLE[:8] and _opens(content)}
    assert opened >= {"with spaces", "artifacts swapped", "another artifact", "an entry more"}


def _opens(content: bytes) -> bool:
    from edgekit.errors import BundleError
    from edgekit.system.regular_file import Section

    try:
        bundle = Bundle.__new__(Bundle)
        bundle._parse("it", Section(memoryview(content), 0, len(content)))
        bundle.verify_entries()
    except BundleError:
        return False
    return True


def refused(path: Path, content: bytes, store: Store, tmp_path: Path) -> None:
    path.write_bytes(content)
    keys = TrustedKeys([tmp_path / "key.pub"])
    with pytest.raises(SignatureError, match="is not the file that was signed"):
        keys.check(path)
    with pytest.raises(SignatureError, match="is not the file that was signed"):
        store.install(path)


def test_one_byte_anywhere(tmp_path: Path, signed: Path, parsers: Callable[[], None]) -> None:
    store = Store(tmp_path / "store", signed, [tmp_path / "key.pub"])
    parsers()
    for name, at in byte_classes().items():
        for bit in (1, 0x80):
            content = bytearray(WHOLE)
            content[at] ^= bit
            refused(signed, bytes(content), store, tmp_path)
            assert hashlib.sha256(content).digest() != hashlib.sha256(WHOLE).digest(), name
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("name", REPACKED)
def test_packed_again(tmp_path: Path, signed: Path, parsers: Callable[[], None], name: str) -> None:
    store = Store(tmp_path / "store", signed, [tmp_path / "key.pub"])
    parsers()
    refused(signed, REPACKED[name], store, tmp_path)
    found = CliRunner().invoke(main, ["verify", str(signed), "--key", str(tmp_path / "key.pub")])
    assert (found.exit_code, found.stdout) == (1, ""), found.exception
    assert "is not the file that was signed" in found.stderr


def test_an_installed_bundle_that_is_changed_is_parsed_at_no_start(
    tmp_path: Path, signed: Path, parsers: Callable[[], None]
) -> None:
    """At every byte class: the factory's bundle is started instead."""
    factory = small_bundle([variant("factory", "ort")]).save(tmp_path / "factory.edgekit")
    store = Store(tmp_path / "store", factory, [tmp_path / "key.pub"])
    digest = store.install(signed)
    slot = store.path
    assert slot != factory
    states = {path: path.read_bytes() for path in store.root.rglob("*.json")}
    signature = slot.with_name(f"{slot.name}.sig").read_bytes()
    parsers()
    for at in byte_classes().values():
        content = bytearray(WHOLE)
        content[at] ^= 1
        slot.parent.mkdir(exist_ok=True)
        slot.write_bytes(content)
        slot.with_name(f"{slot.name}.sig").write_bytes(signature)
        for path, text in states.items():
            path.write_bytes(text)
        again = Store(store.root, factory, [tmp_path / "key.pub"])
        assert again.begin() == factory
        assert digest in dict(again.state.given_up)
