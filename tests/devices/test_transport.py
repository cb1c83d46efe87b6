from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.devices.transport import SSH_OPTIONS, command_line, parse_address, why_unreachable
from edgekit.errors import MissingDependency, UsageError


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n", "utf-8")
    path.chmod(0o755)
    return path


def test_host_keys_are_checked_whatever_the_user_adds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh takes the first value of an option: ours stands before those of EDGEKIT_SSH and of its files."""
    ssh = program(tmp_path, "ssh")
    monkeypatch.setenv("EDGEKIT_SSH", f"{ssh} -o StrictHostKeyChecking=no -F 'a b'")
    line = command_line(parse_address("pi@board:2222"), "true")
    assert line == [
        str(ssh), *SSH_OPTIONS, "-o", "StrictHostKeyChecking=no", "-F", "a b", "-p", "2222", "--", "pi@board",
        "true",
    ]  # fmt: skip
    assert line.index("StrictHostKeyChecking=yes") < line.index("StrictHostKeyChecking=no")


def test_adb_runs_in_the_shell_of_one_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adb = program(tmp_path, "adb")
    monkeypatch.setenv("PATH", str(tmp_path))
    line = command_line(parse_address("adb:R5CT20"), "true")
    assert line == [str(adb), "-s", "R5CT20", "shell", "-T", "true"]


def test_a_missing_program_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependency, match="ssh is not installed, and reaching the device needs it"):
        command_line(parse_address("pi@board"), "true")
    with pytest.raises(MissingDependency, match="adb is not installed"):
        command_line(parse_address("adb:R5CT20"), "true")


def test_a_command_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_SSH", "ssh 'a")
    with pytest.raises(UsageError, match="EDGEKIT_SSH is not a command: No closing quotation"):
        command_line(parse_address("pi@board"), "true")


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Host key verification failed.", "compare the fingerprint that `ssh -p 2222 pi@board` shows"),
        ("pi@board: Permission denied (publickey).", "add your key with `ssh-copy-id -p 2222 pi@board`"),
        ("one\nsomething else\n", "something else"),
        ("", "ssh gave no reason"),
    ],
)
def test_a_reason_says_what_to_do(said: str, expected: str) -> None:
    assert expected in why_unreachable(parse_address("pi@board:2222"), said)
