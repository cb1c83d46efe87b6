from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgekit.cli import main
from tests.fixtures.bundles import small_bundle, variant
from tests.fixtures.keys import KINDS, key_files

pytest.importorskip("cryptography")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return small_bundle([variant("a", "ort")]).save(tmp_path / "detector.edgekit")


def test_sign_then_verify(tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = key_files(tmp_path, "key", KINDS["P-256"](), b"secret")
    runner = CliRunner()
    without = runner.invoke(main, ["release", "sign", str(bundle), "--private-key", str(private)])
    assert without.exit_code == 2
    assert "is encrypted: set EDGEKIT_KEY_PASSWORD" in without.stderr
    assert "nothing was written" in without.stderr
    assert not list(tmp_path.glob("*.sig"))
    monkeypatch.setenv("EDGEKIT_KEY_PASSWORD", "secret")
    made = runner.invoke(main, ["release", "sign", str(bundle), "--private-key", str(private), "--json"])
    assert made.exit_code == 0, made.stderr
    found = json.loads(made.stdout)
    assert found["signature"] == f"{bundle}.sig"
    checked = runner.invoke(main, ["verify", str(bundle), "--key", str(public), "--json"])
    assert json.loads(checked.stdout)["signed"]["key"] == found["key"]


def test_verify_stops_at_the_signature(tmp_path: Path, bundle: Path) -> None:
    private, _ = key_files(tmp_path, "mine", KINDS["Ed25519"]())
    _, public = key_files(tmp_path, "other", KINDS["Ed25519"]())
    runner = CliRunner()
    assert runner.invoke(main, ["release", "sign", str(bundle), "--private-key", str(private)]).exit_code == 0
    found = runner.invoke(main, ["verify", str(bundle), "--key", str(public)])
    assert found.exit_code == 1
    assert "which is not trusted here" in found.stderr
    assert found.stdout == ""


def test_what_is_no_bundle_is_not_signed(tmp_path: Path, bundle: Path) -> None:
    private, _ = key_files(tmp_path, "key", KINDS["P-256"]())
    content = bytearray(bundle.read_bytes())
    content[-1] ^= 1
    bundle.write_bytes(content)
    found = CliRunner().invoke(main, ["release", "sign", str(bundle), "--private-key", str(private)])
    assert found.exit_code == 2
    assert not list(tmp_path.glob("*.sig"))


def test_a_signature_without_a_key_is_a_usage_error(bundle: Path) -> None:
    found = CliRunner().invoke(main, ["verify", str(bundle), "--signature", "x.sig"])
    assert (found.exit_code, "--signature needs --key" in found.stderr) == (2, True)
