"""Files that are no models, that lie about themselves, or point elsewhere."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.compiler.sandbox.corpus.crafted import (
    FLOAT,
    INT64,
    STRING,
    Crafted,
    X,
    Y,
    all_constant,
    floats,
    graph,
    ints,
    model,
    node,
    scalar,
)

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\r\n\x00end"


def crafted() -> Iterator[Crafted]:
    """All of this file."""
    for kind, cases in (
        ("malformed files", _files()),
        ("control characters", _texts()),
        ("constants that lie", _tensors()),
        ("strings", _strings()),
        ("graphs that are none", _graphs()),
    ):
        for name, content in cases:
            yield Crafted(kind, name, content)
    yield from _external()


def _files() -> Iterator[tuple[str, Callable[[], bytes]]]:
    good = model([node("Gemm", "x w")], w=np.ones((4, 4), np.float32))
    yield "empty", lambda: b""
    yield "a zero", lambda: b"\x00"
    yield "cut in half", lambda: good[: len(good) // 2]
    yield "cut by a byte", lambda: good[:-1]
    yield "random bytes", lambda: np.random.default_rng(5).bytes(100_000)
    yield "a length of 2^63", lambda: b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + good
    yield "an endless number", lambda: b"\x08" + b"\xff" * 1000
    yield "a group without an end", lambda: b"\x3b" * 100_000
    yield "unknown fields", lambda: good + b"\xf8\x7f\x01" * 100_000
    yield "twice the same", lambda: good + good
    yield "text", lambda: b"ir_version: 8\ngraph {\n" * 1000
    yield "every byte turned", lambda: bytes(255 - byte for byte in good)
    yield "gzip of zeros", lambda: gzip.compress(bytes(50_000_000))
    yield "a zip of zeros", _zip
    yield "a pickle", lambda: b"cos\nsystem\n(S'touch owned'\ntR."
    for seed in range(6):
        yield f"bytes changed at random, {seed}", partial(_mutated, good, seed)


def _zip() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(50_000_000))
    return made.getvalue()


def _mutated(content: bytes, seed: int) -> bytes:
    random = np.random.default_rng(seed)
    changed = bytearray(content)
    for place in random.integers(0, len(content), 6):
        changed[place] = int(random.integers(0, 256))
    return bytes(changed)


def _texts() -> Iterator[tuple[str, Callable[[], bytes]]]:
    yield "of a node", lambda: model([helper.make_node("Sin", ["x"], ["y"], name=EVIL)])
    yield "of an operator", partial(model, [helper.make_node(EVIL, ["x"], ["y"])])
    yield "of a domain", lambda: model([helper.make_node("Sin", ["x"], ["y"], domain=EVIL)])
    attributes: dict[str, Any] = {EVIL: 1}
    yield "of an attribute", partial(model, [helper.make_node("Sin", ["x"], ["y"], **attributes)])
    yield "of an attribute's text", partial(model, [node("GridSample", "x x", mode=EVIL)])
    yield "of an equation", partial(model, [node("Einsum", "x", equation=EVIL)])
    yield "of an input", lambda: model([node("Sin", EVIL)], [(EVIL, FLOAT, (1, 4))])
    yield "of an output", lambda: model([helper.make_node("Sin", ["x"], [EVIL])], [X], [(EVIL, FLOAT, None)])
    yield "of a dimension", partial(model, [node("Sin", "x")], [("x", FLOAT, (EVIL, 4))])
    yield (
        "of a value between",
        lambda: model([helper.make_node("Sin", ["x"], [EVIL]), helper.make_node("Cos", [EVIL], ["y"])]),
    )
    yield (
        "of a constant",
        lambda: model(graph([helper.make_node("Add", ["x", EVIL], ["y"])], constants={EVIL: floats(1)})),
    )
    yield (
        "of an unknown operator's long name",
        partial(model, [helper.make_node("Q" * 50_000 + EVIL, ["x"], ["y"])]),
    )


def _external() -> Iterator[Crafted]:
    def made(place: str, size: int = 16, more: Mapping[str, str] | None = None) -> bytes:
        tensor = TensorProto(data_type=FLOAT, dims=[size // 4], data_location=TensorProto.EXTERNAL)
        for key, value in {"location": place, **(more or {})}.items():
            tensor.external_data.add(key=key, value=value)
        return model([node("Add", "x w")], w=tensor)

    for place in ("/etc/passwd", "../secret", "a/../../secret", "/dev/zero", "", ".", "\x1b[2J", "C:\\x"):
        yield Crafted("external data", f"at {place!r}", partial(made, place))
    address = {"offset": "4096", "length": "16"}
    yield Crafted("external data", "in memory", partial(made, "*/_ORT_MEM_ADDR_/*", more=address))
    beside: dict[str, Callable[[Path], object]] = {
        "a link": lambda path: path.symlink_to("/etc/passwd"),
        "a pipe": os.mkfifo,
        "a folder": Path.mkdir,
        "a short file": lambda path: path.write_bytes(b"12"),
    }
    for name, make in beside.items():
        prepare = partial(_beside, make)
        yield Crafted("external data", name, partial(made, "w.bin"), prepare)
    for more in ({"offset": "-8"}, {"offset": str(2**63)}, {"length": "-1"}, {"offset": "1e3"}):
        yield Crafted(
            "external data", f"with {more}", partial(made, "w.bin", more=more),
            partial(_beside, lambda path: path.write_bytes(bytes(64))),
        )  # fmt: skip
    yield Crafted("external data", "of 8 TB", partial(made, "w.bin", 2**43))


def _beside(make: Callable[[Path], object], folder: Path) -> None:
    make(folder / "w.bin")


def _tensor(**fields: Any) -> TensorProto:
    return TensorProto(name="w", **fields)


def _tensors() -> Iterator[tuple[str, Callable[[], bytes]]]:
    def used(tensor: TensorProto) -> bytes:
        return model([node("Add", "x w")], w=tensor)

    for name, tensor in {
        "too few bytes": _tensor(data_type=FLOAT, dims=[4], raw_data=bytes(3)),
        "too many bytes": _tensor(data_type=FLOAT, dims=[4], raw_data=bytes(64)),
        "10^12 of nothing": _tensor(data_type=FLOAT, dims=[10**12]),
        "2^32 x 2^32": _tensor(data_type=FLOAT, dims=[2**32, 2**32], raw_data=b""),
        "negative": _tensor(data_type=FLOAT, dims=[-4], raw_data=bytes(16)),
        "two negatives": _tensor(data_type=FLOAT, dims=[-2, -2], raw_data=bytes(16)),
        "no type": _tensor(dims=[4], raw_data=bytes(16)),
        "type 9999": _tensor(data_type=9999, dims=[4], raw_data=bytes(16)),
        "two fields": _tensor(data_type=FLOAT, dims=[4], raw_data=bytes(16), int64_data=[1, 2, 3, 4]),
        "the wrong field": _tensor(data_type=FLOAT, dims=[4], int64_data=[1, 2, 3, 4]),
        "int4, odd": _tensor(data_type=TensorProto.INT4, dims=[3], raw_data=bytes(1)),
        "complex": _tensor(data_type=TensorProto.COMPLEX64, dims=[4], raw_data=bytes(32)),
        "of rank 60": _tensor(data_type=FLOAT, dims=[1] * 60, raw_data=bytes(4)),
        "booleans of 255": _tensor(data_type=TensorProto.BOOL, dims=[4], raw_data=b"\xff" * 4),
    }.items():
        yield name, partial(used, tensor)
    yield "another type than its input's", lambda: _retyped()
    yield "Reshape by a float", partial(model, [node("Reshape", "x s")], s=floats(4, 1))
    yield "a sparse one", _sparse


def _retyped() -> bytes:
    return model([node("Add", "x w")], [X, ("w", INT64, (4,))], w=floats(1, 2, 3, 4))


def _sparse() -> bytes:
    made = onnx.load_from_string(model([node("Add", "x w")]))
    values = helper.make_tensor("w", FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", INT64, [1], [2**40])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4]))
    return bytes(made.SerializeToString())


def _strings() -> Iterator[tuple[str, Callable[[], bytes]]]:
    words = np.array(["1e999", "abc", EVIL], object)
    yield (
        "as an input",
        partial(model, [node("StringNormalizer", "x")], [("x", STRING, (4,))], [("y", STRING, None)]),
    )
    yield "cast to numbers", partial(all_constant, "Cast", attributes={"to": FLOAT}, a=words)
    yield "cast to integers", partial(all_constant, "Cast", attributes={"to": INT64}, a=words)
    yield "from numbers", lambda: model([node("Cast", "x", "s", to=STRING), node("Cast", "s", to=FLOAT)])
    yield "a pattern that backtracks", lambda: model(
        [node("RegexFullMatch", "a", "m", pattern="(a+)+(a+)+(a+)+$"), node("Cast", "m", "f", to=FLOAT),
         node("Add", "x f")], opset=20, a=np.array(["a" * 4000 + "!"], object)
    )  # fmt: skip
    yield "TfIdfVectorizer", lambda: model(
        [node("TfIdfVectorizer", "i", "t", mode="TF", min_gram_length=1, max_gram_length=2**31,
              max_skip_count=2**31, ngram_counts=[0, 2**40], ngram_indexes=[2**40], pool_int64s=[1]),
         node("ReduceSum", "t", "s"), node("Add", "x s")], i=ints(1, 2, 3)
    )  # fmt: skip
    yield "StringSplit of 2^62", lambda: model(
        [node("StringSplit", "a", "p n", delimiter="", maxsplit=2**62), node("Cast", "n", "f", to=FLOAT),
         node("ReduceSum", "f", "s"), node("Add", "x s")], opset=20, a=words
    )  # fmt: skip
    yield "LabelEncoder, lists that do not fit", lambda: model(
        [node("LabelEncoder", "i", "l", domain="ai.onnx.ml", keys_int64s=[1, 2, 3], values_floats=[1.0]),
         node("Add", "x l")], i=ints(1)
    )  # fmt: skip


def _graphs() -> Iterator[tuple[str, Callable[[], bytes]]]:
    yield "a circle", partial(model, [node("Add", "x b", "a"), node("Sin", "a", "b"), node("Sin", "b")])
    yield "a node of itself", partial(model, [node("Add", "x y")])
    yield "the wrong order", partial(model, [node("Sin", "a"), node("Cos", "x", "a")])
    yield "a name twice", partial(model, [node("Sin", "x", "a"), node("Cos", "x", "a"), node("Sin", "a")])
    yield "a value that nobody makes", partial(model, [node("Add", "x nothing")])
    yield "an output that nobody makes", partial(model, [node("Sin", "x", "z")])
    yield "no output", partial(model, [node("Sin", "x")], [X], [])
    yield "no node", partial(model, [], [X], [X])
    yield "an input that is an output", partial(model, [node("Sin", "x")], [X], [X, Y])
    yield "opset 9999", partial(model, [node("Sin", "x")], opset=9999)
    yield "opset -1", partial(model, [node("Sin", "x")], opset=-1)
    yield "opset 1", partial(model, [node("Sin", "x")], opset=1)
    yield "an operator of nowhere", partial(model, [node("Sin", "x", domain="nowhere")])
    yield "declared another shape", partial(model, [node("Sin", "x")], [X], [("y", FLOAT, (7, 7, 7))])
    yield "declared another type", partial(model, [node("Sin", "x")], [X], [("y", INT64, (1, 4))])
    yield (
        "a weight that is an input",
        partial(model, [node("Add", "x w")], [X, ("w", FLOAT, (9,))], w=scalar(1, np.float32)),
    )
