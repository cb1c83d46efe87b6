"""coremltools without its noise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures import models

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_coreml]


BYTES = """
<ir_version: 8, opset_import: ["": 17]>
bytes (uint8[1,3,8,8] x) => (float[1,3,8,8] y) { f = Cast<to = 1>(x) y = Relu(f) }
"""


@pytest.mark.parametrize("model", [models.SMALL_CNN, BYTES], ids=["floats", "bytes"])
@pytest.mark.parametrize("verb", ["check", "build"])
def test_nothing_of_coremltools_is_printed(verb: str, model: str, tmp_path: Path) -> None:
    """Off macOS it logs eight lines "Failed to load _ML..." when it is imported; of a Cast from uint8, one of
    its passes warns of an overflow."""
    path = models.write(tmp_path, model)
    words = [verb, str(path), "-t", "coreml"]
    words += ["-o", str(tmp_path / "m.edgekit"), "-q"] if verb == "build" else []
    code = "from edgekit.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-W", "default", "-c", code, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_frameworks_are_not_imported_in_the_process_of_a_model(tmp_path: Path) -> None:
    """coremltools imports PyTorch if it is installed, and then the process exceeds its memory."""
    package = tmp_path / "packages" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"
    )
    path = models.write(tmp_path, models.SMALL_CNN)
    search = {**os.environ, "PYTHONPATH": os.pathsep.join([str(package.parent), *filter(None, sys.path)])}
    done = subprocess.run(
        [sys.executable, "-m", "edgekit", "check", str(path), "-t", "coreml"],
        capture_output=True, text=True, check=False, env=search,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert not (package / "imported").exists()
