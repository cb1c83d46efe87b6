"""The reader of TensorFlow's frozen graphs: small ones made here byte by byte, right and hostile."""

from __future__ import annotations

import importlib
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tests.samples.live_camera import SAMPLE

SIDE = 8
RNG = np.random.default_rng(4)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SAMPLE))
    return importlib.import_module("frozen_graph")


# --- the wire format (https://protobuf.dev/programming-guides/encoding/) -----------------------------------


def varint(value: int) -> bytes:
    content = b""
    while value > 127:
        content += bytes([value & 127 | 128])
        value >>= 7
    return content + bytes([value])


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(8 * number) + varint(value)
    content = value.encode() if isinstance(value, str) else value
    return varint(8 * number + 2) + varint(len(content)) + content


def attribute(name: str, value: bytes) -> bytes:
    return field(5, field(1, name) + field(2, value))


def node(name: str, op: str, inputs: tuple[str, ...] = (), *attributes: bytes) -> bytes:
    return field(
        1, field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs) + b"".join(attributes)
    )


def weights(name: str, values: Any, sizes: tuple[int, ...] | None = None, dtype: int = 1) -> bytes:
    shape = b"".join(field(2, field(1, size)) for size in sizes or values.shape)
    tensor = field(1, dtype) + field(2, shape) + field(4, values.astype("<f4").tobytes())
    return node(name, "Const", (), attribute("value", field(8, tensor)))


def convolution(name: str, op: str, data: str, stride: int = 1, padding: str = "SAME") -> bytes:
    strides = attribute("strides", field(1, field(3, bytes([1, stride, stride, 1]))))
    return node(name, op, (data, f"{name}/w"), strides, attribute("padding", field(2, padding)))


# --- a small detector --------------------------------------------------------------------------------------

VALUES = {
    "first/w": RNG.normal(size=(3, 3, 3, 4)),
    "deep/w": RNG.normal(size=(3, 3, 4, 1)),
    "box/w": RNG.normal(size=(1, 1, 4, 8)),
    "score/w": RNG.normal(size=(1, 1, 4, 4)),
    "bias": RNG.normal(size=8),
    "scale": RNG.uniform(0.5, 2, size=4),
    "shift": RNG.normal(size=4),
    "mean": RNG.normal(size=4),
    "variance": RNG.uniform(0.5, 2, size=4),
}
VALUES = {name: values.astype(np.float32) for name, values in VALUES.items()}
EPSILON = 0.001


def detector() -> dict[str, bytes]:
    """Every operator that is known: two outputs, two anchors at each place. Node name -> its bytes."""
    nodes = {name: weights(name, values) for name, values in VALUES.items()}
    epsilon = attribute("epsilon", varint(8 * 4 + 5) + struct.pack("<f", EPSILON))
    norm = ("first", "scale/read", "shift", "mean", "variance")
    return nodes | {
        "Preprocessor/sub": node("Preprocessor/sub", "Sub", ("image", "one")),
        "scale/read": node("scale/read", "Identity", ("scale",)),
        "first": convolution("first", "Conv2D", "Preprocessor/sub", stride=2),
        "norm": node("norm", "FusedBatchNorm", norm, epsilon),
        "six": node("six", "Relu6", ("norm",)),
        "deep": convolution("deep", "DepthwiseConv2dNative", "six"),
        "sum": node("sum", "Add", ("six", "deep")),
        "same": node("same", "Identity", ("sum",)),
        "box": convolution("box", "Conv2D", "same"),
        "biased": node("biased", "BiasAdd", ("box", "bias")),
        "score": convolution("score", "Conv2D", "same"),
        "rows": node("rows", "Reshape", ("biased", "shape")),
        "rows_1": node("rows_1", "Reshape", ("score", "shape")),
        "concat": node("concat", "ConcatV2", ("rows", "axis")),
        "concat_1": node("concat_1", "ConcatV2", ("rows_1", "axis")),
    }


def written(folder: Path, nodes: dict[str, bytes] | bytes) -> Path:
    path = folder / "graph.pb"
    path.write_bytes(nodes if isinstance(nodes, bytes) else b"".join(nodes.values()))
    return path


