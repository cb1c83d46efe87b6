"""Every name of TensorRT that the device side uses is in 10.3, 10.13 and 11.4."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest
from edgekit_tensorrt.device import engine

from tests.targets.tensorrt.corpus import ACCEPTED, REFUSED

TABLES = json.loads(Path(__file__).with_name("api_names.json").read_text("utf-8"))
VERSIONS = [version for version in TABLES if version != "source"]
OBJECTS = {
    "builder": "Builder",
    "parser": "OnnxParser",
    "error": "ParserError",
    "config": "IBuilderConfig",
    "runtime": "Runtime",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "kind": "DataType",
}
"""Variable of device/engine.py -> its class; ``trt`` is the module."""
OF_THE_MODULE = {"__version__"}


def used_names() -> set[tuple[str, str]]:
    """(class, member) pairs; the member of a class itself is empty."""
    found = set()
    for node in ast.walk(ast.parse(Path(engine.__file__).read_text("utf-8"))):
        if not isinstance(node, ast.Attribute):
            continue
        inner = node.value
        if isinstance(inner, ast.Name) and inner.id == "trt":
            found.add((node.attr, ""))
        elif isinstance(inner, ast.Name) and inner.id in OBJECTS:
            found.add((OBJECTS[inner.id], node.attr))
        elif (
            isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "trt"
        ):
            found.add((inner.attr, node.attr))
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_name_is_in_every_version(version: str) -> None:
    table = {name: set(members.split()) for name, members in TABLES[version].items()}
    used = {(name, member) for name, member in used_names() if name not in OF_THE_MODULE}
    missing = {
        f"{name}.{member}"
        for name, member in used
        if name not in table or (member and member not in table[name])
    }
    assert not missing


def test_the_names_are_seen() -> None:
    """A renamed variable would hide its names from the test above."""
    assert {name for name, _ in used_names()} >= {*OBJECTS.values(), "Logger", "BuilderFlag"}
    assert ("IExecutionContext", "execute_async_v3") in used_names()
    assert ("ICudaEngine", "num_io_tensors") in used_names()


def test_what_tensorrt_11_took_away_is_told() -> None:
    """The test would see it: these names are not in 11.4."""
    names = set(TABLES["11.4.0.106"]["BuilderFlag"].split())
    assert "FP16" in TABLES["10.3.0"]["BuilderFlag"].split()
    assert not {"FP16", "INT8"} & names


BUILD = """
import os, sys
from pathlib import Path
import tensorrt_rtx_bindings as trt
from edgekit.errors import EngineError
from edgekit_tensorrt.device.engine import build_engine
try:
    print(len(build_engine(trt, Path(sys.argv[1]).read_bytes(), 64)))
except EngineError as problem:
    print(problem)
sys.stdout.flush()
os._exit(0)  # without the destructors, which may crash without a driver
"""


@pytest.mark.needs_tensorrt_compiler
def test_the_code_that_builds_engines_runs_on_nvidias_own_library(tmp_path: Path) -> None:
    """TensorRT for RTX has the names of TensorRT 11: the very function builds, without a GPU."""

    def built(content: bytes) -> str:
        path = tmp_path / "model.onnx"
        path.write_bytes(content)
        command = [sys.executable, "-c", BUILD, str(path)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    good, bad = ACCEPTED[0].model(), REFUSED["zero point"][0].model()
    assert int(built(good.SerializeToString())) > 10_000
    assert " rejects the file: QuantizeLinear_0 (QuantizeLinear): " in built(bad.SerializeToString())
