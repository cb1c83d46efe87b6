"""Products of stored integers whose inputs OpenVINO rounds to int8, where the processor has VNNI."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.weights.weight_only import with_stored_weights
from edgekit.system import cpu
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler, engine
from tests.fixtures import models
from tests.targets.engine_trial import load, profile, put_down, same_as_reference, with_shapes

pytestmark = [pytest.mark.needs_ort, pytest.mark.needs_openvino]


def test_inputs_are_rounded_with_vnni_only(tmp_path: Path) -> None:
    model = open_model(models.dense_network(tmp_path), {})
    inputs, outputs = signature(model)
    run_passes(model)
    target = resolve(profile("openvino"))
    assert target.rules is not None
    stored, _ = with_stored_weights(model, target.rules, target.rules.weight_forms[0], [])
    feeds = {"x": np.random.default_rng(0).normal(0, 1, (1, 8, 8, 8)).astype(np.float32)}
    answers = {}
    for precision in ("int8-weights", "int8-dynamic"):
        artifact = compiler("openvino").compile_model(stored, profile("openvino"), precision)
        files = put_down(artifact, tmp_path / precision)
        runner = engine("openvino").open_runner(files, inputs, outputs, artifact.options, 1)
        answers[precision] = runner.precision, runner.run(feeds)["y"]
        runner.close()
    (floats, expected), (rounded, got) = answers.values()
    off = np.linalg.norm(got - expected) / np.linalg.norm(expected)
    vnni = not {"avx512_vnni", "avx_vnni"}.isdisjoint(cpu.instruction_sets())
    assert (floats, rounded) == ("fp32", "int8" if vnni else "fp32")
    assert 1e-4 < off < 0.03 if vnni else off < 1e-5


STORED = {
    "int8, MatMul": """(int8[64,48] w, float[48] s) {
        d = DequantizeLinear<axis=1>(w, s)
        y = MatMul(x, d)""",
    "int8, Gemm": """(int8[48,64] w, float[48] s) {
        d = DequantizeLinear<axis=0>(w, s)
        y = Gemm<transB=1>(x, d)""",
    "int4 in blocks": """(int4[64,48] w, float[2,48] s) {
        d = DequantizeLinear<axis=0, block_size=32>(w, s)
        y = MatMul(x, d)""",
    "MatMulNBits": """(uint8[48,2,16] w, float[96] s) {
        y = com.microsoft.MatMulNBits<K=64, N=48, bits=4, block_size=32>(x, w, s)""",
}
"""Weights that the model's author stored as integers."""


@pytest.mark.parametrize("text", STORED.values(), ids=STORED.keys())
def test_inputs_of_weights_that_the_source_stores_are_not_rounded(text: str, tmp_path: Path) -> None:
    constants, nodes = text.removeprefix("(").split(") {", 1)
    model = with_shapes(
        f"""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>
        g (float[5,64] x, {constants}) => (float[5,48] y) {{ {nodes} }}"""
    )
    rng = np.random.default_rng(0)
    for value in list(model.graph.inputs)[1:]:
        assert value.shape is not None
        shape = value.shape.numpy()
        drawn = (
            rng.uniform(0.01, 0.05, shape) if value.dtype == ir.DataType.FLOAT else rng.integers(0, 7, shape)
        )
        assert value.dtype is not None
        value.const_value = ir.tensor(drawn.astype(value.dtype.numpy()), name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    runner = load(model, "openvino", tmp_path)
    same_as_reference(model, runner, {"x": rng.normal(0, 1, (5, 64)).astype(np.float32)})
    assert runner.precision == "fp32"
