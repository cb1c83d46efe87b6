"""The provenance names the bytes that were built, whatever the file holds by then."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import edgekit
from edgekit.compiler.model import onnx_file
from edgekit.compiler.model.onnx_file import open_model, opened_digest
from edgekit.compiler.model.untrusted import check_model
from edgekit.compiler.pipeline.build_bundle import Stage
from edgekit.errors import ModelError

TEXT = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y)
<float[4,4] w = {%s}>
{ y = MatMul (x, w) }"""


def written(path: Path, scale: int, external: bool) -> None:
    model = onnx.parser.parse_model(TEXT % ", ".join(str(scale * i) for i in range(16)))
    (w,) = model.graph.initializer
    w.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(w), "w"))  # raw bytes: others stay inside
    onnx.save(model, path, save_as_external_data=external, location="weights.bin", size_threshold=0)


@pytest.mark.needs_ort
@pytest.mark.parametrize("external", [False, True])
def test_a_model_that_is_exported_again_meanwhile(tmp_path: Path, external: bool) -> None:
    path = tmp_path / "m.onnx"
    written(path, 1, external)
    files = [path, tmp_path / "weights.bin"][: 1 + external]
    before = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    assert opened_digest(open_model(path)) == before

    def again(stage: Stage) -> None:
        if stage.name == "checked" and stage.seconds is None:
            for file in files:
                file.unlink()
            written(path, 2, external)

    bundle = edgekit.build(path, targets=["ort"], progress=again)
    assert bundle.manifest["source"]["sha256"] == before
    assert opened_digest(open_model(path)) != before
    x = bundle.golden[0][0]["x"]
    np.testing.assert_allclose(bundle.golden[0][1]["y"], x @ np.arange(16.0).reshape(4, 4), rtol=1e-5)


def test_weights_that_change_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    written(path, 1, external=True)
    open_model(path)
    real = check_model

    def check_slowly(proto: onnx.ModelProto, folder: Path) -> None:
        real(proto, folder)
        (folder / "weights.bin").write_bytes(bytes(64))
        os.utime(folder / "weights.bin", ns=(1, 1))  # a file system may count time in seconds

    monkeypatch.setattr(onnx_file, "check_model", check_slowly)
    with pytest.raises(ModelError) as error:
        open_model(path)
    assert str(error.value) == (
        "m.onnx: its data in weights.bin changed while EdgeKit read it; wait until it is completely written"
    )


def test_the_digest_is_in_no_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    written(path, 1, external=False)
    model = open_model(path)
    assert opened_digest(model).encode() not in onnx_file.save_model(model)
