"""The corpus in short: every class in one process that must not die, and some through the command line.

The long form, ``python -m tests.compiler.sandbox.corpus``, runs every model through ``check`` and ``build``
in processes of its own, and measures them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.compiler.sandbox.corpus.__main__ import Ran, all_crafted, outcome, run

pytestmark = pytest.mark.needs_ort

SLOW = ("many nodes", "200,000 empty ones")
"""Minutes in all, on a slow machine; they take long and do no harm."""
IN_ONE_PROCESS = """
import sys, tempfile
from pathlib import Path
import edgekit
from edgekit.errors import EdgeKitError
from edgekit.system.confinement import Bounds, confine
from tests.compiler.sandbox.corpus.__main__ import all_crafted
from tests.compiler.sandbox.test_corpus import SLOW

confine(Bounds(3 << 30, 1 << 30, [sys.argv[1]], [sys.argv[1]]))
for number, each in enumerate(all_crafted()):
    name = f"{each.kind}: {each.name}"
    if any(word in name for word in SLOW):
        continue
    folder = Path(sys.argv[1], str(number))
    folder.mkdir()
    (folder / "model.onnx").write_bytes(each.content())
    each.prepare(folder)
    print(">", name, flush=True)
    try:
        edgekit.check(folder / "model.onnx", ["ort"], trusted=True)
    except EdgeKitError as problem:
        if not str(problem).isprintable() and not str(problem).replace("\\n", "").isprintable():
            print("it prints", ascii(str(problem)))
    except Exception as problem:
        print("it raises", repr(problem))
print("all")
"""


def test_there_are_enough() -> None:
    crafted = list(all_crafted())
    assert len(crafted) >= 150
    assert len({each.kind for each in crafted}) >= 10
    assert len({(each.kind, each.name) for each in crafted}) == len(crafted)


def test_check_refuses_or_takes_each(tmp_path: Path) -> None:
    """Not contained: what is known to end a process is refused before it can."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "EDGEKIT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", IN_ONE_PROCESS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = ended.stdout.splitlines()
    assert lines[-1:] == ["all"], f"died of {ended.returncode} at {lines[-1:]}: {ended.stderr[-2000:]}"
    wrong = [(above, line) for above, line in pairwise(lines) if line.startswith("it ")]
    assert wrong == []


@pytest.mark.parametrize(
    "name",
    [
        "huge results: outer products",
        "control characters: of a node",
    ],
)
def test_build_on_the_command_line(name: str, tmp_path: Path) -> None:
    (each,) = [each for each in all_crafted() if f"{each.kind}: {each.name}" == name]
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(each.content())
    environment = {**os.environ, "EDGEKIT_CACHE": str(tmp_path / "cache")}
    ran: Ran = run("build", folder / "model.onnx", ["ort"], environment)
    assert outcome(ran) in ("taken", "refused", "contained"), ran
