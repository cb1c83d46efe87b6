"""What the tests of every target do: compile a small model, put its files down, load them and compare."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.target import Artifact, Runner
from edgekit.target.installed_profiles import find_profile
from edgekit.target.profile import Profile
from edgekit.target.registry import compiler, engine
from edgekit.tensor_spec import Array, TensorSpec
from tests.fixtures.models import SMALL_CNN, parse

EDGES = """
<ir_version: 10, opset_import: ["": 23]>
edges (float[3] unused, float[1,4] x, int64[3] k, float s, bool[2] flags)
    => (float[1,4] second, float[1,4] again, float[1,4] first, int64[3] more, float twice, bool[2] not_flags)
    <int64[1] one = {1}>
{
    second = Relu(x)
    again = Identity(second)
    first = Identity(x)
    more = Add(k, one)
    twice = Add(s, s)
    not_flags = Not(flags)
}
"""
"""An input nobody reads, one that is an output, two outputs of one value, integers, scalars and booleans."""


def with_shapes(text: str) -> ir.Model:
    """The model that ``text`` describes; every value has its type and shape."""
    proto = onnx.shape_inference.infer_shapes(ir.to_proto(parse(text)), strict_mode=True)
    return ir.from_proto(proto)


def product() -> ir.Model:
    """x (1, 64) times a constant (64, 64): one weight that is large enough to be halved."""
    model = with_shapes(
        '<ir_version: 10, opset_import: ["": 23]> product (float[1,64] x) => (float[1,64] y) '
        "<float[64,64] w = {" + ",".join(["1"] * 4096) + "}> { [product] y = MatMul(x, w) }"
    )
    weights = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializers["w"].const_value = ir.tensor(weights, name="w")
    return model


def specs(values: list[ir.Value]) -> tuple[TensorSpec, ...]:
    found = []
    for value in values:
        assert value.dtype is not None
        assert value.shape is not None
        found.append(TensorSpec(str(value.name), value.dtype.numpy().name, value.shape.numpy()))
    return tuple(found)


def profile(target: str) -> Profile:
    return find_profile(target)


def put_down(artifact: Artifact, folder: Path) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    return write_files(artifact, folder)


def load(model: ir.Model, target: str, folder: Path, precision: str = "fp32") -> Runner:
    """Through the product's own path: the passes, then the target."""
    canonical = model.clone()
    run_passes(canonical)
    artifact = compiler(target).compile_model(canonical, profile(target), precision)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return engine(target).open_runner(put_down(artifact, folder), inputs, outputs, artifact.options, 1)


def feeds(model: ir.Model, seed: int = 0) -> dict[str, Array]:
    """Random values for every input: normal floats, small integers, coin flips."""
    random = np.random.default_rng(seed)
    made: dict[str, Array] = {}
    for spec in specs(list(model.graph.inputs)):
        if spec.dtype.startswith("float"):
            made[spec.name] = np.asarray(random.standard_normal(spec.shape), spec.dtype)
        elif spec.dtype == "bool":
            made[spec.name] = np.asarray(random.integers(0, 2, spec.shape), bool)
        else:
            made[spec.name] = np.asarray(random.integers(-100, 100, spec.shape), spec.dtype)
    return made


def same_as_reference(
    model: ir.Model, runner: Runner, given: Mapping[str, Array], rtol: float = 1e-5
) -> None:
    """The runner's answer is the reference's: same names in the same order, dtypes, shapes and values."""
    expected, got = Reference(model).run(given), runner.run(given)
    assert list(got) == list(expected)
    for name, array in expected.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_allclose(got[name], array, rtol=rtol, atol=rtol)
        assert got[name].shape == array.shape


def digests(target: str) -> dict[str, str]:
    """Return the sha256 of each file that a target makes of a small model in each float precision."""
    found = {}
    for precision in ("fp32", "fp16"):
        canonical = with_shapes(SMALL_CNN)
        run_passes(canonical)
        try:
            files = compiler(target).compile_model(canonical, profile(target), precision).files
        except UsageError:  # the target does not have it
            continue
        for name, content in sorted(files.items()):
            found[f"{precision} {name}"] = hashlib.sha256(content).hexdigest()
    return found
