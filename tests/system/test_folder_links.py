"""Links of a model's folder lead into its own Hugging Face cache or are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.system.regular_file import NotRegularFileError, followed, linked_files
from tests.fixtures.hub_caches import as_snapshot

WHY = "it is a symbolic link; replace it by the file that it leads to"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    source = tmp_path / "model"
    (source / "onnx").mkdir(parents=True)
    (source / "config.json").write_text("{}")
    (source / "onnx" / "model.onnx").write_text("model")
    return as_snapshot(source, tmp_path / "hub")


def test_links_into_the_own_cache_are_followed(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("config.json", "{}"), ("onnx/model.onnx", "model")):
        file = followed(snapshot / name)
        assert (file.read_text(), file.is_symlink(), file.parent.name) == (content, False, "blobs")
        assert str(file) in list(linked_files(str(snapshot)))
    monkeypatch.chdir(snapshot)
    assert followed(Path("config.json")).read_text() == "{}"
    assert len(list(linked_files("."))) == 2


def test_a_file_is_itself(tmp_path: Path) -> None:
    assert followed(tmp_path / "config.json") == tmp_path / "config.json"
    assert not list(linked_files(str(tmp_path)))


def test_links_to_elsewhere_are_refused(snapshot: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "hub" / "secret").write_text("x")
    other = as_snapshot(tmp_path / "model", tmp_path / "elsewhere")
    blobs = snapshot.parents[1] / "blobs"
    os.symlink(tmp_path / "secret", blobs / "chained")
    for goal in (
        tmp_path / "secret",
        tmp_path / "nowhere",
        tmp_path / "hub" / "secret",
        snapshot / "other",
        os.path.realpath(other / "config.json"),
        blobs / "chained",
        blobs / ".." / ".." / "secret",
        blobs,
    ):
        os.symlink(goal, snapshot / "link")
        with pytest.raises(NotRegularFileError) as error:
            followed(snapshot / "link")
        assert error.value.strerror == WHY
        assert len(list(linked_files(str(snapshot)))) == 2
        (snapshot / "link").unlink()


def test_a_cache_whose_contents_are_a_link_is_not_its_own(snapshot: Path, tmp_path: Path) -> None:
    blobs = snapshot.parents[1] / "blobs"
    blobs.rename(tmp_path / "private")
    blobs.symlink_to(tmp_path / "private")
    with pytest.raises(NotRegularFileError):
        followed(snapshot / "config.json")
    assert not list(linked_files(str(snapshot)))
