"""docs/devices: the page has all files, and a forged or impossible one is refused."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.site.device_table import FOLDER, PAGE, SCHEMA, RefusedFileError, page, read_file, read_folder

Device = dict[str, Any]


def test_the_page_has_the_files() -> None:
    text = (FOLDER / PAGE).read_text("utf-8")
    assert page(text, read_folder()) == text, "run python -m docs.site.device_table"
    assert len(read_folder()) == len(list(FOLDER.glob("*.json"))) - 1 >= 2


@pytest.fixture
def device() -> Device:
    return dict(json.loads((FOLDER / "virtual-machine-epyc.json").read_text("utf-8")))


def change(*keys: Any) -> Callable[[Any], Callable[[Device], None]]:
    """``change("a", "b")(value)(device)`` sets ``device["a"]["b"]``."""

    def to(value: Any) -> Callable[[Device], None]:
        def made(device: Device) -> None:
            place: Any = device
            for key in keys[:-1]:
                place = place[key]
            place[keys[-1]] = value

        return made

    return to


def first(**times: Any) -> Callable[[Device], None]:
    return lambda device: device["results"][0].update(times)


def twice(device: Device) -> None:
    device["results"].append({**device["results"][0], "p50_ms": device["results"][0]["p50_ms"] * 0.99})


FORGED: dict[str, tuple[Callable[[Device], None], str]] = {
    "a field less": (lambda device: device.pop("machine"), "'machine' is a required property"),
    "a link": (change("machine", "cpu")("[M9](//x.y)"), r"\$\.machine\.cpu: .* should not be valid"),
    "a row of a table": (change("machine", "system")("Linux | 1 ms"), r"\$\.machine\.system: .* should not"),
    "a line end": (change("note")("a\nb"), r"\$\.note: .* should not be valid"),
    "an end of a line at the end": (change("note")("a\n"), r"\$\.note: .* should not be valid"),
    "a text as time": (first(p50_ms="1"), r"p50_ms: '1' is not of type 'number'"),
    "no time": (first(p50_ms=0), "p50_ms: 0 is less than or equal"),
    "a time below zero": (first(p50_ms=-1), "p50_ms: -1 is less than or equal"),
    "half of the times": (lambda device: device["results"][0].pop("p99_ms"), "'p99_ms' is a dependency"),
    "four runs": (first(runs=4), "runs: 4 is less than the minimum"),
    "times out of order": (first(p95_ms=0.01), "p50, p95 and p99 are not in order"),
    "faster than any processor": (
        first(p50_ms=0.2, p95_ms=0.3, p99_ms=0.3, threads=1),
        r"nothing computes 1\.85e\+09 products in 0\.2 ms",
    ),
    "from the future": (change("time")("2099-01-01T00:00:00Z"), "is in the future or before"),
    "before the first version": (change("time")("2020-01-01T00:00:00Z"), "is in the future or before"),
    "no such day": (change("time")("2026-11-31T00:00:00Z"), "is not a time"),
    "another model": (change("bundle", "source")("0" * 64), "its bundle is not that of"),
    "a smaller image": (change("bundle", "inputs", "input.1")([1, 3, 32, 32]), "its bundle is not that of"),
    "a variant twice": (twice, "a variant, engine and number of threads twice"),
    "an engine of a page": (first(engine="LiteRT.js 2.5.3, WebGPU"), "WebGPU does not run on x86_64"),
    "a browser without one": (change("machine", "machine")("browser"), "does not run on browser"),
    "nothing timed": (change("results")([{"variant": "a", "engine": "b"}]), "no variant has a time"),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_or_impossible_file_is_refused(forged: str, device: Device, tmp_path: Path) -> None:
    path = tmp_path / "pi.json"
    path.write_text(json.dumps(device), "utf-8")
    assert read_file(path) == device
    made, reason = FORGED[forged]
    made(device)
    path.write_text(json.dumps(device), "utf-8")
    with pytest.raises(RefusedFileError, match=rf"pi\.json.*{reason}"):
        read_file(path)


def test_a_copy_under_another_name_is_refused(device: Device, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(device), "utf-8")
    other = copy.deepcopy(device)
    other["machine"]["cpu"] = "Another processor"
    (tmp_path / "b.json").write_text(json.dumps(other), "utf-8")
    with pytest.raises(RefusedFileError, match=r"b\.json: .* has the times of a\.json"):
        read_folder(tmp_path)


def test_malformed_json_is_refused(tmp_path: Path) -> None:
    shutil.copy(FOLDER / SCHEMA, tmp_path / "x.json")
    for content in (b"{", b"\xff", b'{"time": NaN}', b" " * 70_000, b"[]"):
        (tmp_path / "x.json").write_bytes(content)
        with pytest.raises(RefusedFileError, match=r"x\.json"):
            read_file(tmp_path / "x.json")
