"""A build's process loads no module that it does not use."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.compiler.sandbox.child_main import CRUMBS, ChildRequest
from edgekit.system.breadcrumbs import SIZE_BYTES
from tests.fixtures import models

LATE = """
import sys
from edgekit.compiler.sandbox.child_main import SYMBOLIC, import_late
import_late(*SYMBOLIC, "absent")
import onnx_ir
assert "sympy.core" not in sys.modules
print(onnx_ir.SymbolicDim("n") + 1)
assert "sympy.core" in sys.modules
try:
    import absent
except ImportError as problem:
    print(problem)
"""


def run(source: str, *options: str, data: bytes = b"") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, *options, "-c", source], input=data, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode(), done.stderr.decode()


def test_a_module_is_loaded_when_it_is_used() -> None:
    said, _ = run(LATE)
    assert said.splitlines() == ["n + 1", "No module named 'absent'"]


@pytest.mark.needs_ort
def test_a_check_loads_no_arithmetic_of_symbols(tmp_path: Path) -> None:
    model = models.write(tmp_path, models.TWO_INPUTS)
    (tmp_path / CRUMBS).write_bytes(bytes(SIZE_BYTES))
    options = {"model": str(model), "targets": ["ort"]}
    request = ChildRequest("check", options, str(tmp_path), str(tmp_path), None, 1 << 32, 60.0, {})
    source = "import sys; from edgekit.compiler.sandbox.child_main import answer; answer(sys.stdin.buffer)"
    said, imports = run(source, "-X", "importtime", data=pickle.dumps(request))
    assert '"done"' in said
    assert "onnx_ir._core" in imports
    assert "sympy.core" not in imports
