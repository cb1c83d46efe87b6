from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgekit.cli import main
from tests.fixtures import models
from tests.fixtures.command_line import Call


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    def invoke(*args: object) -> Result:
        words = [str(arg) for arg in args]
        monkeypatch.setattr(sys, "argv", ["edgekit", *words])
        result = CliRunner().invoke(main, words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception  # a traceback would have reached the user
        return result

    return invoke


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


@pytest.fixture
def bundle(model: Path, call: Call) -> Path:
    path = model.with_suffix(".edgekit")
    assert call("build", model, "-t", "ort", "-o", path).exit_code == 0
    return path
