"""The runner keeps the contract of edgekit.target.contract, and says that it is no Apple hardware."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from edgekit_coreml import run
from edgekit_coreml.compile import compile_model
from edgekit_coreml.interpreter import one_node
from edgekit_coreml.interpreter.execute import Executor
from edgekit_coreml.interpreter.program import read_package
from edgekit_coreml.package import SPECIFICATION, WEIGHTS

import edgekit
from edgekit.compiler.evaluate.verify import write_files
from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError
from edgekit.target import contract
from edgekit.tensor_spec import TensorSpec
from tests.fixtures.models import SMALL_CNN, TWO_INPUTS, parse, write
from tests.targets.engine_trial import EDGES, feeds, load, profile, same_as_reference, specs, with_shapes

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]


def test_a_closed_runner_keeps_no_sessions(tmp_path: Path) -> None:
    """Each has the memory of its largest output."""
    model = with_shapes(SMALL_CNN)
    runner = load(model, "coreml", tmp_path)
    runner.run(feeds(model))
    assert one_node._session.cache_info().currsize > 0
    runner.close()
    assert one_node._session.cache_info().currsize == 0


def test_half_precision_answers_nearly_so(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    same_as_reference(model, load(model, "coreml", tmp_path, "fp16"), feeds(model), rtol=3e-3)


def test_attention_reads_its_past(tmp_path: Path) -> None:
    """It is expanded: Core ML's own operators have no past. ONNX Runtime needs present_key with past_key."""
    model = with_shapes("""<ir_version: 10, opset_import: ["": 23]>
        g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,5,4] pk, float[1,2,5,4] pv)
            => (float[1,2,3,4] y) { y = Attention(q, k, v, , pk, pv) }""")
    given = feeds(model)
    keys, values = (np.concatenate([given[past], given[now]], 2) for past, now in (("pk", "k"), ("pv", "v")))
    weights = np.exp(given["q"] @ keys.swapaxes(2, 3) / 2)
    expected = weights / weights.sum(-1, keepdims=True) @ values
    np.testing.assert_allclose(load(model, "coreml", tmp_path).run(given)["y"], expected, rtol=1e-5)


def test_what_runs_is_said(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "coreml", tmp_path)
    assert (runner.device, runner.precision) == ("CPU", "fp32")
    assert contract.stands_in_for(runner) == "Apple hardware"
    assert runner.facts() == {"mil_operators": 1, "opset": "CoreML6"}
    assert run.engine_version().startswith("reference executor, ONNX Runtime 1.")
    runner.close()


def test_float16_overflows_are_named(tmp_path: Path) -> None:
    runner = load(parse(TWO_INPUTS), "coreml", tmp_path, "fp16")
    large = np.full((1, 8), 60000, np.float32)
    runner.run({"left": large, "right": large})
    facts = runner.facts()
    assert facts["float16_largest"]["size"] == 1.2e5
    assert len(facts["float16_overflows"]) == 1
    runner.run({"left": np.full((1, 8), 3e38, np.float32), "right": np.full((1, 8), 3e38, np.float32)})
    assert runner.facts()["float16_largest"]["size"] is None  # infinite: the manifest is JSON


def test_an_integer_beyond_int32_is_refused(tmp_path: Path) -> None:
    model = with_shapes(EDGES)
    runner = load(model, "coreml", tmp_path)
    given = feeds(model) | {"k": np.array([0, 0, 2**40], np.int64)}
    with pytest.raises(
        EngineError, match="k contains 0 to 1099511627776, but the package stores it as int32"
    ):
        runner.run(given)


@pytest.mark.parametrize("name", [SPECIFICATION, WEIGHTS])
def test_damaged_files_are_errors(name: str, tmp_path: Path) -> None:
    """Every cut and a hundred flipped bytes: an EngineError or an answer, never anything else."""
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    artifact = compile_model(model, profile("coreml"), "fp32")
    files = write_files(artifact, tmp_path)
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    whole = artifact.files[name]
    random = np.random.default_rng(0)
    spoiled = [whole[:size] for size in range(0, len(whole), max(len(whole) // 60, 1))]
    for _ in range(100):
        flipped = bytearray(whole)
        flipped[random.integers(len(whole))] ^= 1 << random.integers(8)
        spoiled.append(bytes(flipped))
    errors = 0
    for content in spoiled:
        files[name].write_bytes(content)
        try:
            runner = run.open_runner(files, inputs, outputs, artifact.options, 1)
            runner.run(feeds(model))
        except EngineError:
            errors += 1
    assert errors >= 10


def test_another_model_than_described(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    artifact = compile_model(model, profile("coreml"), "fp32")
    files = write_files(artifact, tmp_path)
    with pytest.raises(EngineError, match=r"the package has no input 'x'; it has image"):
        run.open_runner(files, [TensorSpec("x", "float32", (1,))], [], artifact.options, 1)
    with pytest.raises(EngineError, match=r"the package holds image as \[1, 3, 16, 16\]"):
        run.open_runner(files, [TensorSpec("image", "float32", (1, 3))], [], artifact.options, 1)


def test_operators_out_of_order_are_refused(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    run_passes(model)
    files = write_files(compile_model(model, profile("coreml"), "fp32"), tmp_path)
    program = read_package(files[SPECIFICATION], files[WEIGHTS])
    with pytest.raises(EngineError, match="which nothing makes before it"):
        Executor(replace(program, ops=program.ops[::-1]))


def test_a_device_needs_no_coremltools(tmp_path: Path) -> None:
    path = write(tmp_path, SMALL_CNN)
    edgekit.build(path, targets=["coreml"]).save(tmp_path / "model.edgekit")
    script = (
        "import sys; sys.modules['coremltools'] = None; sys.modules['onnx'] = None\n"
        "import numpy as np; from edgekit.runtime import Session\n"
        "with Session(sys.argv[1], engine='coreml') as session:\n"
        "    session.run({'image': np.ones((1, 3, 16, 16), np.float32)})\n"
        "    print(session.active.engine)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "model.edgekit")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("reference executor, ONNX Runtime")


def test_the_status_says_how_it_was_verified(tmp_path: Path) -> None:
    bundle = edgekit.build(write(tmp_path, SMALL_CNN), targets=["coreml", "ort"], precision="fp32")
    by_name = {variant.name: variant for variant in bundle.variants}
    status = by_name["coreml-fp32"].status
    assert status == "verified by reference execution; not run on Apple hardware"
    executed = by_name["coreml-fp32"].evidence["executed"]
    assert executed == {"device": "CPU", "precision": "fp32", "stands_in_for": "Apple hardware"}
    assert "timing" not in by_name["coreml-fp32"].evidence  # its time is nobody's
    assert "timing" in by_name["ort-fp32"].evidence


def test_an_exported_package_is_a_folder(tmp_path: Path) -> None:
    from edgekit.release.export.export import export_variant

    bundle = edgekit.build(write(tmp_path, SMALL_CNN), targets=["coreml"], precision="fp32")
    export_variant(bundle, "coreml-fp32", tmp_path / "out")
    assert (tmp_path / "out" / SPECIFICATION.replace("model.", "model-coreml-fp32.", 1)).is_file()
