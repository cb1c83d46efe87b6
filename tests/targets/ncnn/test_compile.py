"""What add-a-target.md asks of a target, on ncnn itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

pytest.importorskip("ncnn", reason="pip install ncnn")
pytest.importorskip("edgekit_ncnn", reason="pip install --no-deps samples/third_party_target")

from edgekit_ncnn import compile as host
from edgekit_ncnn import converter, run

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError, EngineError, MissingDependency, UnsupportedError
from edgekit.target import Artifact, Runner
from edgekit.target.installed_profiles import find_profile

try:
    converter.program()
except MissingDependency as missing:
    pytest.skip(str(missing), allow_module_level=True)

NETWORK = """
<ir_version: 10, opset_import: ["": 17]>
network (float[3] unused, float[1,3,8,8] image)
    => (float[1,4,4,4] features, float[1,4,4,4] again, float[1,3,8,8] copy)
<int64[2] from = {0, 1}, int64[2] to = {8, 8}, int64[2] axes = {2, 3}, int64[2] steps = {2, 2}>
{
    part = Slice(image, from, to, axes, steps)
    weighted = Conv<kernel_shape = [1, 1]>(part, weights)
    features = Relu(weighted)
    again = Identity(features)
    copy = Identity(image)
}
"""
"""An input nobody reads, steps that pnnx has no layer for, two outputs of one value, one that is an input."""
REFUSED = """
<ir_version: 10, opset_import: ["": 17]>
refused (float[1,4] x, int64[1,4] k) => (float[1,4] y, int64[1,4] more, float[1,4] s)
{
    [fine] y = Relu(x)
    [whole] more = Add(k, k)
    [signs] s = Det(y)
}
"""


def _network() -> ir.Model:
    model = ir.from_onnx_text(NETWORK)
    random = np.random.default_rng(0)
    weights = ir.val("weights", const_value=ir.tensor(random.normal(size=(4, 3, 1, 1)).astype(np.float32)))
    value = next(v for node in model.graph for v in node.inputs if v is not None and v.name == "weights")
    model.graph.initializers.add(weights)
    value.replace_all_uses_with(weights)
    return open_bytes(ir.to_proto(model).SerializeToString(), "network.onnx", {})


def _compiled(precision: str = "fp32") -> tuple[ir.Model, Artifact]:
    model = _network()
    canonical = model.clone()
    run_passes(canonical)
    return model, host.compile_model(canonical, find_profile("ncnn"), precision)


def _opened(folder: Path, precision: str = "fp32") -> tuple[ir.Model, Runner]:
    model, artifact = _compiled(precision)
    return model, run.open_runner(write_files(artifact, folder), *signature(model), artifact.options, 1)


def _feeds(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    shapes = {"unused": (3,), "image": (1, 3, 8, 8)}
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 2e-3)])
def test_outputs_are_the_reference_s_and_the_caller_s(
    precision: str, tolerance: float, tmp_path: Path
) -> None:
    model, runner = _opened(tmp_path, precision)
    feeds, given = _feeds(), _feeds()
    expected, found = Reference(model).run(feeds), runner.run(feeds)
    assert list(found) == list(expected)
    kept = {name: array.copy() for name, array in found.items()}
    runner.run(_feeds(1))
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=tolerance, atol=tolerance)
        np.testing.assert_array_equal(found[name], kept[name])  # a later run overwrites nothing
    for name, array in given.items():
        np.testing.assert_array_equal(feeds[name], array)  # nor did the run overwrite its inputs
    assert (runner.device, runner.precision, runner.facts()) == ("CPU", "fp32", {"threads": 1})


def test_a_wrong_shape_never_reaches_ncnn(tmp_path: Path) -> None:
    runner = _opened(tmp_path)[1]
    with pytest.raises(
        EngineError, match=r"^image is float32\[1, 3, 9, 8\]; ncnn \S+ was given a network for"
    ):
        runner.run({**_feeds(), "image": np.zeros((1, 3, 9, 8), np.float32)})
    with pytest.raises(EngineError, match=r"^image is float64\[1, 3, 8, 8\]; "):
        runner.run({**_feeds(), "image": np.zeros((1, 3, 8, 8))})


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    model, artifact = _compiled()
    inputs, outputs = signature(model)
    for name, content, said in (
        ("model.param", b"no network", "does not begin with 7767517"),
        (
            "model.param",
            artifact.files["model.param"].replace(b"\nConvolution", b"\nConvoluted"),
            "has no layer",
        ),
        ("model.bin", artifact.files["model.bin"][:8], "did not load"),
    ):
        files = write_files(artifact, tmp_path)
        files[name].write_bytes(content)
        with pytest.raises(EngineError, match=said):
            run.open_runner(files, inputs, outputs, artifact.options, 1)


def test_nodes_that_have_no_form_are_all_named() -> None:
    model = ir.from_onnx_text(REFUSED.replace("Det(y)", "Sin(y)"))
    for value in (value for node in model.graph for value in node.outputs):
        value.shape = ir.Shape((1, 4))
        value.dtype = ir.DataType.INT64 if value.name == "more" else ir.DataType.FLOAT
    with pytest.raises(UnsupportedError) as caught:
        host.compile_model(model, find_profile("ncnn"), "fp32")
    assert str(caught.value) == (
        "ncnn can't run the model\n  EK1004  whole  Add  k is int64; ncnn computes float32"
    )
    assert caught.value.findings == host.check_model(model, find_profile("ncnn"))


def test_other_processes_write_the_same_bytes() -> None:
    program = (
        "import hashlib, sys; sys.path[:0] = sys.argv[1:];"
        "from test_edgekit_ncnn import _compiled;"
        "print([hashlib.sha256(_compiled(p)[1].files[f]).hexdigest()"
        " for p in ('fp32', 'fp16') for f in ('model.param', 'model.bin')])"
    )
    command = [sys.executable, "-c", program, str(Path(__file__).parent), *sys.path]
    told = {
        subprocess.check_output(command, text=True, env={**os.environ, "PYTHONHASHSEED": s}) for s in "12"
    }
    assert len(told) == 1


def test_a_missing_converter_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converter, "find_spec", lambda name: None)
    with pytest.raises(EdgeKitError) as caught:
        converter.program()
    assert str(caught.value) == (
        "pnnx is not installed, and converting a model for ncnn needs it:"
        " pip install --no-deps pnnx (its program runs without PyTorch, 5.7 GB)"
    )


def test_a_missing_engine_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncnn", None)
    with pytest.raises(MissingDependency) as caught:
        run.engine_version()
    assert (
        str(caught.value) == "ncnn is not installed, and running an ncnn network needs it: pip install ncnn"
    )
