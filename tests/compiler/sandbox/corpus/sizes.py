"""Results of gigabytes, work without an end, and files of many parts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.compiler.sandbox.corpus.crafted import (
    BOOL,
    FLOAT,
    INT64,
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

IMAGE = ("x", FLOAT, (1, 1, 4, 4))


def crafted() -> Iterator[Crafted]:
    """All of this file."""
    for kind, cases in (
        ("huge results", _results()),
        ("loops", _loops()),
        ("functions", _functions()),
        ("nesting", _nesting()),
        ("many nodes", _many()),
    ):
        for name, content in cases:
            yield Crafted(kind, name, content)


def _results() -> Iterator[tuple[str, Any]]:
    one = scalar(1, np.float32)
    yield "Tile, constants", partial(all_constant, "Tile", a=floats(1), r=ints(2**34))
    yield "Tile", partial(model, [node("Tile", "x r")], r=ints(2**20, 2**20))
    yield "Tile -1", partial(model, [node("Tile", "x r")], r=ints(-1, 1))
    for size in (10**12, 2**63 - 1, -5):
        yield f"Expand to {size}", partial(all_constant, "Expand", a=one, s=ints(size))
        yield f"ConstantOfShape {size}", partial(all_constant, "ConstantOfShape", s=ints(size, 2))
    for name, stop, step in (("2^40", 2**40, 1), ("step 0", 8, 0), ("backwards", -(2**62), 1)):
        yield (
            f"Range {name}",
            partial(all_constant, "Range", a=scalar(0), b=scalar(stop), c=scalar(step)),
        )
    yield (
        "Range by NaN",
        partial(all_constant, "Range", a=one, b=scalar(9, np.float32), c=scalar(np.nan, np.float32)),
    )
    for scale in (1e9, 0, np.nan, -1):
        yield (
            f"Resize by {scale}",
            partial(model, [node("Resize", "x - s", mode="nearest")], [IMAGE], s=floats(1, 1, scale, scale)),
        )
    yield "Resize to 2^40", partial(model, [node("Resize", "x - - s")], [IMAGE], s=ints(1, 1, 2**20, 2**20))
    yield "Upsample", partial(model, [node("Upsample", "x s")], [IMAGE], opset=9, s=floats(1, 1, 1e8, 1e8))
    yield "Pad by 2^40", partial(model, [node("Pad", "x p")], p=ints(0, 2**40, 0, 0))
    yield "Pad by less than all", partial(model, [node("Pad", "x p")], p=ints(0, -9, 0, -9))
    yield "Pad reflect too far", partial(model, [node("Pad", "x p", mode="reflect")], p=ints(0, 99, 0, 99))
    for depth in (2**40, -7, 0):
        yield (
            f"OneHot depth {depth}",
            partial(all_constant, "OneHot", i=ints(1, 2), d=scalar(depth), v=floats(0, 1)),
        )
    yield "RandomNormal of 10^12", partial(
        model, [node("RandomNormal", "", "r", shape=[10**6, 10**6]), node("ReduceSum", "r", "s"),
                node("Add", "x s")]
    )  # fmt: skip
    yield "DepthToSpace of 2^31", partial(model, [node("DepthToSpace", "x", blocksize=2**31)], [IMAGE])
    yield "EyeLike of 10^10", partial(
        model, [node("ConstantOfShape", "s", "c"), node("EyeLike", "c", "e"), node("ReduceSum", "e", "t"),
                node("Add", "x t")], s=ints(10**5, 10**5)
    )  # fmt: skip
    yield "Trilu of least", partial(model, [node("Trilu", "x k")], k=scalar(-(2**63)))
    yield (
        "CenterCropPad to 2^40",
        partial(model, [node("CenterCropPad", "x s")], opset=18, s=ints(2**20, 2**40)),
    )
    yield "Concat doubled 40 times", partial(model, _doubled(40, "Concat"))
    yield "Concat doubled 29 times", partial(model, _doubled(29, "Concat"))
    yield "outer products", partial(
        model, [node("Unsqueeze", "x a", "u"), node("Expand", "u s", "e"), node("Mul", "e e", "m"),
                node("ReduceSum", "m", "y")], a=ints(0), s=ints(30000, 30000, 4)
    )  # fmt: skip
    yield "large constants of constants", partial(model, _chained_constants(), s=ints(16_000_000))


def _doubled(times: int, kind: str) -> list[onnx.NodeProto]:
    names = ["x", *(f"d{index}" for index in range(times)), "y"]
    return [node(kind, f"{a} {a}", b, axis=1) for a, b in pairwise(names)]


def _chained_constants() -> list[onnx.NodeProto]:
    """Each of 64 MB, all of them needed at the end."""
    nodes = [node("ConstantOfShape", "s", "c0")]
    nodes += [node("Exp", f"c{index}", f"c{index + 1}") for index in range(40)]
    nodes += [node("Sum", " ".join(f"c{index}" for index in range(41)), "all")]
    return [*nodes, node("ReduceSum", "all", "t"), node("Add", "x t")]


def _loop(body: onnx.GraphProto, **constants: Any) -> bytes:
    return model([node("Loop", "m go x", body=body)], **constants)


def _body(nodes: Any, going: str = "go_in") -> onnx.GraphProto:
    given = [("i", INT64, ()), ("go_in", BOOL, ()), ("v", FLOAT, None)]
    made = [("go_out", BOOL, ()), ("w", FLOAT, None)]
    return graph([node("Identity", going, "go_out"), *nodes], given, made)


def _loops() -> Iterator[tuple[str, Any]]:
    once, yes = [node("Sin", "v", "w")], scalar(True, np.bool_)
    for trips in (333, 10**6, 2**63 - 1, -3):
        yield f"{trips} trips", partial(_loop, _body(once), m=scalar(trips), go=yes)
    yield "no trip count", lambda: model([node("Loop", "- go x", body=_body(once))], go=yes)
    yield "growing", partial(_loop, _body([node("Concat", "v v", "w", axis=1)]), m=scalar(60), go=yes)

    def nested(depth: int, trips: int) -> bytes:
        body = _body(once)
        for level in range(depth):
            inner = node("Loop", f"m go_in {'v'}", "w", body=body)
            body = _renamed(_body([inner]), level)
        return _loop(body, m=scalar(trips), go=yes)

    yield "15 deep", partial(nested, 14, 2)
    yield "20 deep", partial(nested, 20, 2)
    yield "150 x 333", partial(nested, 1, 333)
    body = graph([node("Add", "a b", "c")], [("a", FLOAT, (7,)), ("b", FLOAT, (3,))], [("c", FLOAT, None)])
    yield "Scan that does not fit", partial(model, [node("Scan", "x x", body=body, num_scan_inputs=1)])
    yield "Scan of -4 inputs", partial(model, [node("Scan", "x x", body=body, num_scan_inputs=-4)])


def _renamed(made: onnx.GraphProto, level: int) -> onnx.GraphProto:
    made.name = f"g{level}"
    return made


def _function(name: str, nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], nodes, opsets)


def _calls(*names: str) -> list[onnx.NodeProto]:
    values = ["x", *(f"v{index}" for index in range(len(names) - 1)), "y"]
    return [
        helper.make_node(name, [a], [b], domain="local")
        for name, a, b in zip(names, values, values[1:], strict=False)
    ]


def _functions() -> Iterator[tuple[str, Any]]:
    yield "that calls itself", partial(model, _calls("f"), functions=[_function("f", _calls("f"))])
    yield (
        "that call each other",
        partial(model, _calls("f"), functions=[_function("f", _calls("g")), _function("g", _calls("f"))]),
    )
    laughs = [_function("l0", [node("Sin", "x")])]
    laughs += [_function(f"l{level}", _calls(*[f"l{level - 1}"] * 10)) for level in range(1, 10)]
    yield "billion laughs", partial(model, _calls("l9"), functions=laughs)
    yield "billion laughs that nobody calls", partial(model, [node("Sin", "x")], functions=laughs)
    yield (
        "200,000 empty ones",
        lambda: model([node("Sin", "x")], functions=[_function(f"e{index}", []) for index in range(200_000)]),
    )
    yield "one twice", partial(model, _calls("f"), functions=[_function("f", [node("Sin", "x")])] * 2)
    yield "without an output", partial(model, _calls("f"), functions=[_function("f", [])])


def _ifs(depth: int) -> onnx.GraphProto:
    made = graph([node("Sin", "x", "b")], (), [("b", FLOAT, None)])
    for _ in range(depth):
        other = graph([node("Cos", "x", "b")], (), [("b", FLOAT, None)])
        made = graph([node("If", "go", "b", then_branch=made, else_branch=other)], (), [("b", FLOAT, None)])
    return made


def _nesting() -> Iterator[tuple[str, Any]]:
    inputs = [X, ("go", BOOL, ())]
    for depth in (12, 15, 17, 30):
        yield (
            f"If {depth} deep",
            lambda depth=depth: model(
                [node("If", "go", then_branch=_ifs(depth), else_branch=_ifs(0))], inputs
            ),
        )
    yield "a sequence of sequences, 400 deep", _deep_type


def _deep_type() -> bytes:
    """Written by hand: protobuf's Python does not write what it will not read."""
    kind = b"\x0a\x04\x08\x01\x12\x00"
    for _ in range(400):
        size, length = len(kind), bytearray()
        inner = b"\x0a" + _varint(size) + kind
        length += _varint(len(inner))
        kind = b"\x22" + bytes(length) + inner
    value = b"\x0a\x01z\x12" + _varint(len(kind)) + kind
    extra = b"\x5a" + _varint(len(value)) + value
    return model([node("Sin", "x")]) + b"\x3a" + _varint(len(extra)) + extra


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def _many() -> Iterator[tuple[str, Any]]:
    names = ["x", *(f"v{index}" for index in range(19_999)), "y"]
    pairs = list(pairwise(names))
    yield "a chain of 20,000", lambda: model([helper.make_node("Sin", [a], [b]) for a, b in pairs])
    yield (
        "20,000 consumers of one value",
        lambda: model(
            [*(helper.make_node("Sin", ["x"], [f"s{i}"]) for i in range(20_000)), node("Add", "s0 s19999")]
        ),
    )
    yield "20,000 Constants", lambda: model(
        [*(helper.make_node("Constant", [], [f"c{i}"], value_float=1.0) for i in range(20_000)),
         *(helper.make_node("Add", [a, f"c{i}"], [b]) for i, (a, b) in enumerate(pairs))]
    )  # fmt: skip
    yield "3,000 Ifs", lambda: model(
        [helper.make_node("If", ["go"], [f"i{index}"], then_branch=_ifs(0), else_branch=_ifs(0))
         for index in range(3000)] + [node("Identity", "i2999")], [X, ("go", BOOL, ())]
    )  # fmt: skip
    yield "300,000 nodes", lambda: model([helper.make_node("Sin", ["x"], [f"s{i}"]) for i in range(300_000)])
    yield "an input of rank 400", partial(model, [node("Sin", "x")], [("x", FLOAT, [1] * 400)])
    yield "5,000 inputs of a node", partial(model, [node("Sum", " ".join(["x"] * 5000))])
    yield (
        "200,000 outputs of a node",
        lambda: model(
            [node("Split", "x", " ".join(f"s{i}" for i in range(200_000)), axis=1), node("Sin", "s0")]
        ),
    )
    yield "an input of 2^40", partial(model, [node("Sin", "x")], [("x", FLOAT, (2**20, 2**20))])
    yield "an input of 2^63", partial(model, [node("Sin", "x")], [("x", FLOAT, (2**63 - 1, 2))])
    yield "an input of -4", partial(model, [node("Sin", "x")], [("x", FLOAT, (-4, 2))])
    yield "an input of nothing", partial(model, [node("Sin", "x")], [("x", FLOAT, (0, 4))], [Y])
