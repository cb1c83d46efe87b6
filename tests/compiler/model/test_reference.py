from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import EngineError, ModelError

pytestmark = pytest.mark.needs_ort


def reference(folder: Path, nodes: str, intermediate: tuple[str, ...] = (), signature: str = "") -> Reference:
    signature = signature or "(float[1,4] x) => (float[1,4] y)"
    text = f'<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g {signature} {{ {nodes} }}'
    path = folder / "m.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    return Reference(open_model(path), intermediate=intermediate)


X = np.array([[1, -2, 3, -4]], np.float32)


def test_answers_by_name(tmp_path: Path) -> None:
    out = reference(tmp_path, "n = Neg(x)  y = Relu(n)").run({"x": X})
    assert {name: array.tolist() for name, array in out.items()} == {"y": [[0, 2, 0, 4]]}


def test_intermediate_values(tmp_path: Path) -> None:
    out = reference(tmp_path, "n = Neg(x)  y = Relu(n)", intermediate=("n",)).run({"x": X})
    assert list(out) == ["y", "n"]
    assert out["n"].tolist() == [[-1, 2, -3, 4]]


def test_an_intermediate_value_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        reference(tmp_path, "y = Relu(x)", intermediate=("z",))
    assert str(caught.value) == "no node makes z"


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({}, "input x float32 1x4 is missing; given: nothing"),
        ({"x": X[:, :3]}, "input x is float32 1x3, but the model takes x float32 1x4"),
        ({"x": X.astype(np.float64)}, "input x is float64 1x4, but the model takes x float32 1x4"),
        ({"x": X, "z": X}, "the model has no input z; its inputs are x float32 1x4"),
    ],
)
def test_feeds_that_do_not_fit(tmp_path: Path, feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(EngineError) as caught:
        reference(tmp_path, "y = Relu(x)").run(feeds)
    assert str(caught.value) == message


def test_a_model_that_the_engine_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"^ONNX Runtime cannot load the model:"):
        reference(tmp_path, "y = com.acme.Secret(x)")


def test_a_branch_that_does_not_fit_the_shapes_is_no_reason_to_refuse(tmp_path: Path) -> None:
    nodes = """w = Constant <value = float[3,2] {1,2,3,4,5,6}> ()
        y = If (c) <then_branch = t () => (float[1,4] a) { a = Relu(x) },
                    else_branch = e () => (float[1,2] b) { b = MatMul(x, w) }>"""
    taken = reference(tmp_path, nodes, signature="(float[1,4] x, bool c) => (float[1,4] y)")
    assert taken.run({"x": X, "c": np.array(True)})["y"].tolist() == [[1, 0, 3, 0]]
    with pytest.raises(EngineError, match=r"^ONNX Runtime failed to run the model: "):
        taken.run({"x": X, "c": np.array(False)})


def test_a_loop_beside_a_branch_keeps_the_rank_of_its_counter(tmp_path: Path) -> None:
    """As PyTorch exports an EmbeddingBag."""
    nodes = """times = Constant <value = int64 {2}> ()
        go = Constant <value = bool {1}> ()
        r = If (c) <then_branch = t () => (float[1,4] a) { a = Relu(x) },
                    else_branch = e () => (float[1,4] b) { b = Neg(x) }>
        y = Loop (times, go, r) <body = l (int64 i, bool on, float[1,4] s) => (bool more, float[1,4] sum)
            { more = Identity(on)
              step = CastLike(i, s)
              sum = Add(s, step) }>"""
    looped = reference(tmp_path, nodes, signature="(float[1,4] x, bool c) => (float[1,4] y)")
    assert looped.run({"x": X, "c": np.array(True)})["y"].tolist() == [[2, 1, 4, 1]]


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_batches_first_are_refused_when_the_model_is_opened(tmp_path: Path, kind: str, gates: int) -> None:
    """ONNX Runtime has no kernel for layout 1. A test of each target would have no reference."""
    signature = f"(float[2,2,3] x, float[1,{gates * 4},3] w, float[1,{gates * 4},4] r) => (float[2,1,2,4] y)"
    node = f"[cell] y = {kind} <hidden_size = 4, layout = 0> (x, w, r)"
    assert reference(tmp_path, node, signature=signature)
    with pytest.raises(ModelError) as caught:
        reference(tmp_path, node.replace("layout = 0", "layout = 1"), signature=signature)
    assert str(caught.value) == (
        f"m.onnx: cell ({kind}) has layout 1 (batches first), which the reference, ONNX Runtime, does not run"
        "; export it with layout 0 and a Transpose before and after it"
    )
