"""A machine that has TensorRT and CUDA, as far as this process and its children can tell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from edgekit_tensorrt import run
from edgekit_tensorrt.device import cuda

from tests.targets.tensorrt.jetson import COMPILER, STAND_INS


@pytest.fixture(scope="session")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("cuda") / "libcudart.so.13"
    assert COMPILER is not None
    command = [COMPILER, "-shared", "-fPIC", "-w", "-o", str(library), str(STAND_INS / "cudart.c")]
    subprocess.run(command, check=True)
    return library


@pytest.fixture
def jetson(cudart: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """A machine that has TensorRT and CUDA, for this process and its children."""
    monkeypatch.setattr(cuda, "LIBRARIES", (str(cudart),))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(cudart.parent))
    roots = [STAND_INS, *(Path(run.__file__).parents[1], Path(__file__).parents[3])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, roots)))
    monkeypatch.syspath_prepend(str(STAND_INS))
    yield monkeypatch
    sys.modules.pop("tensorrt", None)


@pytest.fixture(params=["stand-ins", pytest.param("TensorRT", marks=pytest.mark.needs_tensorrt_gpu)])
def machine(request: pytest.FixtureRequest) -> str:
    """The stand-ins, and the machine itself where it has a GPU with TensorRT."""
    if request.param == "stand-ins":
        request.getfixturevalue("jetson")
    return str(request.param)
