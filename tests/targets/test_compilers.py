"""What the compiler of every target owes: the same bytes in any process, and a plain refusal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.target.registry import compiler
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import digests, profile, with_shapes

TARGETS = ["ort", "openvino", "coreml", "tensorrt", "qnn", "coreai", "tflite", "tflm", "ncnn"]
SCRIPT = """
import sys
from tests.targets.engine_trial import digests
for _ in range(2):  # engines number their nodes by a counter of the process
    found = digests(sys.argv[1])
print(found)
"""


def on(*targets: str) -> pytest.MarkDecorator:
    """Return a mark that runs a test on each target whose compiler is here."""
    rows = [pytest.param(name, marks=getattr(pytest.mark, f"needs_{name}")) for name in targets]
    return pytest.mark.parametrize("target", rows)


@on(*TARGETS)
def test_the_same_model_gives_the_same_bytes_in_another_process(target: str) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", SCRIPT, target]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    found = digests(target)
    assert found
    assert done.stdout == f"{found}\n"


@on(*TARGETS[:-3])
def test_an_unknown_precision_is_refused_with_the_known_ones(target: str) -> None:
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    with pytest.raises(UsageError, match=rf"^{target} supports fp32, .*, not int3$"):
        compiler(target).compile_model(model, profile(target), "int3")
