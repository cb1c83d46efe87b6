"""The page of accelerators has a row for each one that an engine declares."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "accelerators.md"
ENGINES = {"ort": "ONNX Runtime", "tflite": "LiteRT", "openvino": "OpenVINO"}


@pytest.mark.parametrize("target", ENGINES)
def test_every_accelerator_has_its_row(target: str) -> None:
    rows = re.findall(
        r"^\| `([a-z:A-Z-]+)` \| ([A-Za-z ]+) \| (\w+) \|.*\| (.+?) \|$", PAGE.read_text(), re.M
    )
    listed = [(name, kind, "not run" in run) for name, engine, kind, run in rows if engine == ENGINES[target]]
    interfaces = import_module(f"edgekit_{target}.accelerators").INTERFACES
    assert listed == [(one.name, one.kind, not one.measured) for one in interfaces]
