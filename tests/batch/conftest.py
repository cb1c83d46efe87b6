from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgekit.batch.workers import BuildWorkers
from tests.fixtures import models

ADD = models.TWO_INPUTS


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Times are remembered there, and seen by workers."""
    monkeypatch.setenv("EDGEKIT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds run in a thread of this process: what the test is about is not the workers."""

    @contextlib.contextmanager
    def one_thread(on: str, count: int | None = None) -> Iterator[BuildWorkers]:
        with ThreadPoolExecutor(1) as executor:
            yield BuildWorkers(executor.submit, 1, ())

    monkeypatch.setattr("edgekit.batch.build_all.open_workers", one_thread)


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    """Three models x one target x two precisions."""
    for number in range(3):
        models.write(tmp_path, ADD.replace("1,8", f"1,{8 + number}"), f"net{number}.onnx")
    path = tmp_path / "boards.toml"
    path.write_text('models = ["net*.onnx"]\ntargets = ["ort"]\nprecisions = ["fp32", "fp16"]\n')
    return path
