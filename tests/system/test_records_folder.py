"""Each model has a folder of its own for what builds record of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit.system import records_folder, timings
from edgekit.system.cache_folder import cache_folder
from edgekit.system.records_folder import model_folder, records_in


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_folder_is_named_by_content(tmp_path: Path) -> None:
    one = model_folder([written(tmp_path / "a.onnx", b"1")])
    assert one == model_folder([written(tmp_path / "elsewhere" / "b.onnx", b"1")])
    folders = [
        one,
        model_folder([written(tmp_path / "a.onnx", b"2")]),
        model_folder([tmp_path / "a.onnx", written(tmp_path / "weights.bin", b"1")]),
        model_folder([written(tmp_path / "decoder" / "config.json", b"1").parent]),
        model_folder([written(tmp_path / "other" / "tokenizer.json", b"1").parent]),
    ]
    assert len(set(folders)) == len(folders)


def test_what_is_recorded_of_a_model_is_not_believed_of_another(tmp_path: Path) -> None:
    one, other = (model_folder([written(tmp_path / name, name.encode())]) for name in ("a.onnx", "b.onnx"))
    with records_in(one):
        assert timings.record("key", {"p50_ms": 1.0})
        assert timings.recall("key") == {"p50_ms": 1.0}
    for elsewhere in (other, None):
        with records_in(elsewhere):
            assert timings.recall("key") is None
    assert timings.timings_folder() == cache_folder() / "timings"


def test_the_oldest_folders_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outside = written(tmp_path / "outside.txt", b"mine")
    folders = []
    for number in range(4):
        folder = model_folder([written(tmp_path / f"{number}.onnx", bytes([number]))])
        assert folder is not None
        written(folder / "timings" / "a.json", bytes(100))
        (folder / "link").symlink_to(outside.parent)
        os.utime(folder, (number, number))
        folders.append(folder)
    monkeypatch.setattr(records_folder, "FOLDERS_LIMIT", 3)
    model_folder([tmp_path / "3.onnx"])
    assert [folder.exists() for folder in folders] == [False, True, True, True]
    monkeypatch.setattr(records_folder, "BYTES_LIMIT", 150)
    model_folder([tmp_path / "3.onnx"])
    assert [folder.exists() for folder in folders] == [False, False, False, True]
    assert outside.read_bytes() == b"mine"


def test_a_cache_of_somebody_else_has_none(tmp_path: Path, cache: Path) -> None:
    cache.mkdir(mode=0o777)
    cache.chmod(0o777)
    assert model_folder([written(tmp_path / "a.onnx", b"1")]) is None
