from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.compiler.evaluate import sample_files
from edgekit.compiler.evaluate.sample_files import find_files
from edgekit.errors import SampleError

SUFFIXES = (".npy", ".jpg")


def tree(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def found(source: Path | str, folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in find_files(str(source), SUFFIXES)]


def test_a_folder_is_searched_and_those_below_it_on_request(tmp_path: Path) -> None:
    tree(tmp_path, "b.jpg", "a.JPG", "note.txt", "cats/1.jpg", "cats/more/2.npy", ".git/3.jpg", "cats/.4.jpg")
    assert found(tmp_path, tmp_path) == ["a.JPG", "b.jpg"]
    assert found(tmp_path / "**", tmp_path) == ["a.JPG", "b.jpg", "cats/1.jpg", "cats/more/2.npy"]


def test_links_to_folders_are_not_followed(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert found(tmp_path / "**", tmp_path) == ["a/1.jpg"]


def test_names_with_the_characters_of_patterns(tmp_path: Path) -> None:
    tree(tmp_path, "[1]/a[2]*?.jpg", "[1]/b ü\n.npy")
    assert found(tmp_path / "[1]", tmp_path) == ["[1]/a[2]*?.jpg", "[1]/b ü\n.npy"]
    assert found(tmp_path / "[1]" / "a[2]*?.jpg", tmp_path) == ["[1]/a[2]*?.jpg"]


def test_a_glob_takes_what_it_names(tmp_path: Path) -> None:
    tree(tmp_path, "a/1.jpg", "b/2.jpg", "b/3.txt")
    assert found(f"{tmp_path}/*/*.jpg", tmp_path) == ["a/1.jpg", "b/2.jpg"]


def test_a_folder_that_has_samples_only_below_says_how(tmp_path: Path) -> None:
    tree(tmp_path, "cats/1.jpg", "dogs/1.jpg")
    with pytest.raises(SampleError) as error:
        find_files(str(tmp_path), SUFFIXES)
    assert str(error.value) == (
        f"no samples at {tmp_path}: the folder has cats, dogs; to search folders, add --recursive "
        f"({tmp_path / '**'}); pass a folder or a glob of .npy, .jpg"
    )


def test_nothing_below_a_folder(tmp_path: Path) -> None:
    tree(tmp_path, "cats/1.txt")
    with pytest.raises(SampleError) as error:
        find_files(str(tmp_path / "**"), SUFFIXES)
    assert str(error.value) == (
        f"no samples at {tmp_path / '**'}: no file below {tmp_path} has one of these endings; pass a folder "
        "or a glob of .npy, .jpg"
    )


def test_a_folder_of_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, "a/1.txt", "b/2.txt", "c/3.jpg")
    monkeypatch.setattr(sample_files, "ENTRIES_LIMIT", 2)
    with pytest.raises(SampleError, match="has more than 2 files below it; use a smaller folder"):
        find_files(str(tmp_path / "**"), SUFFIXES)
