"""The runner of Apple's Core AI runtime keeps the contract of edgekit.target.contract."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from edgekit_coreai import run

import edgekit
from edgekit.compiler.model.onnx_file import save_model
from edgekit.errors import EngineError
from edgekit.runtime import Session
from edgekit.target import Runner
from edgekit.target.contract import stands_in_for
from edgekit.tensor_spec import Array, TensorSpec
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import EDGES, feeds, load, same_as_reference, with_shapes

needs_coreai = pytest.mark.needs_coreai
X = TensorSpec("x", "float32", (1, 4))
Y = TensorSpec("y", "float32", (1, 4))
RELU = '<ir_version: 10, opset_import: ["": 23]> g (float[1,4] x) => (float[1,4] y) { y = Relu(x) }'


@needs_coreai
def test_edges_of_a_model(tmp_path: Path) -> None:
    model = with_shapes(EDGES)
    runner = load(model, "coreai", tmp_path)
    same_as_reference(model, runner, feeds(model))
    runner.close()


@needs_coreai
def test_it_runs_inside_an_event_loop(tmp_path: Path) -> None:
    runner = load(with_shapes(RELU), "coreai", tmp_path)

    async def asked() -> Array:
        return runner.run({"x": -np.ones((1, 4), np.float32)})["y"]

    assert not asyncio.run(asked()).any()
    runner.close()


@needs_coreai
def test_it_says_what_it_stands_in_for(tmp_path: Path) -> None:
    runner = load(with_shapes(RELU), "coreai", tmp_path)
    assert (runner.device, runner.precision, stands_in_for(runner)) == ("CPU", "fp32", "Apple hardware")
    assert run.engine_version().startswith("Apple's Core AI runtime on Linux, coreai-core ")
    runner.close()


@needs_coreai
@pytest.mark.parametrize("content", [b"", b"no model", b"ML\xefR"])
def test_a_damaged_program_does_not_end_the_process(content: bytes, tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / run.PROGRAM).write_bytes(content)
    with pytest.raises(EngineError, match=r"is damaged: main\.mlirb does not match main\.hash; unpack or "):
        opened(tmp_path, again=True)


@needs_coreai
def test_values_that_int32_does_not_hold(tmp_path: Path) -> None:
    model = with_shapes(EDGES)
    runner, given = load(model, "coreai", tmp_path), feeds(model)
    given["k"] = np.array([1, 2, 2**40])
    with pytest.raises(
        EngineError, match=r"^k contains 1 to 1099511627776, but the package stores it as int32"
    ):
        runner.run(given)
    runner.close()


@needs_coreai
def test_names_of_another_model(tmp_path: Path) -> None:
    opened(tmp_path).close()
    files = {run.PROGRAM: tmp_path / run.PROGRAM}
    with pytest.raises(EngineError, match=r"is not of this model: its inputs are x$"):
        run.open_runner(files, [Y], [Y], {"inputs": ["x"], "outputs": ["y"], "precision": "fp32"}, None)


@needs_coreai
@pytest.mark.needs_ort
def test_a_bundle_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    path.write_bytes(save_model(with_shapes(SMALL_CNN)))
    bundle = edgekit.build(path, targets=["coreai", "ort"])
    bundle.save(tmp_path / "small.edgekit")
    status = {variant.target: variant.status for variant in bundle.variants}["coreai"]
    assert status.startswith("verified by Apple's Core AI runtime on Linux, coreai-core ")
    assert status.endswith("; not run on Apple hardware")
    with Session(tmp_path / "small.edgekit", engine="coreai") as session:
        assert session.active.variant.startswith("coreai-")
    with Session(tmp_path / "small.edgekit") as session:  # nobody gets the stand-in unasked
        assert session.active.variant.startswith("ort-")


def opened(folder: Path, again: bool = False) -> Runner:
    if not again:
        load(with_shapes(RELU), "coreai", folder).close()
    options = {"inputs": ["x"], "outputs": ["y"], "precision": "fp32"}
    return run.open_runner({run.PROGRAM: folder / run.PROGRAM}, [X], [Y], options, None)
