"""Real networks: compiled, run by the reference executor, compared with the source model on the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edgekit_coreml.compile import compile_model, refined_model
from edgekit_coreml.run import open_runner

from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.target.installed_profiles import find_profile
from edgekit.tensor_spec import Array
from tests.compiler.passes.meaning import snr_db
from tests.fixtures.shared_models import Case, feeds
from tests.targets.coreml.networks import NETWORKS, Network

pytestmark = [pytest.mark.needs_shared, pytest.mark.needs_coreml, pytest.mark.needs_ort]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_answers(network: Network, precision: str, shared: Path, tmp_path: Path) -> None:
    source = open_model(shared / "models" / f"{network.name}.onnx", network.shapes)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    given = feeds(inputs, Case((0, 0), picture=network.picture))
    made = compile_model(canonical, find_profile("coreml"), precision)
    made = refined_model(canonical, find_profile("coreml"), precision, made, [given])
    runner = open_runner(write_files(made, tmp_path), inputs, outputs, made.options, 2)
    expected, got = Reference(source).run(given), runner.run(given)
    least = network.fp32_db if precision == "fp32" else network.fp16_db
    for name, array in expected.items():
        assert np.isfinite(got[name]).all()
        assert snr_db(array, got[name]) >= least, name
    assert not runner.facts().get("float16_overflows")


@pytest.mark.parametrize("device", ["ios-15", "mac-m2", "ios-26"])
@pytest.mark.parametrize("name", ["kws_ref_model_float32", "resnet8_cifar10_int8_qdq", "silero_vad"])
def test_every_system_answers_alike(name: str, device: str, shared: Path, tmp_path: Path) -> None:
    """The same model built for other systems than the generic profile's; all were, once (docs/coreml.md)."""
    network = next(one for one in NETWORKS if one.name == name)
    source = open_model(shared / "models" / f"{name}.onnx", network.shapes)
    inputs, outputs = signature(source)
    canonical = source.clone()
    run_passes(canonical)
    made = compile_model(canonical, find_profile(device), "fp32")
    runner = open_runner(write_files(made, tmp_path), inputs, outputs, made.options, 2)
    given = feeds(inputs, Case((0, 0)))
    expected, got = Reference(source).run(given), runner.run(given)
    assert min(snr_db(array, got[key]) for key, array in expected.items()) >= 100


def test_integers_are_those_of_onnx_runtime(shared: Path, tmp_path: Path) -> None:
    """Layer by layer: every int8 code of a Q/DQ network in float32 arithmetic."""
    import onnx_ir as ir
    from edgekit_coreml.interpreter.execute import Executor
    from edgekit_coreml.interpreter.program import Op, find_in_package, read_package

    shapes = {"input_1_int8": (1, 32, 32, 3)}
    source = open_model(shared / "models" / "resnet8_cifar10_int8_qdq.onnx", shapes)
    run_passes(source)
    made = compile_model(source, find_profile("coreml"), "fp32")
    files = write_files(made, tmp_path)
    manifest = next(path for name, path in files.items() if name.endswith("Manifest.json"))
    executor = Executor(read_package(*find_in_package(manifest)))
    seen: dict[str, Array] = {}

    def trace(op: Op, name: str, array: Array) -> None:
        if op.type == "quantize":
            seen[name] = array.copy()

    given = feeds(signature(source)[0], Case((0, 0)))
    executor.run({made.options["inputs"][0]["mil"]: given["input_1_int8"].astype(np.int32)}, trace)
    watched = source.clone()
    codes = [n.outputs[0] for n in watched.graph if n.op_type == "QuantizeLinear"]
    watched.graph.outputs.extend(v for v in codes if not v.is_graph_output())
    expected = Reference(ir.from_proto(ir.to_proto(watched))).run(given)
    names = [str(v.name) for v in codes]
    assert len(seen) == len(names) > 10
    for name, got in zip(names, seen.values(), strict=True):
        np.testing.assert_array_equal(got, expected[name])
