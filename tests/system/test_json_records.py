from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path

import pytest

from edgekit.compiler.quantize.search import measurement_cache
from edgekit.system import cache_folder, cpu, json_records, timings


def test_a_record_is_found_again(tmp_path: Path) -> None:
    assert json_records.record(tmp_path / "new", "a", {"x": [1, None]}, limit=3)
    assert json_records.recall(tmp_path / "new", "a", 100) == {"x": [1, None]}
    assert json_records.recall(tmp_path / "new", "b", 100) is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"x": NaN}', b'{"x": "' + b"y" * 200 + b'"}'])
def test_what_can_not_be_read_is_as_if_it_had_never_been_there(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert json_records.recall(tmp_path, "a", 100) is None


def test_what_can_not_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not json_records.record(tmp_path / "file", "a", {}, limit=3)
    assert not json_records.record(tmp_path, "a", float("nan"), limit=3)


def test_the_oldest_go_first(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        json_records.record(tmp_path, name, number, limit=3)
        os.utime(tmp_path / f"{name}.json", (number, number))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["b", "c", "d"]


def test_each_fact_of_a_search_makes_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {measurement_cache.key("a", 1), measurement_cache.key("a", 2), measurement_cache.key("b", 1)}
    monkeypatch.setattr(cpu, "cpu_name", lambda: "another CPU")
    keys.add(measurement_cache.key("a", 1))
    assert len(keys) == 4
    assert measurement_cache.record("k", dict[str, float], {"a": math.inf, "b": 0.1})
    assert measurement_cache.recall("k", dict[str, float]) == {"a": math.inf, "b": 0.1}
    assert measurement_cache.recall("k", dict[str, str]) is None
    assert measurement_cache.recall("other", dict[str, float]) is None


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_what_others_could_have_written_is_not_believed_and_not_added_to(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    assert json_records.record(folder, "a", 1, limit=3)
    assert json_records.why_unused(folder) == json_records.why_unused(tmp_path / "absent") == ""
    (folder / "b.json").write_text("2")
    (folder / "b.json").chmod(0o666)
    assert json_records.recall(folder, "b", 100) is None
    folder.chmod(0o777)
    assert json_records.recall(folder, "a", 100) is None
    assert not json_records.record(folder, "c", 3, limit=3)
    assert json_records.record_once(folder, "c", 3, limit=3, limit_bytes=100) == 3
    assert json_records.why_unused(folder) == f"{folder} cannot be used: other users can write to it"
    assert not (folder / "c.json").exists()
    folder.chmod(0o700)
    assert json_records.recall(folder, "a", 100) == 1


def test_the_first_record_of_several_stays(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    assert json_records.record_once(folder, "a", 1, limit=3, limit_bytes=100) == 1
    assert json_records.record_once(folder, "a", 2, limit=3, limit_bytes=100) == 1
    (folder / "a.json").write_text("torn")
    assert json_records.record_once(folder, "a", 3, limit=3, limit_bytes=100) == 3
    assert [path.name for path in folder.iterdir()] == ["a.json"]


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
def test_the_folder_of_a_user_without_a_home_is_his_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can guess its name and make it first; what this process starts has it too."""
    monkeypatch.setenv("EDGEKIT_CACHE", "restored after the test")
    for name in ("EDGEKIT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    assert timings.record("0" * 64, {"p50_ms": 1.0})
    folder = cache_folder.cache_folder()
    assert (folder.parent, cache_folder.is_temporary()) == (shared, True)
    assert not folder.name.endswith(f"-{os.getuid()}")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert os.environ["EDGEKIT_CACHE"] == str(folder)
    assert timings.recall("0" * 64) == {"p50_ms": 1.0}
    folder.chmod(0o777)
    assert timings.recall("0" * 64) is None


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize(("mode", "then"), [(0o755, 0o700), (0o750, 0o700), (0o700, 0o700), (0o777, 0o777)])
def test_the_folder_of_the_conventions_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, then: int
) -> None:
    """But not one that others could write to: what they left there would look like ours."""
    monkeypatch.delenv("EDGEKIT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "edgekit"
    folder.mkdir()
    folder.chmod(mode)
    assert cache_folder.cache_folder() == folder
    assert folder.stat().st_mode & 0o777 == then
    assert bool(json_records.why_unused(folder)) == (mode == 0o777)
