"""Files that are whole or not there, in folders that are ours."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgekit.system.atomic_files import locked, private_folder, write_atomically
from tests.fixtures.disk_calls import flushed_before, recorded, renamed_to

posix = pytest.mark.skipif(os.name != "posix", reason="needs folders that can be flushed")


@posix
def test_a_file_is_on_the_disk_before_it_has_its_name_and_its_name_before_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    path = tmp_path / "file"
    write_atomically(path, [b"con", b"tent"])
    named = renamed_to(calls, path)
    assert flushed_before(calls, path, named)
    assert not flushed_before(calls, tmp_path, named)
    assert flushed_before(calls, tmp_path, len(calls))


@posix
def test_a_new_folder_is_on_the_disk_and_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = recorded(monkeypatch)
    mask = os.umask(0)
    try:
        private_folder(tmp_path / "a" / "b")
        write_atomically(tmp_path / "a" / "file", [b""], 0o600)
    finally:
        os.umask(mask)
    for path in (tmp_path, tmp_path / "a"):
        assert flushed_before(calls, path, len(calls))
    for path, mode in ((tmp_path / "a", 0o700), (tmp_path / "a/b", 0o700), (tmp_path / "a/file", 0o600)):
        assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_a_folder_that_another_user_makes_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look that found none and the making of it."""

    def another_is_faster(path: Path, mode: int) -> None:
        made(path, 0o777)
        path.chmod(0o777)
        raise FileExistsError

    made = os.mkdir
    monkeypatch.setattr(os, "mkdir", another_is_faster)
    with pytest.raises(PermissionError, match="other users can write to it"):
        private_folder(tmp_path / "new")


@posix
def test_a_lock_that_is_a_pipe_or_a_link_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for name, why in (("pipe", "it is not a regular file"), ("link", "it is a symbolic link")):
        with pytest.raises(OSError, match=why), locked(tmp_path / name, 60):
            pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_lock_is_held(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    with (
        locked(tmp_path / "lock", 1),
        pytest.raises(TimeoutError, match="has held its lock for 0"),
        locked(tmp_path / "lock", 0),
    ):
        pass
    with locked(tmp_path / "lock", 0):
        pass


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    """A write to a full disk names no file; the error must not name the draft either."""

    def pieces() -> Iterator[bytes]:
        yield b"half"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "card.toml"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="No space left") as error:
        write_atomically(path, pieces())
    assert error.value.filename == str(path)
    assert [p.name for p in tmp_path.iterdir()] == ["card.toml"]
    assert path.read_bytes() == b"before"
    with pytest.raises(FileNotFoundError) as missing:
        write_atomically(tmp_path / "none" / "card.toml", [b""])
    assert missing.value.filename == str(tmp_path / "none" / "card.toml")


@posix
@pytest.mark.parametrize("letter", ["e", "\u00e9", "\u20ac"])
def test_a_name_of_255_bytes_is_written(tmp_path: Path, letter: str) -> None:
    path = tmp_path / (letter * (255 // len(letter.encode())))
    write_atomically(path, [b"whole"])
    assert path.read_bytes() == b"whole"
