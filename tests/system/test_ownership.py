"""Whose a folder is: every way in which others could put something of theirs into it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgekit.system.atomic_files import private_folder
from edgekit.system.ownership import read_own, refuse_foreign

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "it"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        each.chmod(0o755)
    return folder


def to_a_link(folder: Path) -> Path:
    folder.rename(folder.with_name("real"))
    folder.symlink_to("real")
    return folder


def test_what_is_ours_is_fine(folder: Path) -> None:
    refuse_foreign(folder)
    folder.parent.chmod(0o1777)  # as /tmp
    refuse_foreign(folder)
    refuse_foreign(to_a_link(folder))
    with pytest.raises(FileNotFoundError):
        refuse_foreign(folder / "absent")


def test_a_system_without_modes_has_folders_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    folder.chmod(0o777)
    refuse_foreign(folder)
    with pytest.raises(FileNotFoundError):
        refuse_foreign(folder / "absent")
    private_folder(folder / "absent" / "below")
    assert (folder / "absent" / "below").is_dir()
    folder.with_name("file").touch()
    with pytest.raises(NotADirectoryError):
        refuse_foreign(folder.with_name("file"))


def in_a_folder_of_all(folder: Path) -> None:
    to_a_link(folder).parent.chmod(0o777)


def to_a_file(folder: Path) -> None:
    folder.rmdir()
    folder.touch()


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "others": (lambda f: f.chmod(0o757), "other users can write to it"),
    "group": (lambda f: f.chmod(0o775), "other users can write to it"),
    "sticky": (lambda f: f.chmod(0o1777), "other users can write to it"),
    "above": (lambda f: f.parent.chmod(0o775), "other users can write to {above}, where it is"),
    "link": (in_a_folder_of_all, "other users can write to {above}, where it is"),
    "link's end": (lambda f: to_a_link(f).chmod(0o777), "other users can write to it"),
    "file": (to_a_file, "it is not a folder"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_what_others_may_write_to_is_refused(folder: Path, what: str) -> None:
    act, why = HOSTILE[what]
    act(folder)
    with pytest.raises(OSError, match="it") as error:
        refuse_foreign(folder)
    assert error.value.strerror == why.format(above=folder.parent)


GIVEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder": (lambda f: os.chown(f, 12345, 0), "it belongs to user 12345"),
    "above": (lambda f: os.chown(f.parent, 12345, 0), "{above}, where it is, belongs to user 12345"),
    "link": (lambda f: os.lchown(to_a_link(f), 12345, 0), "it belongs to user 12345"),
    "link's end": (lambda f: os.chown(to_a_link(f), 12345, 0), "it belongs to user 12345"),
}


@as_root
@pytest.mark.parametrize("what", GIVEN)
def test_what_is_another_users_is_refused(folder: Path, what: str) -> None:
    act, why = GIVEN[what]
    act(folder)
    with pytest.raises(PermissionError) as error:
        refuse_foreign(folder)
    assert error.value.strerror == why.format(above=folder.parent)


@as_root
def test_a_user_trusts_root_and_root_trusts_no_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    refuse_foreign(folder)
    os.chown(folder, 12345, 12345)
    refuse_foreign(folder)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(PermissionError):
        refuse_foreign(folder)


def test_a_file_is_read_where_it_is_one_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    path.chmod(0o644)
    assert read_own(path, 100) == b"content"
    assert read_own(path, 3) == b"con"
    path.chmod(0o664)
    with pytest.raises(PermissionError, match="other users can write to it"):
        read_own(path, 100)
    path.chmod(0o644)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    for name, why in (
        ("link", "it is a symbolic link"),
        ("pipe", "it is not a regular file"),
        (".", "it is not a"),
    ):
        with pytest.raises(OSError, match=why):
            read_own(tmp_path / name, 100)
