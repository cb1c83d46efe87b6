"""Operators of the conformance grid between pairs: none is lost, and none says more than its steps.

Every seventh case: its float inputs and outputs are given a pair each, by the range they have, and the file
is compared with the reference of the same Q/DQ graph.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.passes import run_passes
from edgekit.errors import UnsupportedError
from edgekit.tensor_spec import Array
from tests.conformance.grid import CASES
from tests.targets.tflite.running import compiled, ran

FAMILIES = ("conv", "index", "math", "matmul", "norm", "pool", "reduce", "resize", "shape")
KEYS = [key for key in CASES if key.partition("/")[0] in FAMILIES][::7]
STEPS = 1.6
"""Of the output's own scale: one step, and what the scale's float32 adds."""


def pair(model: ir.Model, value: ir.Value, array: Array) -> tuple[list[ir.Node], ir.Value, float]:
    """QuantizeLinear and DequantizeLinear behind a value, by the range of its numbers; and their step."""
    low, high = min(float(array.min()), 0.0), max(float(array.max()), 0.0)
    step = (high - low) / 255 or 1.0
    parameters = []
    for part, number in (
        ("s", np.float32(step)),
        ("z", np.int8(np.clip(np.rint(-low / step), 0, 255) - 128)),
    ):
        made = ir.Value(name=f"{value.name}_{part}", const_value=ir.tensor(np.asarray(number)))
        model.graph.register_initializer(made)
        parameters.append(made)
    quantize = ir.node("QuantizeLinear", [value, *parameters])
    dequantize = ir.node("DequantizeLinear", [quantize.outputs[0], *parameters])
    for index, node in enumerate((quantize, dequantize)):
        node.outputs[0].name = f"{value.name}_pair_{index}"
    return [quantize, dequantize], dequantize.outputs[0], step


def in_pairs(model: ir.Model, arrays: dict[str, Array]) -> dict[str, float]:
    """Give every float input and output its pair, in place. Returns the steps of the outputs."""
    graph = model.graph
    for value in list(graph.inputs):
        array = arrays[str(value.name)]
        readers = list(value.uses())
        if array.dtype == np.float32 and array.size and readers:
            nodes, real, _ = pair(model, value, array)
            graph.insert_before(graph[0], nodes)
            for node, index in readers:
                node.replace_input_with(index, real)
    steps = {}
    for place, value in enumerate(graph.outputs):
        array, maker = arrays[str(value.name)], value.producer()
        if array.dtype == np.float32 and array.size and maker is not None:
            name = str(value.name)
            value.name = f"{name}_before"
            nodes, real, steps[name] = pair(model, value, array)
            graph.extend(nodes)
            real.name, real.type, real.shape = name, value.type, value.shape
            graph.outputs[place] = real
    return steps


@pytest.mark.needs_ort
@pytest.mark.needs_tflite
@pytest.mark.parametrize("key", KEYS)
def test_case_between_pairs(key: str, tmp_path: Path) -> None:
    case = CASES[key]
    onnx.save(case.model(), tmp_path / "float.onnx")
    feeds = case.feeds(0)
    model = open_model(tmp_path / "float.onnx")
    run_passes(model)
    before = Reference(model).run(feeds)
    floats = [a for a in before.values() if a.dtype == np.float32]
    if not floats or not all(np.isfinite(a).all() for a in floats):
        return
    steps = in_pairs(model, {**feeds, **before})
    ir.save(model, tmp_path / "pairs.onnx")
    quantized = open_model(tmp_path / "pairs.onnx")
    run_passes(quantized)
    try:
        artifact = compiled(quantized)
    except UnsupportedError:
        return  # what has no form has none between pairs
    answers = ran(artifact, feeds)
    for name, expected in Reference(quantized).run(feeds).items():
        if name in steps:
            assert np.abs(answers[name].astype(np.float64) - expected).max() <= STEPS * steps[name]
        else:
            assert np.array_equal(answers[name], expected)
