"""Names of inputs and outputs that a bundle would write otherwise are refused when the model is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model, signature
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
