"""Weights in a file beside the model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model, opened_digest
from edgekit.errors import ModelError

pytestmark = pytest.mark.needs_ort

MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,4,4] x, float[2,3,1,1] w) => (y) { y = Conv(x, w) }"""


def external(folder: Path, location: str, length: int = 24) -> Path:
    proto = parser.parse_model(MODEL)
    del proto.graph.input[1]
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[2, 3, 1, 1], data_location=1)
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())
    path = external(tmp_path, "weights.bin")
    model = open_model(path)
    weight = model.graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy().ravel().tolist() == weights.tolist()
    before = opened_digest(model)
    (tmp_path / "weights.bin").write_bytes((weights + 1).tobytes())
    assert opened_digest(open_model(path)) != before


def test_external_data_from_elsewhere_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"x" * 24)
    why = "EdgeKit reads external data only from a plain file name beside the model"
    for location in ("../secret", str(tmp_path / "secret"), "..\\secret", "a/b", "", "..", "C:secret"):
        with pytest.raises(ModelError) as caught:
            open_model(external(inside, location))
        assert str(caught.value) == f"model.onnx: weight w: its data is in {location!r}; {why}"
    os.symlink(tmp_path / "secret", inside / "link")
    with pytest.raises(ModelError) as caught:
        open_model(external(inside, "link"))
    assert str(caught.value) == (
        "model.onnx: weight w: its data is in link, which cannot be read beside the model: it "
        "is a symbolic link; replace it by the file that it leads to"
    )
    os.mkfifo(inside / "pipe")
    with pytest.raises(ModelError, match="beside the model: it is not a regular file"):
        open_model(external(inside, "pipe"))


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x" * 20)
    with pytest.raises(ModelError) as caught:
        open_model(external(tmp_path, "weights.bin"))
    said = "model.onnx: weight w: its data is at bytes 0 to 24 of weights.bin, which has 20"
    assert str(caught.value) == said
