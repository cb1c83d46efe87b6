"""ncnn's two files: what is refused, what is written, and that plain ncnn computes the model with them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_ncnn import compile as host
from edgekit_ncnn import run
from edgekit_ncnn.network import Layer, network_files, with_splits
from edgekit_ncnn.plain_use import plain_use

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_bytes, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError, UnsupportedError
from edgekit.target import Artifact, Runner
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array

pytestmark = [pytest.mark.needs_ncnn, pytest.mark.needs_ort]
NETWORK = """
<ir_version: 10, opset_import: ["": 17]>
network (float[3] unused, float[1,3,8,8] image, uint8[1,3,64,64] pixels)
    => (float[1,4,4,4] features, float[1,4,4,4] again, float[1,3,8,8] copy, uint8[1,3,32,32] picked)
<int64[2] from = {0, 1}, int64[2] to = {8, 8}, int64[2] axes = {2, 3}, int64[2] steps = {2, 2}>
{
    part = Slice(image, from, to, axes, steps)
    weighted = Conv<kernel_shape = [1, 1]>(part, weights)
    features = Relu(weighted)
    again = Identity(features)
    copy = Identity(image)
    picked = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(pixels)
}
"""
"""An input nobody reads, steps of a Slice, two outputs of one value, one that is an input, and bytes."""
REFUSED = """
<ir_version: 10, opset_import: ["": 17]>
refused (float[1,4] x, int64[1,4] k) => (float[1,4] y, int64[1,4] more, float[1,4] s, int64[1,4] count)
{
    [fine] y = Relu(x)
    [whole] more = Add(k, k)
    [power] s = Pow(x, y)
    [cast] count = Cast<to = 7>(x)
}
"""


def network() -> ir.Model:
    model = ir.from_onnx_text(NETWORK)
    random = np.random.default_rng(0)
    weights = ir.val("weights", const_value=ir.tensor(random.normal(size=(4, 3, 1, 1)).astype(np.float32)))
    value = next(v for node in model.graph for v in node.inputs if v is not None and v.name == "weights")
    model.graph.initializers.add(weights)
    value.replace_all_uses_with(weights)
    return open_bytes(ir.to_proto(model).SerializeToString(), "network.onnx", {})


def compiled(precision: str = "fp32") -> tuple[ir.Model, Artifact]:
    model = network()
    canonical = model.clone()
    run_passes(canonical)
    return model, host.compile_model(canonical, find_profile("ncnn"), precision)


def opened(folder: Path, precision: str = "fp32") -> tuple[ir.Model, Runner]:
    model, artifact = compiled(precision)
    return model, run.open_runner(write_files(artifact, folder), *signature(model), artifact.options, 1)


def feeds_of(seed: int = 0) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    shapes = {"unused": (3,), "image": (1, 3, 8, 8)}
    feeds = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return {**feeds, "pixels": random.integers(0, 256, (1, 3, 64, 64)).astype(np.uint8)}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_outputs_are_the_reference_s_and_the_caller_s(precision: str, tmp_path: Path) -> None:
    model, runner = opened(tmp_path, precision)
    feeds, untouched = feeds_of(), feeds_of()
    expected, results = Reference(model).run(feeds), runner.run(feeds)
    assert list(results) == list(expected)
    kept = {name: array.copy() for name, array in results.items()}
    runner.run(feeds_of(1))
    for name, array in expected.items():
        assert results[name].dtype == array.dtype
        np.testing.assert_allclose(results[name], array, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(results[name], kept[name])  # a later run overwrites nothing
    for name, array in untouched.items():
        np.testing.assert_array_equal(feeds[name], array)  # nor did the run overwrite its inputs
    assert (runner.device, runner.precision, runner.facts()) == ("CPU", "fp32", {"threads": 1})
    runner.close()


def test_bytes_are_read_before_their_floats_are_freed(tmp_path: Path) -> None:
    """A Mat does not keep the array alive that it was made of: the outputs changed from run to run."""
    model, runner = opened(tmp_path)
    for seed in range(50):
        feeds = feeds_of(seed)
        np.testing.assert_array_equal(runner.run(feeds)["picked"], Reference(model).run(feeds)["picked"])


def test_a_wrong_shape_never_reaches_ncnn(tmp_path: Path) -> None:
    runner = opened(tmp_path)[1]
    with pytest.raises(EngineError, match=r"^image is float32\[1, 3, 9, 8\]; ncnn \S+ loaded"):
        runner.run({**feeds_of(), "image": np.zeros((1, 3, 9, 8), np.float32)})
    with pytest.raises(EngineError, match=r"^image is float64\[1, 3, 8, 8\]; "):
        runner.run({**feeds_of(), "image": np.zeros((1, 3, 8, 8))})


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    model, artifact = compiled()
    param = bytes(artifact.files["model.param"])
    for name, content, message in (
        ("model.param", b"no network", "does not begin with 7767517"),
        ("model.param", param.replace(b"\nConvolution", b"\nConvoluted"), "has no layer Convoluted"),
        ("model.bin", artifact.files["model.bin"][:8], "did not load"),
    ):
        files = write_files(artifact, tmp_path)
        files[name].write_bytes(content)
        with pytest.raises(EngineError, match=message):
            run.open_runner(files, *signature(model), artifact.options, 1)


def test_files_of_another_model_are_refused(tmp_path: Path) -> None:
    model, artifact = compiled()
    inputs, outputs = signature(model)
    files = write_files(artifact, tmp_path)
    with pytest.raises(EngineError, match=r"is not of this model: its outputs are features, again"):
        run.open_runner(files, inputs, outputs[:2], artifact.options, 1)


def test_nodes_without_layers_are_all_named() -> None:
    model = ir.from_onnx_text(REFUSED)
    for value in (value for node in model.graph for value in node.outputs):
        value.shape = ir.Shape((1, 4))
        value.dtype = ir.DataType.INT64 if value.name in ("more", "count") else ir.DataType.FLOAT
    with pytest.raises(UnsupportedError) as caught:
        host.compile_model(model, find_profile("ncnn"), "fp32")
    assert {(finding.node, finding.code) for finding in caught.value.findings} == {
        ("k", "EK1004"),
        ("whole", "EK1004"),
        ("cast", "EK1004"),
        ("power", "EK1002"),
    }
    assert caught.value.findings == host.check_model(model, find_profile("ncnn"))


def test_plain_ncnn_runs_the_files_as_the_readme_says(tmp_path: Path) -> None:
    """The README's own lines load the files, without EdgeKit."""
    import ncnn

    model, artifact = compiled()
    write_files(artifact, tmp_path)
    paths = {name: str(tmp_path / name) for name in artifact.files}
    text = plain_use(artifact.options, paths)
    names: dict[str, object] = {}
    code = [line[4:] for line in text.splitlines() if line.startswith(("    import", "    net"))]
    exec("\n".join(code), names)
    net = names["net"]
    assert isinstance(net, ncnn.Net)
    assert not net.opt.use_fp16_storage
    feeds = feeds_of()
    with net.create_extractor() as extractor:
        extractor.input("image", ncnn.Mat(feeds["image"][0]).clone())
        result, mat = extractor.extract("features")
    assert result == 0
    assert "output  features: blob features" in text
    np.testing.assert_allclose(
        np.array(mat.numpy()), Reference(model).run(feeds)["features"][0], rtol=1e-5, atol=1e-5
    )


