"""A quantized graph at another shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from edgekit.compiler.lowering.shape_adaptation import at_shape, zero_padding
from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import add_constant, array_of
from edgekit.compiler.passes import run_passes
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array
from tests.fixtures.encoder import WHOLE, encoder

pytestmark = pytest.mark.needs_ort


def canonical(folder: Path, length: int) -> ir.Model:
    model = open_model(encoder(folder / "encoder.onnx"), {"ids": (1, length), "mask": (1, length)})
    run_passes(model)
    return model


def constants(model: ir.Model) -> dict[str, Array]:
    found = {name: array_of(value) for name, value in model.graph.initializers.items()}
    return {name: array for name, array in found.items() if array is not None}


def test_what_was_made_of_the_longest_graph_is_brought_to_the_shorter(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    made = longest.clone()
    name, array = next((n, a) for n, a in constants(made).items() if a.size == 64 * 64)
    made.graph.initializers[name].const_value = ir.tensor(array * np.float32(0.5), name=name)
    found = at_shape(made, longest, shorter)
    assert [spec.shape for ends in signature(found) for spec in ends] == [(1, 4), (1, 4), (1, 4, 64)]
    ids = np.arange(WHOLE, dtype=np.int64)[None]
    mask = (np.arange(WHOLE) < 4).astype(np.int64)[None]
    whole = Reference(made).run({"ids": ids, "mask": mask})["tokens"]
    short = Reference(found).run({"ids": ids[:, :4], "mask": mask[:, :4]})["tokens"]
    assert short == pytest.approx(whole[:, :4], abs=1e-5)
    other = Reference(shorter).run({"ids": ids[:, :4], "mask": mask[:, :4]})["tokens"]
    assert np.abs(short - other).max() > 1e-3  # by the changed weight


def test_a_constant_that_depends_on_the_length_in_another_way_is_refused(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    made = longest.clone()
    name, array = next((n, a) for n, a in constants(made).items() if a.shape[-2:] == (WHOLE, 64))
    made.graph.initializers[name].const_value = ir.tensor(array[..., ::-1, :2].copy(), name=name)
    with pytest.raises(
        UsageError, match=f"constant {name} cannot be adapted to another shape; use fp32 or fp16"
    ):
        at_shape(made, longest, shorter)


def test_other_nodes_are_refused(tmp_path: Path) -> None:
    longest, shorter = canonical(tmp_path, WHOLE), canonical(tmp_path, 4)
    add_constant(shorter, np.zeros(1, np.float32), "unused")
    zero_padding(shorter, "mask", {"tokens": (1,)})
    with pytest.raises(
        UsageError,
        match=r"^the graph has different nodes at different shapes, so it cannot be quantized for all of "
        r"them; use fp32 or fp16, or build one shape$",
    ):
        at_shape(longest.clone(), longest, shorter)


def graph(size: int, *, steps: int = 1, stored: bool = False) -> ir.Model:
    """y = (x + 2 i) read with ``steps``, where i counts the columns; ``stored``: 2 i is in integers."""
    model = onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : 23]> g (float[1,1,{size}] x) => (float[1,1,k] y)
        {{ a = Add(x, {"wide" if stored else "grid"})
           y = MaxPool<kernel_shape = [{steps}]>(a) }}"""
    )
    grid = 2 * np.arange(size, dtype=np.float32).reshape(1, 1, size)[..., ::-1]  # no prefix of a longer one
    constants: dict[str, Array] = {"grid": grid}
    if stored:
        constants = {
            "grid/stored": np.rint(grid / 0.5).astype(np.int8), "scale": np.array(0.5, np.float32),
            "zero": np.array(0, np.int8),
        }  # fmt: skip
        inputs = ["grid/stored", "scale", "zero"]
        model.graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", inputs, ["wide"]))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in constants.items())
    return ir.serde.deserialize_model(model)


def test_a_grid_in_integers_and_an_attribute_follow_the_shape() -> None:
    largest, further = graph(8, steps=4), graph(4, steps=2)
    found = at_shape(graph(8, steps=4, stored=True), largest, further)
    assert constants(found)["grid/stored"].tolist() == [[[12, 8, 4, 0]]]
    x = np.array([[[5, 1, 2, 3]]], np.float32)
    assert np.array_equal(Reference(found).run({"x": x})["y"], Reference(further).run({"x": x})["y"])


def test_a_grid_in_other_integers_is_refused() -> None:
    made = graph(8, stored=True)
    tuned = constants(made)["grid/stored"] + np.int8(1)
    made.graph.initializers["grid/stored"].const_value = ir.tensor(tuned, name="grid/stored")
    with pytest.raises(
        UsageError, match=r"^constant grid/stored cannot be adapted to another shape; use fp32"
    ):
        at_shape(made, graph(8), graph(4))


def test_a_changed_attribute_of_a_node_that_was_replaced_is_refused() -> None:
    made = graph(8, steps=4)
    made.graph[1].outputs[0].name = "other"
    with pytest.raises(UsageError, match=r"^node y cannot be adapted to another shape; use fp32 or fp16"):
        at_shape(made, graph(8, steps=4), graph(4, steps=2))
