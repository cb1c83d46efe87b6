from __future__ import annotations

from pathlib import Path

import pytest

from tests.fixtures import models
from tests.fixtures.command_line import Call
from tests.fixtures.command_line import call as call
from tests.fixtures.fake_engines import Engines
from tests.fixtures.language_bundles import Loader


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.write(tmp_path, models.SMALL_CNN)


@pytest.fixture
def bundle(model: Path, call: Call) -> Path:
    path = model.with_suffix(".edgekit")
    assert call("build", model, "-t", "ort", "-o", path).exit_code == 0
    return path


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Loader:
    """Small decoders instead of what ort and tflite load."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("edgekit.target.registry.engine", Engines("ort", "tflite"))
    loader = Loader()
    monkeypatch.setattr("edgekit.generate.device.decoder_registry.open_decoder", loader)
    return loader
