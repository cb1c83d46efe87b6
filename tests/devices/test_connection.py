"""The script on a device, run on this machine: requests, files in pieces, connections that end."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from edgekit.devices import connection
from edgekit.devices.connection import Connection, NoPython
from edgekit.devices.inventory import read_inventory
from edgekit.devices.transport import parse_address
from edgekit.errors import DeviceError
from tests.devices.local_ssh import local_ssh

CONTENT = os.urandom(300_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "WAITS_S", (0.0, 0.0))


def connected(told: list[str] | None = None) -> Connection:
    return Connection(parse_address("pi@board"), (told if told is not None else []).append)


def test_what_is_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_ssh(tmp_path, monkeypatch)
    found = read_inventory(connected().ask({"do": "inventory"}), "pi@board")
    assert found.machine == os.uname().machine
    assert found.python >= (3, 10)
    assert "numpy" in found.packages
    assert found.free_mb > 0


def test_a_file_arrives_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    assert connected().send(CONTENT, DIGEST, unpack=False) == len(CONTENT)
    assert (there / "whole" / DIGEST).read_bytes() == CONTENT
    assert connected().send(CONTENT, DIGEST, unpack=False) == 0
    assert os.listdir(there / "parts") == []


def test_a_transfer_goes_on_where_it_was_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first connection for the file ends after 100,000 bytes of what goes over it."""
    cut = f"""
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count
if [ $n = 1 ]; then head -c 100000 | (env HOME={tmp_path}/home sh -c "$command"); exit 255; fi
"""
    there = local_ssh(tmp_path, monkeypatch, cut)
    told: list[str] = []
    sent = connected(told).send(CONTENT, DIGEST, unpack=False)
    assert 200_000 < sent < len(CONTENT)
    assert told == ["the connection to pi@board was lost (ssh gave no reason); trying again"]
    assert (there / "whole" / DIGEST).read_bytes() == CONTENT


def test_a_transfer_that_is_cut_each_time_is_told_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = f"""
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) >count
if [ $((n % 2)) = 1 ]; then head -c 60000 | (env HOME={tmp_path}/home sh -c "$command"); exit 255; fi
"""
    there = local_ssh(tmp_path, monkeypatch, cut)
    with pytest.raises(DeviceError) as caught:
        connected().send(CONTENT, DIGEST, unpack=False)
    assert str(caught.value) == (
        "the connection to pi@board was lost 3 times: ssh gave no reason\n"
        "  run the same command again: it does not resend what the device has received"
    )
    part = (there / "parts" / DIGEST).read_bytes()
    assert 3 * 50_000 < len(part) < len(CONTENT)
    assert CONTENT.startswith(part)
    assert not (there / "whole" / DIGEST).exists()


def test_what_is_wrong_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    with pytest.raises(
        DeviceError, match=f"pi@board: ValueError: the received file does not have the sha256 {'0' * 64}"
    ):
        connected().send(CONTENT, "0" * 64, unpack=False)
    assert os.listdir(there / "parts") == os.listdir(there / "whole") == []


def packed(name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"ok"))
    return made.getvalue()


def test_an_archive_is_unpacked_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    content = packed("package/module.py")
    digest = hashlib.sha256(content).hexdigest()
    connected().send(content, digest, unpack=True)
    assert (there / "whole" / digest / "package" / "module.py").read_bytes() == b"ok"
    assert os.listdir(there / "parts") == []


def test_the_oldest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    contents = [bytes([number]) for number in range(5)]
    for number, content in enumerate(contents):
        digest = hashlib.sha256(content).hexdigest()
        connected().send(content, digest, unpack=False)
        os.utime(there / "whole" / digest, (number, number))
    left = {(there / "whole" / name).read_bytes() for name in os.listdir(there / "whole")}
    assert left == set(contents[2:])


def test_a_device_that_is_not_there_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_ssh(tmp_path, monkeypatch, 'echo "ssh: connect to host board: Connection refused" >&2; exit 255')
    told: list[str] = []
    with pytest.raises(DeviceError) as caught:
        connected(told).ask({"do": "inventory"})
    assert str(caught.value) == (
        "pi@board can't be reached: nothing listens there: start sshd on the device, or check the port"
    )
    assert told == []


def test_a_shell_that_speaks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_ssh(tmp_path, monkeypatch, "echo Welcome to Board OS")
    with pytest.raises(DeviceError, match="its shell profile must not print anything"):
        connected().ask({"do": "inventory"})


def test_a_device_without_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local_ssh(tmp_path, monkeypatch)
    for name in connection.PYTHONS:
        path = tmp_path / "programs" / name
        path.unlink(missing_ok=True)
        path.write_text("#!/bin/sh\nexit 1\n", "utf-8")  # as one that is too old
        path.chmod(0o755)
    with pytest.raises(NoPython):
        connected().ask({"do": "inventory"})


def test_a_folder_that_others_may_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = local_ssh(tmp_path, monkeypatch)
    there.mkdir(parents=True)
    there.chmod(0o777)
    with pytest.raises(DeviceError, match="belongs to another user, or others may write to it"):
        connected().ask({"do": "inventory"})
