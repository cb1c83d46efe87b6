"""Models from elsewhere: what is checked before a parser sees them, and data in other files."""

from __future__ import annotations

import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from edgekit.compiler.model.onnx_file import open_model, opened_digest, save_model
from edgekit.compiler.passes import run_passes
from edgekit.errors import EdgeKitError, ModelError

pytestmark = pytest.mark.needs_ort

TEXT = """<ir_version: 8, opset_import: ["": 17, "local": 1]>
g (float[1,3,8,8] x, bool c) => (float[1,4,8,8] y, float[1,4] z)
{
  bias = Constant <value = float[4] {1,2,3,4}> ()
  [conv] a = Conv <pads=[1,1,1,1]> (x, w, bias)
  b = local.twice (a)
  y = If (c) <then_branch = t () => (float[1,4,8,8] p) { p = Relu (b) },
              else_branch = e () => (float[1,4,8,8] q) { q = Clip (b) }>
  s = Shape (a)
  k = Constant <value_ints = [0]> ()
  n = Gather (s, k)
  f = GlobalAveragePool (a)
  m = Constant <value_ints = [-1]> ()
  r = Concat <axis=0> (n, m)
  z = Reshape (f, r)
}
<domain: "local", opset_import: ["": 17]>
twice (v) => (u) { u = Add (v, v) }
"""


def valid() -> onnx.ModelProto:
    proto = parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return proto


def survives(path: Path, data: bytes) -> bool:
    """Open and rewrite; anything but an EdgeKitError fails the test."""
    path.write_bytes(data)
    try:
        model = open_model(path)
        run_passes(model)
        save_model(model)
    except EdgeKitError:
        return False
    return True


def test_the_undamaged_file_opens(tmp_path: Path) -> None:
    assert survives(tmp_path / "m.onnx", valid().SerializeToString())


def test_every_truncation(tmp_path: Path) -> None:
    data = valid().SerializeToString()
    opened = [n for n in range(len(data)) if survives(tmp_path / "m.onnx", data[:n])]
    assert not opened, "a cut file that opens is another model than the one that was sent"


@pytest.mark.parametrize("seed", range(4))
def test_flipped_lost_and_added_bytes(tmp_path: Path, seed: int) -> None:
    data, rng = valid().SerializeToString(), random.Random(seed)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(damaged))
            match rng.randrange(4):
                case 0:
                    damaged[at] ^= 1 << rng.randrange(8)
                case 1:
                    damaged[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF])
                case 2:
                    del damaged[at : at + rng.randrange(1, 5)]
                case _:
                    damaged[at:at] = rng.randbytes(rng.randrange(1, 5))
        survives(tmp_path / "m.onnx", bytes(damaged))


def huge_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = 2**30


def negative_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[0] = -4


def overflowing_weight(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].dims[:] = [2**62, 2**62, 3, 3]


def weight_without_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 0


def weight_of_unknown_type(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].data_type = 77


def data_in_the_wrong_field(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].int64_data.extend(range(108))


def too_few_values(proto: onnx.ModelProto) -> None:
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].float_data.extend([1.0] * 7)


def two_weights_of_one_name(proto: onnx.ModelProto) -> None:
    proto.graph.initializer.append(proto.graph.initializer[0])


def sparse_weight(proto: onnx.ModelProto) -> None:
    proto.graph.sparse_initializer.add()


def function_of_itself(proto: onnx.ModelProto) -> None:
    proto.functions[0].node.add(op_type="twice", domain="local", input=["v"], output=["v2"])


def name_that_is_no_text(proto: onnx.ModelProto) -> None:
    data = proto.SerializeToString().replace(b"conv", b"c\xff\xfev")
    proto.ParseFromString(data)


def deep_nesting(proto: onnx.ModelProto) -> None:
    graph = proto.graph
    for _ in range(17):
        node = graph.node.add(op_type="If", input=["c"], output=["deep"])
        attribute = node.attribute.add(name="then_branch", type=onnx.AttributeProto.GRAPH)
        graph = attribute.g
        graph.name = "b"


