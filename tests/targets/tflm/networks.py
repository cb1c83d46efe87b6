"""A small quantized classifier, and what runs it on TFLite Micro."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir

from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place
from edgekit.compiler.quantize.recipe import Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize
from edgekit.target import Artifact, Runner, registry
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.targets.engine_trial import put_down, specs
from tests.targets.tflite.running import model_of, with_weights

WEIGHTS = {"w": (8, 3, 3, 3), "b": (8,), "d": (8, 1, 3, 3), "c": (8,), "g": (8, 4), "h": (4,)}
BODY = """
    a = Conv<pads=[1,1,1,1], strides=[2,2]>(image, w, b)
    r = Relu(a)
    e = Conv<pads=[1,1,1,1], group=8>(r, d, c)
    s = HardSwish(e)
    t = Add(s, r)
    p = GlobalAveragePool(t)
    f = Reshape(p, flat)
    l = Gemm(f, g, h)
    scores = Softmax(l)
"""
SHUFFLED = """
<ir_version: 10, opset_import: ["": 23]>
focus (float[1,3,8,8] x) => (float[1,12,4,4] y)
    <int64[6] apart = {1,3,4,2,4,2}, int64[4] joined = {1,12,4,4}>
{
    a = Reshape(x, apart)
    b = Transpose<perm=[0,3,5,1,2,4]>(a)
    y = Reshape(b, joined)
}
"""
PLAIN = Recipe(rounding="nearest", bias_correction=False)


def classifier() -> ir.Model:
    """The float network, canonical, with weights of a fixed seed."""
    declared = ", ".join(f"float[{','.join(map(str, dims))}] {name}" for name, dims in WEIGHTS.items())
    model = model_of(
        "float[1,3,16,16] image", BODY, f"{declared}, int64[2] flat = {{1,8}}", "float[1,4] scores"
    )
    random = np.random.default_rng(3)
    with_weights(
        model, {name: random.normal(0, 0.5, dims).astype(np.float32) for name, dims in WEIGHTS.items()}
    )
    run_passes(model)
    return model


def pictures(count: int) -> list[dict[str, Array]]:
    random = np.random.default_rng(7)
    return [{"image": random.normal(0, 1, (1, 3, 16, 16)).astype(np.float32)} for _ in range(count)]


def quantized(model: ir.Model, target: str = "tflm") -> ir.Model:
    """Its Q/DQ graph under the target's rules, without a search."""
    profile = find_profile(target)
    rules_for = registry.compiler(profile.target).TARGET.quantization_rules
    assert rules_for is not None
    rules, samples = rules_for(profile), pictures(4)
    plan = place(model, rules, observe(model, samples), PLAIN)
    return emit(model, optimize(model, plan, rules, samples, PLAIN), rules)


def compiled(model: ir.Model, target: str = "tflm") -> Artifact:
    profile = find_profile(target)
    return registry.compiler(profile.target).compile_model(model, profile, "fp32")


def opened(artifact: Artifact, model: ir.Model, folder: Path) -> Runner:
    """A runner of the float model ``model``."""
    files = put_down(artifact, folder)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return registry.engine("tflm").open_runner(files, inputs, outputs, artifact.options, None)
