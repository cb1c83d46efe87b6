from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgekit.cli import main
from tests.fixtures.bundles import small_bundle
from tests.fixtures.keys import KINDS, key_files
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

pytest.importorskip("cryptography")


def asked(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.needs_ort
def test_written_signed_and_verified(tmp_path: Path) -> None:
    bundle = ort_bundle(a=onnx_bytes(DOUBLES)).save(tmp_path / "a.edgekit")
    private, public = key_files(tmp_path, "key", KINDS["P-256"]())
    statement, bill = tmp_path / "p.json", tmp_path / "b.json"
    builder = "https://ci.example.com/release"
    made = asked(
        "release",
        "provenance",
        bundle,
        "-o",
        statement,
        "--bom",
        bill,
        "--private-key",
        private,
        "--builder",
        builder,
        "--json",
    )
    assert made.exit_code == 0, made.stderr
    assert json.loads(made.stdout)["files"] == [
        str(p) for p in (statement, bill, f"{statement}.sig", f"{bill}.sig")
    ]
    assert json.loads(statement.read_bytes())["predicate"]["runDetails"]["builder"]["id"] == builder
    assert asked("release", "sign", bundle, "--private-key", private).exit_code == 0
    verify = ["verify", bundle, "--key", public, "--provenance", statement, "--provenance", bill]
    checked = asked(*verify)
    assert checked.exit_code == 0, checked.stderr

    bill.write_bytes(bill.read_bytes().replace(b"m.onnx", b"n.onnx"))
    changed = asked(*verify)
    assert changed.exit_code == 1
    assert "is not the file that was signed" in changed.stderr


def test_documents_of_another_bundle_do_not_verify(tmp_path: Path) -> None:
    one = small_bundle().save(tmp_path / "one.edgekit")
    two = small_bundle(entries={"more": b"more"}).save(tmp_path / "two.edgekit")
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    statement, bill = tmp_path / "p.json", tmp_path / "b.json"
    assert (
        asked(
            "release", "provenance", one, "-o", statement, "--bom", bill, "--private-key", private
        ).exit_code
        == 0
    )
    assert asked("release", "sign", two, "--private-key", private).exit_code == 0
    for document in (statement, bill):
        found = asked("verify", two, "--key", public, "--provenance", document)
        assert (found.exit_code, "belongs to another bundle" in found.stderr) == (1, True)
    (tmp_path / "p.json.sig").unlink()
    assert "is not signed" in asked("verify", two, "--key", public, "--provenance", statement).stderr


def test_what_is_signed_but_no_provenance(tmp_path: Path) -> None:
    """A signature of the same key on something else, e.g. on the bundle itself, is no statement about it."""
    bundle = small_bundle().save(tmp_path / "one.edgekit")
    private, public = key_files(tmp_path, "key", KINDS["Ed25519"]())
    assert asked("release", "sign", bundle, "--private-key", private).exit_code == 0
    found = asked("verify", bundle, "--key", public, "--provenance", bundle)
    assert (found.exit_code, "neither SLSA provenance nor" in found.stderr) == (1, True)


@pytest.mark.skipif(
    importlib.util.find_spec("model_signing") is None, reason="model_signing is not installed"
)
def test_the_official_command_line_accepts_a_bill(tmp_path: Path) -> None:
    bundle = small_bundle().save(tmp_path / "one.edgekit")
    private, public = key_files(tmp_path, "key", KINDS["P-256"]())
    bill = tmp_path / "b.json"
    assert asked("release", "provenance", bundle, "--bom", bill, "--private-key", private).exit_code == 0
    command = [sys.executable, "-m", "model_signing", "verify", "key", str(bill)]
    subprocess.run([*command, "--public_key", public, "--signature", f"{bill}.sig"], check=True)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "nothing to write: give -o provenance.json"),
        (["--bom", "b.json", "--builder", "https://a"], "--builder needs -o, the SLSA provenance"),
        (["-o", "b.json", "--bom", "b.json"], "name the same file"),
        (["-o", "b.json", "--builder", "me"], "is not a URI"),
        (["-o", "b.json", "--private-key", "missing.pem"], "the key can't be read"),
        (["-o", "missing/b.json"], "is not a folder"),
    ],
)
def test_misuse_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], why: str
) -> None:
    small_bundle().save(tmp_path / "one.edgekit")
    monkeypatch.chdir(tmp_path)
    found = asked("release", "provenance", "one.edgekit", *words)
    assert (found.exit_code, why in found.stderr) == (2, True), found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["one.edgekit"]


def test_a_damaged_bundle_is_not_described(tmp_path: Path) -> None:
    bundle = small_bundle().save(tmp_path / "one.edgekit")
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    found = asked("release", "provenance", bundle, "-o", tmp_path / "p.json")
    assert (found.exit_code, "is damaged" in found.stderr) == (2, True)
    assert not (tmp_path / "p.json").exists()


def test_a_key_is_needed_to_check_documents(tmp_path: Path) -> None:
    bundle = small_bundle().save(tmp_path / "one.edgekit")
    found = asked("verify", bundle, "--provenance", "p.json")
    assert (found.exit_code, "needs --key, a public key" in found.stderr) == (2, True)
