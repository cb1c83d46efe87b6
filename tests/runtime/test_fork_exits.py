"""Forked processes end in the ordinary way, with every engine, whatever they did with sessions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import edgekit
from tests.fixtures.child_processes import run_python
from tests.fixtures.models import SMALL_CNN, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")

SCRIPT = """
import multiprocessing, os, signal, sys, time
import numpy as np
from edgekit.errors import UsageError
from edgekit.runtime import Session

path, engine, threads, deadline_ms = sys.argv[1], sys.argv[2], int(sys.argv[3]), eval(sys.argv[4])
feeds = {"image": np.ones((1, 3, 16, 16), np.float32)}

def opened():
    return Session(path, engine=engine, threads=threads, deadline_ms=deadline_ms)

def nothing():
    return "right"

def run_inherited():
    try:
        outputs = session.run(feeds)
    except UsageError as error:
        return "open one in each process" if "open one in each process" in str(error) else str(error)
    return "right" if np.array_equal(outputs["features"], expected) else "wrong"

def run_own():
    with opened() as own:
        return "right" if np.allclose(own.run(feeds)["features"], expected) else "wrong"

kept = []
def run_own_left_open():
    kept.append(opened())
    return "right" if np.allclose(kept[0].run(feeds)["features"], expected) else "wrong"

def pooled(_):
    return run_own()

def close_inherited():
    session.close()
    return "right"

def in_child(work):
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, work().encode())
        sys.exit(3)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
    signal.alarm(20)
    _, status = os.waitpid(pid, 0)
    signal.alarm(0)
    return work.__name__, os.read(read, 400).decode(), os.waitstatus_to_exitcode(status)

session = opened()
expected = session.run(feeds)["features"]
for work in (nothing, run_inherited, run_own, run_own_left_open, close_inherited):
    print(*in_child(work), sep="; ")
processes = multiprocessing.get_context("fork")
signal.signal(signal.SIGALRM, signal.default_int_handler)
signal.alarm(40)
with processes.Pool(2) as pool:
    print("pool", *pool.map(pooled, range(3)), 3, sep="; ")
process = processes.Process(target=run_own_left_open)
process.start()
process.join()
print("process", process.exitcode, sep="; ")
signal.alarm(0)
assert np.array_equal(session.run(feeds)["features"], expected)
session.close()
print(*in_child(run_own), sep="; ")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fork")
    built = edgekit.build(write(folder, SMALL_CNN), targets=["ort", "openvino", "tflite"])
    return built.save(folder / "small.edgekit")


@pytest.mark.needs_ort
@pytest.mark.needs_openvino
@pytest.mark.needs_tflite
@pytest.mark.parametrize(
    ("engine", "threads", "deadline_ms"),
    [
        ("ort", 1, None),
        ("ort", 2, None),
        ("openvino", 1, None),
        ("openvino", 2, None),
        ("tflite", 1, None),
        ("tflite", 2, None),
        ("openvino", 1, 5000),
    ],
)
def test_a_forked_process_ends(path: Path, engine: str, threads: int, deadline_ms: float | None) -> None:
    done = run_python(SCRIPT, path, engine, threads, deadline_ms)
    inherited = "right" if threads == 1 and deadline_ms is None else "open one in each process"
    assert done.stdout.splitlines() == [
        "nothing; right; 3",
        f"run_inherited; {inherited}; 3",
        "run_own; right; 3",
        "run_own_left_open; right; 3",
        "close_inherited; right; 3",
        "pool; right; right; right; 3",
        "process; 0",
        "run_own; right; 3",
    ], done.stderr
    assert (done.returncode, done.stderr) == (0, "")
