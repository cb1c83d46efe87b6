"""Files that are opened by name: regular ones alone, within a size."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from edgekit.system.regular_file import PIECE_BYTES, NotRegularFileError, PlainFile, read_plain, sha256_of


def test_a_file_has_a_size_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^it is empty$"):
        PlainFile(str(path), 3)
    path.write_bytes(b"1234")
    with pytest.raises(ValueError, match=r"^it has 4 bytes; the limit is 3$"):
        PlainFile(str(path), 3)
    assert PlainFile(str(path), 4).read(1, 9) == b"234"


def test_no_more_is_read_than_allowed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(3000))
    assert len(read_plain(path, 3000)) == 3000
    with pytest.raises(NotRegularFileError, match="it has more than 2 kB"):
        read_plain(path, 2999)


def test_pipes_folders_links_and_odd_names_are_no_files(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would wait for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_bytes(b"1")
    for name, follow, why in (
        ("pipe", True, "it is not a regular file"),
        ("", True, "it is not a regular file"),
        ("a\0b", True, "its name contains a zero byte"),
        ("link", False, "it is a symbolic link"),
    ):
        with pytest.raises(NotRegularFileError, match=why):
            read_plain(tmp_path / name, 9, follow_links=follow)
    assert read_plain(tmp_path / "link", 9) == b"1"


def test_the_sha256_of_a_file_larger_than_a_piece(tmp_path: Path) -> None:
    content = bytes(range(256)) * 4097  # the last piece is a part of one
    (tmp_path / "a").write_bytes(content)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert len(content) % PIECE_BYTES
    assert sha256_of(tmp_path / "a") == sha256_of(tmp_path / "link") == hashlib.sha256(content).hexdigest()
    for path, follow_links in ((tmp_path, True), (tmp_path / "link", False), (tmp_path / "b", True)):
        with pytest.raises(OSError, match=r"not a regular file|symbolic link|No such file"):
            sha256_of(path, follow_links=follow_links)