def input_of_huge_dimensions(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 2**40


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (huge_weight, "weight w: [1073741824, 3, 3, 3] float needs 115964116992 bytes but has 432"),
        (negative_weight, "weight w: its dimensions [-4, 3, 3, 3] are not valid"),
        (overflowing_weight, f"weight w: its dimensions [{2**62}, {2**62}, 3, 3] are not valid"),
        (weight_without_type, "weight w: its element type is missing"),
        (weight_of_unknown_type, "weight w: its element type 77 is not defined by ONNX"),
        (data_in_the_wrong_field, "weight w: is float, which cannot be stored in int64_data"),
        (too_few_values, "weight w: [4, 3, 3, 3] float needs 108 values but has 7"),
        (two_weights_of_one_name, "two of its weights have the same name, w; rename one"),
        (sparse_weight, "it has sparse weights, which are not supported; export them as dense weights"),
        (function_of_itself, "function local::twice calls itself"),
        (name_that_is_no_text, r"it contains a name that is not valid UTF-8: b'c\xff\xfev'"),
        (deep_nesting, "subgraphs are nested more than 16 deep"),
        (input_of_huge_dimensions, f"input x is 1x3x{2**40}x8: more than 2^31 elements"),
    ],
)
def test_crafted_files(tmp_path: Path, damage: Callable[[onnx.ModelProto], None], message: str) -> None:
    proto = valid()
    damage(proto)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_model(path)
    assert str(caught.value) == f"m.onnx: {message}"


def test_functions_that_multiply(tmp_path: Path) -> None:
    """Each of 14 functions calls the next four times: 4^13 nodes in three kilobytes."""
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17, "l": 1]> g (float[1] x) => (float[1] y) { y = l.f0 (x) }'
    )
    for level in range(14):
        function = proto.functions.add(name=f"f{level}", domain="l", input=["v0"], output=["v4"])
        function.opset_import.add(version=17)
        function.opset_import.add(domain="l", version=1)
        op, domain = ("Neg", "") if level == 13 else (f"f{level + 1}", "l")
        for call in range(4):
            function.node.add(op_type=op, domain=domain, input=[f"v{call}"], output=[f"v{call + 1}"])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        open_model(path)
    assert str(caught.value) == (
        "m.onnx: its functions expand to more than 20000 nodes; export it with inlined functions"
    )


@pytest.mark.parametrize(
    "nodes",
    [
        "s = Constant <value_ints = [10000, 10000, 4]> ()  c = ConstantOfShape (s)",
        "s = Constant <value_ints = [1000, 500000]> ()  c = Expand (x, s)",
        "s = Constant <value_ints = [500000000]> ()  c = Tile (x, s)",
    ],
)
def test_nothing_large_is_computed_while_opening(tmp_path: Path, nodes: str) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]>'
    text = f"{head} g (float[1] x) => (float y) {{ {nodes} y = ReduceSum <keepdims=0> (c) }}"
    path = tmp_path / "m.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    tracemalloc.start()
    try:
        run_passes(open_model(path))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 50e6


MODEL = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,3,4,4] x, float[2,3,1,1] w) => (y) { y = Conv(x, w) }"""


def external(folder: Path, location: str, length: int = 24) -> Path:
    proto = parser.parse_model(MODEL)
    del proto.graph.input[1]
    tensor = proto.graph.initializer.add(name="w", data_type=1, dims=[2, 3, 1, 1], data_location=1)
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    weights = np.arange(6, dtype=np.float32)
    (tmp_path / "weights.bin").write_bytes(weights.tobytes())
    path = external(tmp_path, "weights.bin")
    model = open_model(path)
    weight = model.graph.initializers["w"].const_value
    assert weight is not None
    assert weight.numpy().ravel().tolist() == weights.tolist()
    before = opened_digest(model)
    (tmp_path / "weights.bin").write_bytes((weights + 1).tobytes())
    assert opened_digest(open_model(path)) != before


def test_external_data_from_elsewhere_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "secret").write_bytes(b"x" * 24)
    why = "EdgeKit reads external data only from a plain file name beside the model"
    for location in ("../secret", str(tmp_path / "secret"), "..\\secret", "a/b", "", "..", "C:secret"):
        with pytest.raises(ModelError) as caught:
            open_model(external(inside, location))
        assert str(caught.value) == f"model.onnx: weight w: its data is in {location!r}; {why}"
    os.symlink(tmp_path / "secret", inside / "link")
    with pytest.raises(ModelError) as caught:
        open_model(external(inside, "link"))
    assert str(caught.value) == (
        "model.onnx: weight w: its data is in link, which cannot be read beside the model: it "
        "is a symbolic link; replace it by the file that it leads to"
    )
    os.mkfifo(inside / "pipe")
    with pytest.raises(ModelError, match="beside the model: it is not a regular file"):
        open_model(external(inside, "pipe"))


def test_external_data_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x" * 20)
    with pytest.raises(ModelError) as caught:
        open_model(external(tmp_path, "weights.bin"))
    said = "model.onnx: weight w: its data is at bytes 0 to 24 of weights.bin, which has 20"
    assert str(caught.value) == said
