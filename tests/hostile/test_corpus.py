"""Each of the corpus is refused by one clear error; see corpus.py and use.py."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgekit.errors import printable
from tests.hostile.corpus import CORPUS
from tests.hostile.use import Outcome

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"picture": "PIL", "video": "cv2", "signature": "cryptography"}

pytest.importorskip("cryptography")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Outcome], str]:
    """The outcome of each case, and what the child wrote to stderr besides."""
    folder = tmp_path_factory.mktemp("corpus")
    environment = {**os.environ, "EDGEKIT_CACHE": str(folder / "cache"), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "tests.hostile.use", str(folder)]
    child = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr[-3000:]
    found = [Outcome(*json.loads(line)) for line in child.stdout.splitlines()]
    return {outcome.name: outcome for outcome in found}, child.stderr


@pytest.mark.parametrize("name", CORPUS)
def test_it_is_refused(run: tuple[dict[str, Outcome], str], name: str) -> None:
    case, outcome = CORPUS[name], run[0][name]
    if importlib.util.find_spec(NEEDED.get(case.use, "json")) is None:
        pytest.skip(f"{NEEDED[case.use]} is not installed")
    assert outcome.end == "refused"
    assert case.why in outcome.text
    assert "Traceback" not in outcome.text
    assert printable(outcome.text) == outcome.text
    assert outcome.outside == []


def test_nothing_else_is_printed(run: tuple[dict[str, Outcome], str]) -> None:
    """No decoder writes to the terminal past the errors."""
    assert run[1] == ""
