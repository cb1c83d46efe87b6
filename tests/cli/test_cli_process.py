"""The command line as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_quantizer_s_products_run_on_one_thread_unless_somebody_says(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "import edgekit.cli.verbs\n"
        "assert 'numpy' not in sys.modules\n"
        "try:\n    edgekit.cli.verbs.main(['targets'])\n"
        "finally:\n    print(os.environ['OPENBLAS_NUM_THREADS'])\n"
    )
    for given, expected in (({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")):
        around = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"}
        found = subprocess.run(
            [sys.executable, "-c", code], env={**around, **given}, capture_output=True, text=True, check=True
        )
        assert found.stdout.splitlines()[-1] == expected


def test_the_shell_completes_engines_and_profiles() -> None:
    words = [("run m.edgekit --engine o", "openvino ort"), ("build m.onnx -t rp", "rpi4 rpi5")]
    for given, expected in words:
        line = f"edgekit {given}".split()
        around = {
            **os.environ,
            "_EDGEKIT_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(line),
            "COMP_CWORD": str(len(line) - 1),
        }
        code = "from edgekit.cli.verbs import main; main(prog_name='edgekit')"
        found = subprocess.run(
            [sys.executable, "-c", code], env=around, capture_output=True, text=True, check=True
        )
        assert [row.split(",")[1] for row in found.stdout.split()] == expected.split()


@pytest.mark.skipif(os.name != "posix", reason="a pipe that breaks")
def test_a_reader_that_has_seen_enough_gets_no_traceback() -> None:
    """As ``edgekit targets | head`` does: the pipe's other end is closed."""
    read, write = os.pipe()
    os.close(read)
    code = "from edgekit.cli.verbs import main; main(['targets', '--json'])"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (1, "")
