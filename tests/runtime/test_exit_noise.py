"""Objects that outlive their modules at the end of the interpreter: they print nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures.child_processes import run_python
from tests.fixtures.ort_bundles import DOUBLES, onnx_bytes, ort_bundle

SCRIPT = """
import sys, types
keeper = types.ModuleType("keeper")  # emptied after EdgeKit's modules, which were imported later
sys.modules["keeper"] = keeper
import numpy as np
from edgekit.runtime import Session
from edgekit.system.regular_file import PlainFile
from edgekit.runtime.streaming.stream import Stream
{kept}
sys.modules_kept = [module for name, module in sys.modules.items() if name.startswith(("edgekit", "keeper"))]
"""
SESSION = "keeper.kept = session = Session(sys.argv[1], threads=1, deadline_ms={})"
STREAM = """
keeper.more = session.stream(({"x": np.ones((1, 6), np.float32)} for _ in range(90)), workers=1)
next(keeper.more)
"""


@pytest.mark.needs_ort
@pytest.mark.parametrize(
    "kept",
    [
        "keeper.kept = PlainFile(sys.argv[1], 10**9)",
        SESSION.format(None),
        SESSION.format(5000),
        SESSION.format(None) + STREAM,
    ],
    ids=["a file", "a session", "a session with a deadline", "a stream"],
)
def test_the_end_prints_nothing(kept: str, tmp_path: Path) -> None:
    path = ort_bundle(good=onnx_bytes(DOUBLES)).save(tmp_path / "f.edgekit")
    done = run_python(SCRIPT.format(kept=kept), path)
    assert (done.returncode, done.stderr) == (0, "")
