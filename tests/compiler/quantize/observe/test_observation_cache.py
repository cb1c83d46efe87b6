from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from edgekit.compiler.quantize.observe import observation_cache as cache
from edgekit.compiler.quantize.observe.observers import Observation

KEY = "a" * 64


def _observation(channels: int, positions: int, axis: int | None = None, count: int = 0) -> Observation:
    numbers = np.random.default_rng(channels).standard_normal((positions + 2, channels)).astype(np.float32)
    return Observation(numbers[0], numbers[1], numbers[2:], axis, count)


def _observations() -> dict[str, Observation]:
    return {"x": _observation(3, 5, 1, 99), 'odd "name"\n': _observation(1, 1)}


def _file() -> Path:
    (path,) = cache.observations_folder().iterdir()
    return path


def test_what_was_recorded_is_recalled() -> None:
    assert cache.recall(KEY) is None
    observations = _observations()
    assert cache.record(KEY, observations)
    found = cache.recall(KEY)
    assert found is not None
    assert list(found) == list(observations)
    for name, observation in observations.items():
        for part in ("low", "high", "sample"):
            assert np.array_equal(getattr(found[name], part), getattr(observation, part))
            assert getattr(found[name], part).dtype == np.float32
        assert (found[name].axis, found[name].count) == (observation.axis, observation.count)
    assert cache.record("b" * 64, {})
    assert cache.recall("b" * 64) == {}


def test_damage_is_as_if_nothing_were_there() -> None:
    cache.record(KEY, _observations())
    whole = _file().read_bytes()
    for place in range(0, len(whole), 7):
        _file().write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert cache.recall(KEY) is None
    for content in (b"", whole[:-1], whole[: len(whole) // 2], whole + b"\0"):
        _file().write_bytes(content)
        assert cache.recall(KEY) is None
    assert cache.record(KEY, _observations())
    assert cache.recall(KEY) is not None


def test_another_format_is_as_if_nothing_were_there() -> None:
    cache.record(KEY, {})
    body = _file().read_bytes()[:-32]
    changed = body.replace(b'"format":2', b'"format":1')
    assert changed != body
    _file().write_bytes(changed + hashlib.sha256(changed).digest())
    assert cache.recall(KEY) is None


@pytest.mark.parametrize(
    "header",
    [
        b"{}",
        b"[]",
        b"not JSON",
        b'{"format":2,"values":[]}',
        b'{"format":2,"values":[["x",3,5]]}',
        b'{"format":2,"values":[["x",-3,5,1,9]]}',
        b'{"format":2,"values":[["x",0,5,1,9]]}',
        b'{"format":2,"values":[["x",3,999999999,1,9]]}',
        b'{"format":2,"values":[["x","3",5,1,9]]}',
    ],
)
def test_a_header_that_does_not_fit_is_as_if_nothing_were_there(header: bytes) -> None:
    cache.record(KEY, {})
    body = len(header).to_bytes(8, "little") + header + bytes(4 * 21)
    _file().write_bytes(body + hashlib.sha256(body).digest())
    assert cache.recall(KEY) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a file").touch()
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "a file"))
    assert cache.record(KEY, _observations()) is False
    assert cache.recall(KEY) is None


def test_what_was_not_used_for_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [letter * 64 for letter in "abcd"]
    large = {"x": _observation(1, 1000)}
    monkeypatch.setattr(cache, "CACHE_LIMIT_BYTES", 16_100)
    for age, key in zip((40, 30, 20), keys, strict=False):
        assert cache.record(key, large)
        os.utime(cache.observations_folder() / f"{key}.bin", (1e9 - age, 1e9 - age))
    assert cache.recall(keys[0]) is not None  # used: it is the youngest now
    assert cache.record(keys[3], large)
    assert [cache.recall(key) is not None for key in keys] == [True, False, True, True]
    monkeypatch.setattr(cache, "CACHE_LIMIT_BYTES", 8000)
    assert cache.record(keys[3], large) is False
