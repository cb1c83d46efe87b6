"""tests/targets/ort/test_recorded_runs.py on a GPU made of software."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.vulkan import lavapipe

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.needs_vulkan
def test_recorded_runs_by_webgpu() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "webgpu"]
    done = subprocess.run(
        [*command, "tests/targets/ort/test_recorded_runs.py"],
        cwd=ROOT,
        env={**os.environ, **lavapipe.environment()},
        capture_output=True,
        text=True,
        timeout=lavapipe.TIMEOUT_S,
        check=False,
    )
    assert "4 passed" in done.stdout, done.stdout + done.stderr
