"""Files of a catalogue's folder."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from edgekit.batch.stored_files import Folder


def test_a_file_is_there_by_its_size_and_content(tmp_path: Path) -> None:
    folder, digest = Folder(str(tmp_path / "new")), sha256(b"abc").hexdigest()
    assert not folder.holds("a", 3, digest)
    folder.write("a", b"abc")
    assert folder.holds("a", 3, digest)
    assert not folder.holds("a", 2, digest)
    folder.write("a", b"abd")
    assert not folder.holds("a", 3, digest)


def test_what_is_larger_than_it_may_be_is_not_read(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write(".records/a", b"abc")
    assert [folder.read(".records/a", limit) for limit in (2, 3)] == [None, b"abc"]
    assert folder.read(".records/b", 3) is None


def test_a_file_has_another_name_too(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("a", b"abc")
    folder.copy("a", "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() == b"abc"
