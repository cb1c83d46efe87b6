from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgekit import measured, records
from edgekit.quantize import trial_record


def test_a_record_is_found_again(tmp_path: Path) -> None:
    assert records.record(tmp_path / "new", "a", {"x": [1, None]}, limit=3)
    assert records.recall(tmp_path / "new", "a", 100) == {"x": [1, None]}
    assert records.recall(tmp_path / "new", "b", 100) is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"x": NaN}', b'{"x": "' + b"y" * 200 + b'"}'])
def test_what_can_not_be_read_is_as_if_it_had_never_been_there(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    assert records.recall(tmp_path, "a", 100) is None


def test_what_can_not_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert not records.record(tmp_path / "file", "a", {}, limit=3)
    assert not records.record(tmp_path, "a", float("nan"), limit=3)


def test_the_oldest_go_first(tmp_path: Path) -> None:
    for number, name in enumerate("abcd"):
        records.record(tmp_path, name, number, limit=3)
        os.utime(tmp_path / f"{name}.json", (number, number))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["b", "c", "d"]


def test_each_fact_of_a_search_makes_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {trial_record.key("a", 1), trial_record.key("a", 2), trial_record.key("b", 1)}
    monkeypatch.setattr(measured, "cpu_name", lambda: "another CPU")
    keys.add(trial_record.key("a", 1))
    assert len(keys) == 4
    assert trial_record.record("k", {"tried": []})
    assert trial_record.recall("k") == {"tried": []}
