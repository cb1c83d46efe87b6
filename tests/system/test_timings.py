"""Timings of this machine: recalled as recorded, kept apart, bounded, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgekit.system import cache_folder, cpu, timings

KEY = timings.timing_key("a" * 64, "Engine 1.0", 1)


def test_a_timing_is_recalled_as_it_was_recorded() -> None:
    timing = {"p50_ms": 7.25, "runs": 30, "cpu": cpu.cpu_name()}
    assert timings.recall(KEY) is None
    assert timings.record(KEY, timing)
    assert timings.recall(KEY) == timing
    assert timings.record(KEY, {"p50_ms": 1})
    assert timings.recall(KEY) == {"p50_ms": 1}


def test_each_thing_a_timing_depends_on_makes_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {
        KEY,
        timings.timing_key("b" * 64, "Engine 1.0", 1),
        timings.timing_key("a" * 64, "Engine 1.1", 1),
        timings.timing_key("a" * 64, "Engine 1.0", 2),
        timings.timing_key("a" * 64, "Engine 1.0", 1, kind="session"),
    }
    monkeypatch.setattr(timings, "identity", lambda: ["another CPU"])
    keys.add(timings.timing_key("a" * 64, "Engine 1.0", 1))
    assert len(keys) == 6


@pytest.mark.parametrize("content", [b"[]", b"null", b'{"p50_ms":0}', b'{"p50_ms":"7"}', b'{"p50_ms":true}'])
def test_a_corrupt_timing_is_as_if_it_were_not_there(content: bytes) -> None:
    timings.record(KEY, {"p50_ms": 1.0})
    (path,) = timings.timings_folder().iterdir()
    path.write_bytes(content)
    assert timings.recall(KEY) is None
    assert timings.record(KEY, {"p50_ms": 2.0})
    assert timings.recall(KEY) == {"p50_ms": 2.0}


def test_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEKIT_CACHE", "relative")
    assert cache_folder.cache_folder() == Path.cwd() / "relative"
    monkeypatch.delenv("EDGEKIT_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_folder.cache_folder() == Path("/somewhere/edgekit")
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder.cache_folder() == Path("/home/someone/.cache/edgekit")
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert cache_folder.cache_folder() == Path("/local/edgekit")


def test_digests_tell_names_and_contents_apart() -> None:
    digests = {
        timings.files_digest(files)
        for files in ({"a": b"1"}, {"a": b"2"}, {"b": b"1"}, {"a": b"1", "b": b""}, {})
    }
    assert len(digests) == 5
    assert timings.files_digest({"a": b"1", "b": b"2"}) == timings.files_digest({"b": b"2", "a": b"1"})