def test_a_blob_has_one_reader_and_unread_layers_are_dropped() -> None:
    layers = [
        Layer("Input", [], ["x"]),
        Layer("ReLU", ["x"], ["y"]),
        Layer("AbsVal", ["x"], ["unread"]),
        Layer("BinaryOp", ["y", "y"], ["z"]),
    ]
    kinds = [layer.kind for layer in with_splits(layers)]
    assert kinds == ["Input", "Split", "ReLU", "Split", "AbsVal", "BinaryOp"]
    param, weights = network_files(layers, ["z"], half=False)
    assert param.decode().splitlines() == [
        "7767517",
        "4 5",
        "Input input_0 0 1 x",
        "ReLU relu_1 1 1 x y",
        "Split split_2 1 2 y y/0 y/1",
        "BinaryOp binaryop_3 2 1 y/0 y/1 z",
    ]
    assert not weights


def test_indices_of_too_many_runs_are_refused() -> None:
    """Each run becomes a layer."""
    model = ir.from_onnx_text("""
<ir_version: 10, opset_import: ["": 17]>
runs (float[1,1024] x) => (float[1,600] y)
{
    [many] y = Gather<axis = 1>(x, at)
}
""")
    at = ir.val("at", const_value=ir.tensor(np.random.default_rng(0).permutation(1024)[:600]))
    model.graph[0].replace_input_with(1, at)
    model.graph.initializers.add(at)
    opened = open_bytes(ir.to_proto(model).SerializeToString(), "runs.onnx", {})
    run_passes(opened)
    with pytest.raises(UnsupportedError) as caught:
        host.compile_model(opened, find_profile("ncnn"), "fp32")
    (finding,) = caught.value.findings
    assert re.search(r"its indices have \d+ runs, more than the limit of 256", finding.message)
