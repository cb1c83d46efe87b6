"""After os.fork(): a session of one thread works in the child, and all else says what to do."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import indent

import pytest

from tests.fixtures.child_processes import run_python
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork"),
]

SCRIPT = """
import os, sys, threading
import numpy as np
from edgekit.errors import UsageError
from edgekit.runtime import Session
from edgekit.runtime.scheduling.request_queue import Requests

path, wishes = sys.argv[1], eval(sys.argv[2])
session = Session(path, **wishes)

def feeds(value):
    return {{"x": np.full((1, 6), value, np.float32)}}

def is_right(outputs, value):
    return bool((outputs["y"] == 2 * value).all())

def said(call):
    try:
        call()
    except UsageError as error:
        return str(error)
    return "nothing"

assert is_right(session.run(feeds(1)), 1)
{before}
pid = os.fork()
if pid:
    _, status = os.waitpid(pid, 0)
    assert is_right(session.run(feeds(2)), 2)
    assert is_right(session.run_async(feeds(2)).result(20), 2)
    session.close()
    sys.exit(os.waitstatus_to_exitcode(status))
import faulthandler
faulthandler.dump_traceback_later(30, exit=True)
try:
    {child}
    session.close()
except BaseException:
    sys.excepthook(*sys.exc_info())
    os._exit(1)
"""

OPENED_BEFORE = (
    "the session on {} was opened before os.fork(), and its threads stayed in the parent process: "
    "open one in each process, after the fork, or begin processes with multiprocessing's 'spawn'"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fork")
    return ort_bundle(good=onnx_bytes(DOUBLES)).save(folder / "f.edgekit")


def in_child(path: Path, wishes: str, before: str, child: str) -> list[str]:
    """Lines that the child printed."""
    script = SCRIPT.format(before=before, child=indent(child, "    ").strip())
    done = run_python(script, path, wishes)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


WORKS = """
assert is_right(session.run(feeds(3)), 3)
assert is_right(session.run_async(feeds(4)).result(20), 4)
with session.stream(map(feeds, range(5)), workers=1) as stream:
    assert [is_right(result.answer, n) for n, result in enumerate(stream)] == [True] * 5
"""


@pytest.mark.parametrize("before", ["", "assert is_right(session.run_async(feeds(2)).result(20), 2)"])
def test_a_session_of_one_thread_works_in_the_child(path: Path, before: str) -> None:
    in_child(path, "dict(threads=1)", before, WORKS)


def test_a_line_of_requests_begins_anew_in_the_child(path: Path) -> None:
    before = "line = Requests(session); line.run(feeds(2))"
    child = "assert is_right(line.run(feeds(5)), 5); print(line.counts()['waiting']); line.close()"
    assert in_child(path, "dict(threads=1)", before, child) == ["0"]


@pytest.mark.parametrize("wishes", ["dict(threads=2)", "dict(threads=1, deadline_ms=5000)"])
def test_a_session_with_threads_says_to_open_another(path: Path, wishes: str) -> None:
    child = """
print(said(lambda: session.run(feeds(3))))
print(said(lambda: session.run_async(feeds(3))))
print(said(lambda: session.stream([])))
print(said(lambda: session.runner))
with Session(path, **wishes) as another:
    assert is_right(another.run(feeds(3)), 3)
"""
    assert in_child(path, wishes, "", child) == [OPENED_BEFORE.format(path)] * 4


def test_a_run_that_was_under_way_is_not_gone_on_with(path: Path) -> None:
    """Its engine was forked in the middle of it, and its lock is nobody's."""
    before = """
gone, inside = threading.Event(), threading.Event()
run = session.runner.run
def slow(given):
    inside.set()
    gone.wait(30)
    return run(given)
session.runner.run = slow
threading.Thread(target=session.run, args=(feeds(2),), daemon=True).start()
assert inside.wait(20)
threading.Timer(0.5, gone.set).start()
"""
    child = "print(said(lambda: session.run(feeds(3))))"
    assert in_child(path, "dict(threads=1)", before, child) == [OPENED_BEFORE.format(path)]


def test_an_answer_that_comes_in_the_parent(path: Path) -> None:
    before = """
gone = threading.Event()
run = session.runner.run
session.runner.run = lambda given: (gone.wait(30), run(given))[1]
future = session.run_async(feeds(2))
threading.Timer(0.5, gone.set).start()
"""
    child = "print(said(future.result))"
    assert in_child(path, "dict(threads=1)", before, child) == [
        "this request was made before os.fork(), and its result arrives in the parent process only; "
        "repeat it in this one"
    ]


def test_a_stream_that_was_begun_before(path: Path) -> None:
    before = "stream = session.stream(map(feeds, range(50)), workers=1); next(stream)"
    child = "print(said(lambda: next(stream))); stream.close()"
    assert in_child(path, "dict(threads=1)", before, child) == [
        "this stream was started before os.fork(), and its threads stayed in the parent process: start one "
        "in this process"
    ]


def test_the_child_leaves_the_files_of_its_parent(path: Path) -> None:
    """Files that the parent removes at its end, such as unpacked ones, are still in use."""
    before = """
from edgekit.system.forked import at_exit
opened_by = os.getpid()
at_exit(lambda: print("removed by the parent:", os.getpid() == opened_by))
"""
    assert in_child(path, "dict(threads=1)", before, "") == ["removed by the parent: True"]
