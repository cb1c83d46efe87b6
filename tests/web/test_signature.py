"""``Session.open`` of ``edgekit.js`` with public keys: what they signed opens, and nothing else does."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgekit.signing.signature_file import MEDIA_TYPE, SignatureFile, message_of, statement_of
from edgekit.signing.signing_keys import load_private_key
from edgekit.signing.trusted_keys import sign_file
from edgekit.web.folder import write_web
from tests.fixtures.keys import KINDS, key_files
from tests.native.models import colours_bundle
from tests.web.host import Host, hosted, opened

pytestmark = [pytest.mark.needs_browser, pytest.mark.needs_npm, pytest.mark.needs_ort]
OPEN = """async ([keys, signature]) => {
  const {Session, EdgeKitError} = await import('./edgekit.js');
  try {
    const session = await Session.open('model.edgekit', {keys, ...(signature === null ? {} : {signature})});
    await session.close();
    return session.variant;
  } catch (problem) {
    return `${problem instanceof EdgeKitError}: ${problem.message}`;
  }
}"""
CHANGED = "true: s.sig does not hold: no trusted key made it, or it was changed"


@pytest.fixture(scope="module")
def site(npm_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Path]]:
    folder = tmp_path_factory.mktemp("host") / "site"
    write_web(colours_bundle(), folder, [npm_package])
    with hosted(folder) as host:
        yield host, folder


@pytest.mark.parametrize("kind", ["Ed25519", "P-256", "P-384", "P-521"])
def test_a_bundle_opens_with_the_key_that_signed_it(
    program: Any, site: tuple[Host, Path], tmp_path: Path, kind: str
) -> None:
    """ECDSA's numbers vary in length from signature to signature: 40 are checked."""
    host, folder = site
    private, own = key_files(tmp_path, "own", KINDS[kind]())
    public = own.read_text()
    stranger = key_files(tmp_path, "stranger", KINDS["Ed25519"]())[1].read_text()
    key, bundle = load_private_key(private), folder / "model.edgekit"
    (folder / "model.edgekit.sig").write_bytes(sign_file(bundle, key))
    with opened(program, host.url) as (page, _):
        assert page.evaluate(OPEN, [[stranger, public], None]) == "colours"
        check = """async ([keys, files]) => {
          const {checkSignature} = await import('./signature.js');
          const bundle = new Uint8Array(await (await fetch('model.edgekit')).arrayBuffer());
          const encoder = new TextEncoder();
          for (const file of files) await checkSignature(bundle, keys, encoder.encode(file), 's.sig');
          return files.length;
        }"""
        files = [sign_file(bundle, key).decode() for _ in range(1 if kind == "Ed25519" else 40)]
        assert page.evaluate(check, [[public], files]) == len(files)
        refused = page.evaluate(OPEN, [[stranger], None])
    assert refused == CHANGED.replace("s.sig", "model.edgekit.sig")


def damaged(content: bytes) -> dict[str, tuple[bytes, str]]:
    """Files that are no signature of the bundle -> what is said of each."""
    file = json.loads(content)
    envelope = file["dsseEnvelope"]

    def changed(**members: Any) -> bytes:
        return json.dumps({**file, "dsseEnvelope": {**envelope, **members}}).encode()

    signature = bytearray(base64.b64decode(envelope["signatures"][0]["sig"]))
    signature[9] ^= 1
    other = base64.b64encode(statement_of("m", "0" * 64)).decode()
    cannot = "true: s.sig is not a signature that can be checked: "
    of_no_kind = f"{cannot}it is not a Sigstore bundle of type {MEDIA_TYPE}"
    return {
        "no JSON": (b"\xff", of_no_kind),
        "another document": (b"[]", of_no_kind),
        "another payload type": (
            changed(payloadType="text/plain"), f"{cannot}it has no DSSE envelope with an in-toto statement",
        ),
        "two signatures": (
            changed(signatures=envelope["signatures"] * 2), f"{cannot}it does not hold exactly one signature",
        ),
        "no base64": (changed(payload="!"), f"{cannot}its payload or signature is missing or is not base64"),
        "a changed signature": (
            changed(signatures=[{"sig": base64.b64encode(signature).decode()}]), CHANGED,
        ),
        "another statement": (changed(payload=other), CHANGED),
        "an empty signature": (changed(signatures=[{"sig": ""}]), CHANGED),
        "a cut signature": (
            changed(signatures=[{"sig": base64.b64encode(signature[:-1]).decode()}]), CHANGED,
        ),
        "too large": (b" " * 262_145, "true: the signature has more than 262144 bytes, which a page opens"),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["Ed25519", "P-256"])
def test_another_signature_is_refused(
    program: Any, site: tuple[Host, Path], tmp_path: Path, kind: str
) -> None:
    host, folder = site
    private, own = key_files(tmp_path, "own", KINDS[kind]())
    public = own.read_text()
    bundle, key = folder / "model.edgekit", load_private_key(private)
    cases = damaged(sign_file(bundle, key))

    def signed(payload: bytes) -> bytes:
        return SignatureFile(payload, key.sign(message_of(payload)), "").encode()

    foreign = json.loads(statement_of("m", "0" * 64))
    cases["of another file"] = (
        signed(statement_of("model.edgekit", "0" * 64)),
        "true: the bundle is not the file that was signed: its sha256 is not the one in s.sig",
    )
    cases["of another kind"] = (
        signed(json.dumps({**foreign, "predicateType": "https://slsa.dev/provenance/v1"}).encode()),
        "true: s.sig is not a signature that can be checked: it is not OpenSSF model signing's version 1.0",
    )
    foreign["predicate"]["resources"] *= 2
    cases["of a folder"] = (
        signed(json.dumps(foreign).encode()),
        "true: s.sig is not a signature that can be checked: it was made for a folder or for parts of a "
        "file; a bundle is one file",
    )
    with opened(program, host.url) as (page, console):
        for number, (name, (content, text)) in enumerate(cases.items()):
            (folder / "s.sig").write_bytes(content)
            assert page.evaluate(OPEN, [[public], f"s.sig?{number}"]) == text, name
        assert page.evaluate(OPEN, [[], "s.sig"]) == "true: give at least one public key"
        script = """async (key) => {
          const {Session} = await import('./edgekit.js');
          return Session.open(new ArrayBuffer(8), {keys: [key]}).catch((problem) => problem.message);
        }"""
        refused = page.evaluate(script, public)
        assert refused == "a bundle without a URL needs the option signature beside keys"
        assert page.evaluate(OPEN, [["no key"], "s.sig"]).startswith(
            "true: a public key is not the PEM text of"
        )
        (folder / "model.edgekit.sig").unlink(missing_ok=True)
        missing = page.evaluate(OPEN, [[public], None])
        assert missing == f"true: {host.url}model.edgekit.sig: the server answered 404"
        console.clear()  # the browser's line of the file that is missing