def convolved(data: Any, kernel: Any, stride: int = 1) -> Any:
    """TensorFlow's Conv2D with padding SAME, as its documentation has it: data [rows, columns, in]."""
    rows, columns = (-(-size // stride) for size in data.shape[:2])
    high, wide = kernel.shape[:2]
    spare = [max(0, (n - 1) * stride + k - size) for n, k, size in
             zip((rows, columns), (high, wide), data.shape, strict=False)]  # fmt: skip
    padded = np.pad(data, [(each // 2, each - each // 2) for each in spare] + [(0, 0)])
    return np.array(
        [
            [
                np.tensordot(
                    padded[y * stride : y * stride + high, x * stride : x * stride + wide], kernel, 3
                )
                for x in range(columns)
            ]
            for y in range(rows)
        ]
    )


@pytest.mark.needs_ort
def test_it_computes_what_the_graph_says(frozen: ModuleType, tmp_path: Path) -> None:
    import onnxruntime

    model = frozen.convert(written(tmp_path, detector()), SIDE)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    image = RNG.uniform(-1, 1, (1, 3, SIDE, SIDE)).astype(np.float32)
    boxes, scores = session.run(["boxes", "scores"], {"image": image})
    v = VALUES
    first = convolved(image[0].transpose(1, 2, 0), v["first/w"], 2)
    norm = v["scale"] * (first - v["mean"]) / np.sqrt(v["variance"] + EPSILON) + v["shift"]
    six = np.clip(norm, 0, 6)
    each = [convolved(six[..., [n]], v["deep/w"][:, :, [n]]) for n in range(4)]
    same = six + np.concatenate(each, axis=2)
    np.testing.assert_allclose(boxes[0], (same @ v["box/w"][0, 0] + v["bias"]).reshape(-1, 4), atol=1e-4)
    np.testing.assert_allclose(scores[0], (same @ v["score/w"][0, 0]).reshape(-1, 2), atol=1e-4)


def with_nodes(**changed: bytes) -> dict[str, bytes]:
    """The detector with other nodes; empty bytes take one away."""
    return detector() | {name.replace("__", "/"): content for name, content in changed.items()}


HUGE = (1 << 62, 4)
DEEP = {f"n{n}": node(f"n{n}", "Identity", (f"n{n + 1}",)) for n in range(5000)}
HOSTILE: dict[str, tuple[dict[str, bytes] | bytes, str]] = {
    "nothing": (b"", "there is no node in it"),
    "another file": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "(wire type|a field of|a number of)"),
    "text": (b"node { name: 'a' }", "(wire type|a field of|a number of)"),
    "zeros": (bytes(100), "there is no node in it"),
    "a number that never ends": (b"\xff" * 40, "has more than 10 bytes"),
    "a field longer than the file": (
        field(1, b"")[:1] + varint(1 << 60),
        "a field of 1152921504606846976 bytes",
    ),
    "a node that is a number": (field(1, 7), "a node of the graph is a number"),
    "a name that is no text": (field(1, field(1, b"\xff\xfe")), "not UTF-8 text"),
    "a name that is a number": (field(1, field(1, 7)), "is a number"),
    "the same name twice": (
        b"".join(detector().values()) + node("six", "Relu6", ("norm",)),
        "two nodes are called 'six'",
    ),
    "no output": (with_nodes(concat=b""), "there is no node 'concat'"),
    "an input that is not there": (with_nodes(norm=b""), "there is no node 'norm'"),
    "too few inputs": (with_nodes(sum=node("sum", "Add", ("six",))), "sum, a Add, has 1 inputs; it needs 2"),
    "no inputs": (with_nodes(rows=node("rows", "Reshape")), "rows, a Reshape, has 0 inputs; it needs 1"),
    "an operator of another network": (
        with_nodes(six=node("six", "PyFunc", ("norm",))),
        "six is a PyFunc, which this conversion does not know",
    ),
    "a cycle": (with_nodes(same=node("same", "Identity", ("same",))), "same is an input of itself"),
    "a long cycle": (with_nodes(six=node("six", "Relu6", ("sum",))), "is an input of itself"),
    "a cycle of weights": (
        with_nodes(scale__read=node("scale/read", "Identity", ("scale/read",))),
        "scale/read is an input of itself",
    ),
    "a graph that is too deep": (with_nodes(same=node("same", "Identity", ("n0",)), **DEEP), "nodes deep"),
    "weights that are computed": (with_nodes(scale=node("scale", "Relu6", ("norm",))), "only a Const"),
    "a shape with more than the bytes": (
        with_nodes(bias=weights("bias", VALUES["bias"], (9,))),
        r"bias has 32 bytes for float32 \[9\]",
    ),
    "a shape with less": (with_nodes(bias=weights("bias", VALUES["bias"], (7,))), "bias has 32 bytes"),
    "a shape that no memory holds": (with_nodes(bias=weights("bias", VALUES["bias"], HUGE)), "has 32 bytes"),
    "a negative size": (
        with_nodes(bias=weights("bias", VALUES["bias"], ((1 << 64) - 1, 8))),
        "has 32 bytes for float32",
    ),
    "no values": (with_nodes(bias=weights("bias", np.zeros(0))), "bias has 0 bytes"),
    "a Const without a tensor": (with_nodes(bias=node("bias", "Const")), "bias is no float32"),
    "whole numbers": (with_nodes(bias=weights("bias", VALUES["bias"], dtype=3)), "bias is no float32"),
    "weights of two dimensions": (
        with_nodes(first__w=weights("first/w", np.zeros((3, 4)))),
        r"has weights of shape \[3, 4\]",
    ),
    "a depth multiplier": (
        with_nodes(deep__w=weights("deep/w", np.zeros((3, 3, 2, 2)))),
        "deep, a DepthwiseConv2dNative, has weights of shape",
    ),
    "strides of zero": (
        with_nodes(first=convolution("first", "Conv2D", "Preprocessor/sub", stride=0)),
        "first has no four strides",
    ),
    "no strides": (with_nodes(box=node("box", "Conv2D", ("same", "box/w"))), "box has no four strides"),
    "another padding": (
        with_nodes(box=convolution("box", "Conv2D", "same", padding="VALID")),
        "box has a padding other than SAME",
    ),
    "a bias that fits no channels": (
        with_nodes(bias=weights("bias", np.zeros(3))),
        "its shapes do not fit",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_graph_is_refused(frozen: ModuleType, tmp_path: Path, name: str) -> None:
    content, why = HOSTILE[name]
    with pytest.raises(frozen.GraphError, match=why):
        frozen.convert(written(tmp_path, content), SIDE)


def test_a_graph_that_is_cut_off_is_refused_wherever(frozen: ModuleType, tmp_path: Path) -> None:
    whole = b"".join(detector().values())
    for size in range(0, len(whole), 29):
        with pytest.raises(frozen.GraphError):
            frozen.convert(written(tmp_path, whole[:size]), SIDE)


def test_a_graph_with_wrong_bytes_is_refused_or_converted(frozen: ModuleType, tmp_path: Path) -> None:
    """Nothing else may come out of it."""
    whole = b"".join(detector().values())
    refused = 0
    for _ in range(100):
        wrong = bytearray(whole)
        for at in RNG.integers(0, len(whole), 3):
            wrong[at] = RNG.integers(256)
        try:
            frozen.convert(written(tmp_path, bytes(wrong)), SIDE)
        except frozen.GraphError:
            refused += 1
    assert 0 < refused < 100


def test_a_detector_that_can_not_be_converted_is_one_error(
    frozen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch = importlib.import_module("fetch")
    path = written(tmp_path, with_nodes(concat=b""))
    monkeypatch.setattr(fetch.Packaged, "fetch", lambda self: path)
    with pytest.raises(SystemExit) as error:
        fetch.person_detector()
    assert str(error.value) == f"error: {path} can't be converted: there is no node 'concat'"
    assert [each.name for each in tmp_path.iterdir()] == ["graph.pb"]
