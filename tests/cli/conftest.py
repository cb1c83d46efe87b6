from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import models
from tests.fixtures.command_line import Call
from tests.fixtures.command_line import call as call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


@pytest.fixture
def bundle(model: Path, call: Call) -> Path:
    path = model.with_suffix(".edgekit")
    assert call("build", model, "-t", "ort", "-o", path).exit_code == 0
    return path
