"""Artifacts whose own inputs and outputs are channels last; the runner still speaks the source's layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from edgekit_tflite.run import PLANES_LIMIT, open_runner

from edgekit.compiler.lowering.io_layouts import lay_out
from edgekit.compiler.passes import run_passes
from edgekit.errors import EngineError
from edgekit.target import Artifact
from edgekit.target.build_target import resolve
from edgekit.target.registry import compiler
from tests.fixtures.models import SMALL_CNN
from tests.targets.engine_trial import feeds, profile, put_down, same_as_reference, specs, with_shapes
from tests.targets.tflite.running import ops_of

pytestmark = pytest.mark.needs_tflite

EDGES = """
<ir_version: 10, opset_import: ["": 23]>
edges (float[2,3,4,5] x, int64[1,2,3,4] k, float[1,1,3,3] flat, float[2,CHANNELS,2,3] wide)
    => (float[2,3,4,5] same, float[2,4,5,3] moved, int64[1,2,3,4] more, float[1,1,3,3] still,
        float[2,CHANNELS,2,3] doubled)
    <int64[1] one = {1}>
{
    same = Identity(x)
    moved = Transpose<perm = [0, 2, 3, 1]>(x)
    more = Add(k, one)
    still = Relu(flat)
    doubled = Add(wide, wide)
}
"""
"""Batches, an input that is an output, integers in another width, one channel, few channels and many."""


def channels_last(model: ir.Model) -> Artifact:
    canonical = model.clone()
    run_passes(canonical)
    lay_out(canonical, "nhwc", [resolve(profile("tflite"))])
    return compiler("tflite").compile_model(canonical, profile("tflite"), "fp32")


def opened(model: ir.Model, artifact: Artifact, folder: Path) -> Any:
    inputs, outputs = specs(list(model.graph.inputs)), specs(list(model.graph.outputs))
    return open_runner(put_down(artifact, folder), inputs, outputs, artifact.options, 1)


@pytest.mark.parametrize(
    "text",
    [SMALL_CNN, *(EDGES.replace("CHANNELS", str(n)) for n in (PLANES_LIMIT, PLANES_LIMIT + 1))],
    ids=["cnn", "planes", "more channels"],
)
def test_the_runner_gives_the_sources_layout(text: str, tmp_path: Path) -> None:
    model = with_shapes(text)
    runner = opened(model, channels_last(model), tmp_path)
    kept = []
    for seed in range(3):
        given = feeds(model, seed)
        kept.append((runner.run(given), {name: array.copy() for name, array in runner.run(given).items()}))
        same_as_reference(model, runner, given)
    for answers, copies in kept:  # they are the caller's: later runs did not change them
        for name, array in answers.items():
            np.testing.assert_array_equal(array, copies[name])
            assert array.flags.c_contiguous
            assert array.flags.owndata


def test_the_file_holds_channels_last_and_moves_nothing(tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    model = with_shapes(SMALL_CNN)
    artifact = channels_last(model)
    assert "TRANSPOSE" not in ops_of(artifact)
    rows = [*artifact.options["inputs"], *artifact.options["outputs"]]
    assert [(row["name"], row["shape"], row.get("order")) for row in rows] == [
        ("image", [1, 16, 16, 3], [0, 2, 3, 1]),
        ("scores", [1, 4], None),
        ("features", [1, 16, 16, 4], [0, 2, 3, 1]),
    ]
    interpreter = Interpreter(model_path=str(put_down(artifact, tmp_path)["model.tflite"]))
    run = interpreter.get_signature_runner("serving_default")
    image = feeds(model)["image"]
    raw = run(image=image.transpose(0, 2, 3, 1))
    ours = opened(model, artifact, tmp_path / "again").run({"image": image})
    np.testing.assert_array_equal(raw["features"].transpose(0, 3, 1, 2), ours["features"])


def test_an_order_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model = with_shapes(SMALL_CNN)
    artifact = channels_last(model)
    (row,) = artifact.options["inputs"]
    outputs = specs(list(model.graph.outputs))
    for order in ([0, 3, 1, 2], [0, 2, 3], [0, 0, 0, 0]):
        options = {**artifact.options, "inputs": [{**row, "order": order}]}
        with pytest.raises(EngineError) as error:
            open_runner(put_down(artifact, tmp_path), specs(list(model.graph.inputs)), outputs, options, 1)
        assert str(error.value) == (
            f"{tmp_path / 'model.tflite'} holds image float32 1x16x16x3 "
            "where the model has image float32 1x3x16x16"
        )
