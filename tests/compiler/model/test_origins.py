from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.origins import source_names
from edgekit.compiler.passes import run_passes

SHAPE = (1, 2, 4, 4)


def _names(tmp_path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any]) -> dict[str, list[str]]:
    """Canonical node -> its source nodes, after the passes."""
    table = _table(tmp_path, nodes, weights)
    source = [row[0] for row in table["source"]]
    return {name or source[first[0]]: [source[i] for i in first] for name, _, first, _ in table["nodes"]}


def _table(tmp_path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any]) -> Any:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", "y")]
    arrays = [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    source = open_model(path)
    canonical: ir.Model = source.clone()
    run_passes(canonical)
    return source_names(source, canonical)


WEIGHT = np.ones((2, 2, 1, 1), np.float32)
OF_NORM = {name: np.full(2, 2, np.float32) for name in ("scale", "bias", "mean", "var")}


def test_what_is_folded_into_a_node_is_told_with_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("BatchNormalization", ["a", *OF_NORM], ["b"], "norm"),
        helper.make_node("Relu", ["b"], ["y"], "relu"),
    ]
    assert _names(tmp_path, nodes, {"w": WEIGHT, **OF_NORM}) == {"conv": ["norm", "conv"], "relu": ["relu"]}


def test_a_formula_that_became_one_node_is_told_whole(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["a"], "div"),
        helper.make_node("Erf", ["a"], ["b"], "erf"),
        helper.make_node("Add", ["b", "one"], ["c"], "add"),
        helper.make_node("Mul", ["x", "c"], ["d"], "mul"),
        helper.make_node("Mul", ["d", "half"], ["y"], "last"),
    ]
    numbers = {"root": np.float32(np.sqrt(2)), "one": np.float32(1), "half": np.float32(0.5)}
    (source,) = _names(tmp_path, nodes, numbers).values()
    assert sorted(source) == ["add", "div", "erf", "last", "mul"]


def test_what_is_written_out_belongs_to_its_node(tmp_path: Path) -> None:
    nodes = [helper.make_node("Einsum", ["x", "w"], ["y"], "sum", equation="bchw,dc->bdhw")]
    table = _table(tmp_path, nodes, {"w": np.ones((2, 2), np.float32)})
    assert len(table["nodes"]) > 1
    assert table["source"] == [["sum", "Einsum"]]
    assert all(source == [0] for _, _, source, _ in table["nodes"])


def test_the_scope_that_pytorchs_exporter_left(tmp_path: Path) -> None:
    node = helper.make_node("Relu", ["x"], ["a"], "node_relu")
    node.metadata_props.add(
        key="pkg.torch.onnx.name_scopes", value="['', 'blocks.2', 'blocks.2.act', 'relu']"
    )
    named = helper.make_node("Exp", ["a"], ["y"], "/head/exp/Exp")
    assert _table(tmp_path, [node, named], {})["source"] == [
        ["node_relu", "Relu", "blocks.2.act"],
        ["/head/exp/Exp", "Exp"],
    ]
