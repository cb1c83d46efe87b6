"""Values that processors trap on, or that lead kernels out of their memory."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.compiler.sandbox.corpus.crafted import (
    FLOAT,
    INT32,
    INT64,
    UINT8,
    Crafted,
    X,
    Y,
    all_constant,
    floats,
    ints,
    model,
    node,
    scalar,
)

LEAST = {"int32": -(2**31), "int64": -(2**63)}


def crafted() -> Iterator[Crafted]:
    """All of this file."""
    for kind, cases in (
        ("integer division", _divisions()),
        ("scales", _scales()),
        ("indices", _indices()),
        ("signals", _signals()),
    ):
        for name, content in cases:
            yield Crafted(kind, name, content)


def _divisions() -> Iterator[tuple[str, Any]]:
    for op in ("Div", "Mod"):
        for dtype, least in LEAST.items():
            for name, pair in (("by zero", (7, 0)), ("least by -1", (least, -1))):
                a, b = (np.full((1, 4), value, dtype) for value in pair)
                yield f"{op} {dtype} {name}, constants", partial(all_constant, op, a=a, b=b)
        yield (
            f"{op} by a zero divisor at run time",
            partial(
                model,
                [node(op, "x z")],
                [("x", INT64, (1, 4))],
                [("y", INT64, (1, 4))],
                z=ints(0, 0, 0, 0),
            ),
        )
        yield (
            f"{op} by a computed zero",
            partial(
                model,
                [node("Sub", "x x", "z"), node(op, "x z")],
                [("x", INT32, (1, 4))],
                [("y", INT32, (1, 4))],
            ),
        )
    yield (
        "least by -1 at run time",
        partial(
            model,
            [node("Mul", "x zero", "z"), node("Add", "z least", "l"), node("Div", "l minus")],
            [("x", INT64, (1, 1))],
            [("y", INT64, (1, 1))],
            zero=ints(0), least=ints(LEAST["int64"]), minus=ints(-1),
        ),
    )  # fmt: skip
    yield "BitShift by 300", partial(
        model, [node("BitShift", "x s", direction="LEFT")], [("x", UINT8, (4,))], [("y", UINT8, (4,))],
        s=np.full(4, 255, np.uint8),
    )  # fmt: skip
    yield "Pow int of -1", partial(all_constant, "Pow", a=ints(0, 2), b=ints(-1, 2**62))
    yield (
        "Cast of inf to int",
        partial(all_constant, "Cast", attributes={"to": INT64}, a=floats(np.inf, np.nan, -1e38)),
    )


def _scales() -> Iterator[tuple[str, Any]]:
    for name, value in (("NaN", np.nan), ("zero", 0), ("negative", -1), ("inf", np.inf), ("tiny", 1e-45)):
        given = {"s": scalar(value, np.float32), "z": scalar(3, np.uint8)}
        yield (
            f"QuantizeLinear scale {name}",
            partial(
                model, [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z")], **given
            ),
        )
        yield (
            f"DequantizeLinear scale {name}, constant",
            partial(all_constant, "DequantizeLinear", a=np.full((2, 2), 3, np.uint8), **given),
        )
    yield "per channel, too few scales", partial(
        model, [node("QuantizeLinear", "x s z", "q", axis=1), node("DequantizeLinear", "q s z", axis=1)],
        s=floats(1, 2), z=np.zeros(2, np.uint8),
    )  # fmt: skip
    for size in (0, -1, 2**62):
        yield (
            f"DequantizeLinear block size {size}",
            partial(
                all_constant, "DequantizeLinear", opset=21, attributes={"axis": 1, "block_size": size},
                a=np.ones((2, 4), np.uint8), s=np.ones((2, 2), np.float32),
            ),
        )  # fmt: skip
    yield "QLinearMatMul scale NaN", partial(
        model, [node("QuantizeLinear", "x s z", "q"), node("QLinearMatMul", "q s z w n z s z", "m"),
                node("DequantizeLinear", "m s z")],
        s=scalar(1, np.float32), n=scalar(np.nan, np.float32), z=scalar(0, np.uint8),
        w=np.ones((4, 4), np.uint8),
    )  # fmt: skip
    yield "QLinearConv scale zero", partial(
        model, [node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z w n z s z", "m"),
                node("DequantizeLinear", "m s z")], [("x", FLOAT, (1, 1, 4, 4))],
        s=scalar(1, np.float32), n=scalar(0, np.float32), z=scalar(0, np.uint8),
        w=np.ones((1, 1, 2, 2), np.uint8),
    )  # fmt: skip


def _indices() -> Iterator[tuple[str, Any]]:
    data = np.ones((4, 4), np.float32)
    for far in (9, -9, 2**40, LEAST["int64"]):
        yield f"Gather {far}, constants", partial(all_constant, "Gather", d=data, i=ints(far))
        yield f"Gather {far}", partial(model, [node("Gather", "x i", axis=1)], i=ints(0, far))
        yield f"GatherND {far}, constants", partial(all_constant, "GatherND", d=data, i=ints(far, far))
        yield (
            f"ScatterND {far}",
            partial(model, [node("ScatterND", "x i u")], i=ints(0, far), u=scalar(1, np.float32)),
        )
    index = np.full((1, 4), 77, np.int64)
    yield "GatherElements", partial(model, [node("GatherElements", "x i", axis=1)], i=index)
    yield (
        "ScatterElements",
        partial(model, [node("ScatterElements", "x i u", axis=1)], i=index, u=np.ones((1, 4), np.float32)),
    )
    yield "GatherND of an input", partial(model, [node("GatherND", "x i")], [X, ("i", INT64, (3, 2))], [Y])
    yield "GatherND batch_dims 9", partial(model, [node("GatherND", "x i", batch_dims=9)], i=ints(0))
    yield "Gather axis 7", partial(model, [node("Gather", "x i", axis=7)], i=ints(0))
    yield (
        "ArrayFeatureExtractor",
        partial(model, [node("ArrayFeatureExtractor", "x i", domain="ai.onnx.ml")], i=ints(2**40)),
    )
    yield (
        "ReverseSequence lengths",
        partial(model, [node("ReverseSequence", "x n", batch_axis=0, time_axis=1)], n=ints(2**40)),
    )
    yield "MaxUnpool", partial(
        model, [node("MaxUnpool", "x i", kernel_shape=[2, 2])], [("x", FLOAT, (1, 1, 2, 2))],
        i=np.full((1, 1, 2, 2), 2**50, np.int64),
    )  # fmt: skip
    yield "Compress", partial(model, [node("Compress", "x c", axis=1)], c=np.ones(99, bool))


def _signals() -> Iterator[tuple[str, Any]]:
    signal = [("x", FLOAT, (1, 8, 1))]
    for length in (0, -1, 2**31, 2**62):
        yield f"DFT of {length}", partial(model, [node("DFT", "x n", axis=1)], signal, n=scalar(length))
        yield f"HannWindow {length}", partial(all_constant, "HannWindow", n=scalar(length))
    yield "HammingWindow 2^40", partial(all_constant, "HammingWindow", n=scalar(2**40))
    yield "BlackmanWindow -5", partial(all_constant, "BlackmanWindow", n=scalar(-5))
    yield "DFT axis 40", partial(model, [node("DFT", "x", axis=40)], signal)
    yield (
        "DFT of two parts, onesided inverse",
        partial(model, [node("DFT", "x", axis=1, inverse=1, onesided=1)], signal),
    )
    for step, length in ((0, 4), (-1, 4), (1, 0), (1, 2**40), (2**62, 4)):
        yield (
            f"STFT step {step}, length {length}",
            partial(model, [node("STFT", "x s - n")], signal, s=scalar(step), n=scalar(length)),
        )
    yield (
        "MelWeightMatrix of 2^40 bins",
        partial(
            all_constant, "MelWeightMatrix", b=scalar(2**40), n=scalar(2**40), r=scalar(8000),
            low=scalar(0, np.float32), high=scalar(4000, np.float32),
        ),
    )  # fmt: skip
