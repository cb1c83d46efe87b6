"""Names of models, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from edgekit.compiler.model.onnx_file import open_model, signature
from edgekit.compiler.model.origins import source_names
from edgekit.compiler.passes import run_passes
from edgekit.errors import ModelError
from edgekit.system.formats import strict_json
from tests.fixtures.models import TWO_INPUTS

pytestmark = pytest.mark.needs_ort

ODD = ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\u202a", "\u202e", "\u2066", "\u2069"]


@pytest.mark.parametrize("odd", ODD, ids=[f"U+{ord(odd):04X}" for odd in ODD])
@pytest.mark.parametrize("kind", ["input", "output"])
def test_a_name_that_a_bundle_would_write_otherwise_is_refused(kind: str, odd: str, tmp_path: Path) -> None:
    """Under the name in the manifest OpenVINO was fed nothing, and answered from what its memory held."""
    proto = parser.parse_model(TWO_INPUTS)
    name = f"a{odd}[2Jb"
    if kind == "input":
        proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    else:
        proto.graph.output[0].name = proto.graph.node[0].output[0] = name
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as error:
        open_model(path)
    assert str(error.value) == (
        f"odd.onnx: {kind} {name!a}: its name contains U+{ord(odd):04X}, a control or text-direction "
        "character; rename it in the model"
    )


@pytest.mark.parametrize("name", ["été", "a b", "a\tb\n", "x:0", "\u200bx", "\U0001f600", "a\\u202eb"])
def test_a_name_that_stays_as_it_is_in_a_bundle_is_taken(name: str, tmp_path: Path) -> None:
    proto = parser.parse_model(TWO_INPUTS)
    proto.graph.input[0].name = proto.graph.node[0].input[0] = name
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString())
    (first, _), _ = signature(open_model(path))
    assert first.name == name
    assert strict_json.decode(strict_json.encode([name]), "it", 1000) == [name]


def test_only_inputs_and_outputs_need_such_names(tmp_path: Path) -> None:
    """Names inside never stand in a manifest as keys; what is said of them is escaped."""
    proto = parser.parse_model(TWO_INPUTS.replace("sum = Add(left", "t = Relu(left) sum = Add(t"))
    for node in proto.graph.node:
        node.input[:] = ["t\x1b" if name == "t" else name for name in node.input]
        node.output[:] = ["t\x1b" if name == "t" else name for name in node.output]
    path = tmp_path / "odd.onnx"
    path.write_bytes(proto.SerializeToString())
    open_model(path)


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
