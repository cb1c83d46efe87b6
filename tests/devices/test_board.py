"""--device against a real sshd: from a machine with Python and nothing else to figures in the bundle.

The board is a bare Debian on loopback (board.py); pip brings the engines from where it has them. On an
emulated ARM its Python, numpy and the engines are aarch64's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgekit
from edgekit.bundle import Bundle
from edgekit.bundle.device_evidence import device_records
from edgekit.cli import main
from edgekit.devices import connection
from tests.devices.board import Board, board
from tests.fixtures import models

pytestmark = [pytest.mark.needs_sshd, pytest.mark.needs_ort, pytest.mark.slow]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip brought for one test serves the next one."""
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture(autouse=True)
def cache(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", str(wheels))


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    with board(tmp_path / "board") as made:
        monkeypatch.setenv("EDGEKIT_SSH", made.ssh)
        yield made


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "small.edgekit"
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["ort"]).save(path)
    return path


def run(*words: object) -> tuple[int, str, str]:
    from click.testing import CliRunner

    found = CliRunner().invoke(main, [str(word) for word in words])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.stdout, found.stderr


def test_from_nothing_to_figures_in_the_report(bare: Board, bundle: Path) -> None:
    code, out, err = run("bench", bundle, "--device", bare.address, "--seconds", 0.5, "--merge", "--json")
    assert code == 0, err
    assert "brought" in err
    assert "onnxruntime" in err
    (row,) = json.loads(out)["results"]
    assert row["p50_ms"] > 0
    assert "measured on" in run("inspect", bundle)[1]
    code, out, err = run("verify", bundle, "--device", bare.address)
    assert code == 0, err
    assert "verified on ONNX Runtime" in out
    assert "brought" not in err


def test_an_unknown_host_key_is_refused(bare: Board, bundle: Path) -> None:
    bare.known_hosts.write_text("", "utf-8")
    code, _, err = run("verify", bundle, "--device", bare.address)
    assert code == 3
    assert "its host key is unknown here, or has changed: compare the fingerprint" in err
    assert bare.known_hosts.read_text("utf-8") == ""


def test_a_changed_host_key_is_refused_though_the_user_turned_checks_off(
    bare: Board, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = (bare.home / ".sshd" / "user_key.pub").read_text("utf-8")
    bare.known_hosts.write_text(f"[127.0.0.1]:{bare.port} {other}", "utf-8")
    monkeypatch.setenv("EDGEKIT_SSH", f"{bare.ssh} -o StrictHostKeyChecking=no")
    code, _, err = run("verify", bundle, "--device", bare.address)
    assert code == 3
    assert "its host key is unknown here, or has changed" in err


def test_a_user_without_a_key_is_told(bare: Board, bundle: Path) -> None:
    key = bare.home / ".sshd" / "user_key.pub"
    key.write_text("", "utf-8")
    code, _, err = run("verify", bundle, "--device", bare.address)
    assert code == 3
    assert "it requires a password: add your key with `ssh-copy-id -p" in err


def part_bytes(bare: Board) -> int:
    """What of a file in transfer has arrived."""
    parts = bare.home / ".cache" / "edgekit-device" / "parts"
    return max((path.stat().st_size for path in parts.glob("*") if path.is_file()), default=0)


def cut_when(bare: Board, condition: object, cuts: list[int], again: bool = False) -> threading.Thread:
    """Cut the connections once it holds."""

    def watch() -> None:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if condition():  # type: ignore[operator]
                cuts.append(part_bytes(bare))
                if again:
                    bare.stop()
                else:
                    bare.cut()
                return
            time.sleep(0.001)

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def test_a_connection_cut_in_a_measurement_is_made_again(bare: Board, bundle: Path) -> None:
    """The run that lost its connection ends, and does not disturb the second one."""
    unpacked = bare.home / ".cache" / "edgekit-device" / "cache" / "artifacts"
    watch = cut_when(bare, unpacked.exists, [])  # the measurement has begun
    code, _, err = run("bench", bundle, "--device", bare.address, "--seconds", 3, "--merge")
    watch.join()
    assert code == 0, err
    assert "trying again" in err
    assert len(manifest_devices(bundle)) == 1


def test_a_device_that_goes_away_is_told_and_nothing_is_merged(
    bare: Board, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAITS_S", (0.1, 0.2))
    before = bundle.read_bytes()
    watch = cut_when(bare, lambda: part_bytes(bare) > 2_000_000, [], again=True)
    code, _, err = run("bench", bundle, "--device", bare.address, "--seconds", 0.2, "--merge")
    watch.join()
    assert code == 3
    assert "was lost" in err
    assert "run the same command again" in err
    assert bundle.read_bytes() == before
    kept = part_bytes(bare)
    assert kept > 2_000_000
    bare.start()
    code, _, err = run("bench", bundle, "--device", bare.address, "--seconds", 0.2, "--merge")
    assert code == 0, err
    assert len(manifest_devices(bundle)) == 1


def manifest_devices(bundle: Path) -> list[object]:
    with Bundle.open(bundle) as opened:
        opened.verify_entries()
        return list(device_records(opened.manifest))


@pytest.mark.needs_arm
@pytest.mark.needs_tflite
def test_from_nothing_to_figures_on_emulated_arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of an emulator are of nothing else; what is shown is that wheels of aarch64 come and run."""
    path = tmp_path / "small.edgekit"
    edgekit.build(models.write(tmp_path, models.SMALL_CNN), targets=["tflite"]).save(path)
    with board(tmp_path / "board", arm=True) as made:
        monkeypatch.setenv("EDGEKIT_SSH", made.ssh)
        code, out, err = run("bench", path, "--device", made.address, "--seconds", 0.2, "--merge", "--json")
        assert code == 0, err
        assert json.loads(out)["device"]["machine"] == "aarch64"
        code, out, err = run("verify", path, "--device", made.address, "--merge")
        assert code == 0, err
        assert "tflite-fp32  verified on LiteRT" in out
    shown = run("inspect", path)[1]
    assert "(aarch64, Linux" in shown
