"""The history of ``edgekit bench`` as a file: whole lines, and bad ones named."""

from __future__ import annotations

import calendar
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgekit._version import __version__
from edgekit.compiler.bench.history import append_run, read_history, run_now
from edgekit.devices.worker import device_facts
from edgekit.errors import UsageError
from edgekit.system import cpu

FACTS = {"name": "m.edgekit", "digest": "d" * 64, "source": "e" * 64, "inputs": {"x": [1, 3]}}
RESULT: dict[str, Any] = {
    "variant": "ort-fp32",
    "threads": 2,
    "p50_ms": 1.5,
    "p95_ms": 1.75,
    "p99_ms": 2.0,
    "load_ms": 30.0,
    "first_ms": 4.0,
    "energy_j": None,
}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    path = tmp_path / "h.jsonl"
    for _ in range(2):
        append_run(path, run_now(FACTS, [RESULT], device_facts()))
    return path


def test_a_history_is_read_as_it_was_written(history: Path) -> None:
    first, second = read_history(history)
    assert first.results == second.results == (RESULT,)
    assert (first.edgekit, first.bundle, first.digest) == (__version__, "m.edgekit", "d" * 64)
    assert [first.cpu, *first.isa] == cpu.identity()
    assert (first.source, first.inputs, first.system) == ("e" * 64, {"x": [1, 3]}, device_facts()["system"])
    written_s = calendar.timegm(time.strptime(first.time, "%Y-%m-%dT%H:%M:%SZ"))
    assert abs(time.time() - written_s) < 600


def test_no_file_is_an_empty_history(tmp_path: Path) -> None:
    assert read_history(tmp_path / "none.jsonl") == []


def test_a_line_without_its_end_is_ended_first(history: Path) -> None:
    history.write_bytes(history.read_bytes().rstrip(b"\n"))
    append_run(history, run_now(FACTS, [RESULT], device_facts()))
    assert len(read_history(history)) == 3


def changed(line: bytes, key: str, value: Any) -> bytes:
    return json.dumps({**json.loads(line), key: value}).encode()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (lambda line: line[:40], "is not JSON"),
        (lambda line: b"", "is not JSON"),
        (lambda line: b"[]", "it is a list; it must be an object"),
        (
            lambda line: changed(line, "time", "yesterday"),
            "time is 'yesterday'; it must be like 2026-11-22T20:10:00Z",
        ),
        (lambda line: changed(line, "bundle", None), "bundle is None; it must be an object"),
        (lambda line: changed(line, "results", {}), "results is a dict; it must be a list"),
        (
            lambda line: changed(line, "results", [{**RESULT, "p50_ms": "1"}]),
            "p50_ms is '1'; it must be a number",
        ),
        (
            lambda line: changed(line, "results", [{**RESULT, "threads": True}]),
            "threads is True; it must be a number",
        ),
        (lambda line: line.replace(b"1.5", b"NaN"), "NaN is not JSON"),
    ],
)
def test_a_bad_line_is_named(history: Path, bad: Any, why: str) -> None:
    first, second = history.read_bytes().splitlines()
    history.write_bytes(b"\n".join([first, bad(second), first, b""]))
    with pytest.raises(UsageError) as caught:
        read_history(history)
    assert str(caught.value).startswith(f"{history}, line 2 is not a run of edgekit bench: ")
    assert why in str(caught.value)
    assert str(caught.value).endswith("remove this line, or use another file for --history")


def test_a_line_that_has_no_room_is_taken_back(history: Path) -> None:
    resource = pytest.importorskip("resource")
    before = history.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 50, limits[1]))
    try:
        with pytest.raises(UsageError, match="can't write"):
            append_run(history, run_now(FACTS, [RESULT], device_facts()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert history.read_bytes() == before


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_killed_runs_leave_whole_lines(history: Path) -> None:
    script = (
        "import sys, pathlib; from edgekit.compiler.bench.history import *\n"
        "path = pathlib.Path(sys.argv[1]); run = read_history(path)[0]\n"
        "print(flush=True)\n"
        "while True: append_run(path, run)"
    )
    for number in range(4):
        size = history.stat().st_size
        writers = [
            subprocess.Popen([sys.executable, "-c", script, str(history)], stdout=subprocess.PIPE)
            for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None
            writer.stdout.readline()
        while history.stat().st_size == size:
            time.sleep(0.001)
        time.sleep(0.013 * number)
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert history.read_bytes().endswith(b"\n")
    assert len(read_history(history)) > 2
