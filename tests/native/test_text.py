"""Numbers in texts: Python's repr."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from edgekit.native import build

RANDOM = 50_000


@pytest.mark.needs_compiler
def test_numbers_are_written_as_python_does(tmp_path: Path) -> None:
    """Powers of two are where the nearest decimal may be the wrong one: values below are closer."""
    powers = np.ldexp(1.0, np.arange(-1074, 1024))
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 64, RANDOM, dtype=np.uint64).view(np.float64)
    short = random.integers(1, 10**6, RANDOM) / 10.0 ** random.integers(-12, 20, RANDOM)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e16, 9999999999999998.0, 1e-4, 99999e-9, 5e-324]
    values = np.concatenate(
        [special, powers, -powers, np.nextafter(powers, 0), np.nextafter(powers, np.inf), bits, short]
    )
    program = tmp_path / "float_texts"
    files = [Path(__file__).with_name("float_texts.cpp"), build.FOLDER / "source" / "text.cpp"]
    command = [
        *build.compiler_command(),
        *build.FLAGS,
        "-O1",
        "-Isource",
        *map(str, files),
        "-o",
        str(program),
    ]
    subprocess.run(command, cwd=build.FOLDER, check=True, timeout=300)
    done = subprocess.run([program], input=values.tobytes(), capture_output=True, check=True, timeout=300)
    assert done.stdout.decode().splitlines() == [repr(float(value)) for value in values]
