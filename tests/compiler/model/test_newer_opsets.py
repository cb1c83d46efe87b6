"""Models of opsets newer than the engines' kernels, and newer than EdgeKit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgekit.compiler.model.newer_opsets import newest_known
from edgekit.compiler.model.onnx_file import assumed_shapes, open_model
from edgekit.compiler.model.reference import Reference
from edgekit.errors import ModelError

pytestmark = [
    pytest.mark.needs_ort,
    pytest.mark.skipif(newest_known() < 28, reason="needs an onnx that knows opset 28"),
]


def _file(folder: Path, text: str, opset: int) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 28]> {text}')
    proto.opset_import[0].version = opset
    for number, node in enumerate(proto.graph.node):
        node.name = f"{node.op_type}_{number}"
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("text", "opset"),
    [
        ("g (float[2] x) => (float[2] y) { y = Relu (x) }", 23),
        ("g (float[2] x) => (float[2] y) { y = Swish (x) }", 24),
        (
            'g (float[1,4,2,2] x) => (float[1,16,1,1] y) { y = SpaceToDepth <blocksize=2, mode="DCR"> (x) }',
            23,
        ),
        (
            'g (float[1,4,2,2] x) => (float[1,16,1,1] y) { y = SpaceToDepth <blocksize=2, mode="CRD"> (x) }',
            28,
        ),
        ("g (int32[2] x, int32[2] z) => (int32[2] y) { y = Mod (x, z) }", 23),
        ("g (float[2] x, float[2] z) => (float[2] y) { y = Mod (x, z) }", 28),
        ("g (float[2] x, float[2] z) => (float[2] y) { y = Mod <fmod=1> (x, z) }", 23),
        ('g (uint8[2] x, uint8[2] z) => (uint8[2] y) { y = BitShift <direction="LEFT"> (x, z) }', 28),
        ("g (float16[2] x) => (float16[2] y) { y = Celu (x) }", 28),
        ("g (float[2] x) => (float[2] y) { y = Celu (x) }", 23),
        (
            "g (float[1,3,4] x, float[3,1,2] w) => (float[1,3,4] y) "
            "{ z, s = CausalConvWithState (x, w) y = Relu (z) }",
            27,
        ),
    ],
)
def test_the_oldest_opset_with_the_same_forms_is_chosen(tmp_path: Path, text: str, opset: int) -> None:
    model = open_model(_file(tmp_path, text, 28))
    assert model.graph.opset_imports[""] == opset
    assert all("mode" not in node.attributes or opset == 28 for node in model.graph)
    Reference(model)


def test_swiglu_is_written_as_a_swish_for_which_engines_have_kernels(tmp_path: Path) -> None:
    path = _file(tmp_path, "g (float[4] a, float[4] b) => (float[4] y) { y = SwiGLU <alpha=1.5> (a, b) }", 28)
    a, b = np.array([-2, -0.5, 0.5, 3], np.float32), np.array([1, 2, 3, -4], np.float32)
    (got,) = Reference(open_model(path)).run({"a": a, "b": b}).values()
    np.testing.assert_allclose(got, a / (1 + np.exp(-1.5 * a)) * b, rtol=1e-6)


def test_a_newer_opset_is_read_by_its_operators(tmp_path: Path) -> None:
    model = open_model(_file(tmp_path, "g (float[2] x) => (float[2] y) { y = Relu (x) }", 31))
    assert assumed_shapes(model) == (
        "opset 31 is newer than EdgeKit knows; its operators are read as those of opset 28"
    )
    Reference(model)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda node: setattr(node, "op_type", "Resonate"),
            "it is not an operator of opset 28, the newest that EdgeKit knows",
        ),
        (
            lambda node: node.attribute.append(onnx.helper.make_attribute("slope", 1.0)),
            "it has no attribute slope in opset 28, the newest that EdgeKit knows",
        ),
        (
            lambda node: node.input.append("x"),
            "it has more inputs or outputs than in opset 28, the newest that EdgeKit knows",
        ),
    ],
)
def test_a_newer_opset_is_refused_by_the_operator(tmp_path: Path, change: object, message: str) -> None:
    path = _file(tmp_path, "g (float[2] x) => (float[2] y) { z = Abs (x) y = Relu (z) }", 31)
    proto = onnx.load(path)
    change(proto.graph.node[1])  # type: ignore[operator]
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as refused:
        open_model(path)
    op = proto.graph.node[1].op_type
    assert str(refused.value) == (
        f"model.onnx: node Relu_1 ({op}, opset 31): {message}; export the model with opset 28 or older"
    )
