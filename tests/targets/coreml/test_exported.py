"""Signatures of exported packages, and damaged ones."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from edgekit_coreml.exported import read_exported

import edgekit
from edgekit.errors import ModelError
from tests.fixtures.graphs import Graph

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]


def test_names_are_those_of_the_source_model(tmp_path: Path) -> None:
    graph = Graph({"tensor: 0": [1, 3]})
    model = tmp_path / "m.onnx"
    ir.save(graph.model(tmp_path, graph("Relu", "tensor: 0")), model)
    bundle = edgekit.build(model, targets=["coreml"], precision="fp32", trusted=True)
    bundle.export("coreml-fp32", tmp_path)
    path = tmp_path / "m-coreml-fp32.mlpackage"
    found = read_exported(path)
    assert (list(found.inputs), list(found.outputs)) == (list(bundle.inputs), list(bundle.outputs))
    assert found.options == {key: bundle["coreml-fp32"].options[key] for key in ("inputs", "outputs")}
    specification = path / "Data/com.apple.CoreML/model.mlmodel"
    specification.write_bytes(specification.read_bytes()[:100])
    with pytest.raises(
        ModelError, match=r"can't be evaluated: .*damaged: .*; export it again as an ML program"
    ):
        read_exported(path)
