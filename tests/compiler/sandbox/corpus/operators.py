"""Operators with sizes that do not fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.compiler.sandbox.corpus.crafted import (
    FLOAT,
    INT32,
    INT64,
    Crafted,
    X,
    Y,
    ints,
    model,
    node,
    scalar,
)

IMAGE = ("x", FLOAT, (1, 2, 8, 8))
SEQUENCE = ("x", FLOAT, (5, 1, 4))
FAR = 2**31


def crafted() -> Iterator[Crafted]:
    """All of this file."""
    for kind, cases in (
        ("windows", _windows()),
        ("shapes", _shapes()),
        ("com.microsoft", _contributed()),
        ("recurrent and attention", _recurrent()),
        ("selection", _selection()),
        ("trees and tables", _trees()),
    ):
        for name, content in cases:
            yield Crafted(kind, name, content)


def _weights(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def _windows() -> Iterator[tuple[str, Any]]:
    convolutions: dict[str, dict[str, Any]] = {
        "strides 0": {"strides": [0, 0]},
        "strides of 2^31": {"strides": [FAR, FAR]},
        "strides -1": {"strides": [-1, -1]},
        "dilations of 2^31": {"dilations": [FAR, FAR]},
        "pads of 2^31": {"pads": [FAR] * 4},
        "pads of -9": {"pads": [-9] * 4},
        "three pads": {"pads": [1, 1, 1]},
        "group 0": {"group": 0},
        "group 7": {"group": 7},
        "another kernel": {"kernel_shape": [5, 5]},
        "no auto_pad": {"auto_pad": "SIDEWAYS"},
    }
    for name, attributes in convolutions.items():
        yield (
            f"Conv, {name}",
            partial(model, [node("Conv", "x w", **attributes)], [IMAGE], w=_weights(2, 2, 3, 3)),
        )
    yield "Conv of other channels", partial(model, [node("Conv", "x w")], [IMAGE], w=_weights(2, 9, 3, 3))
    yield "Conv without a kernel", partial(model, [node("Conv", "x w")], [IMAGE], w=_weights(2, 2, 0, 3))
    yield (
        "ConvTranspose to 2^40",
        partial(
            model,
            [node("ConvTranspose", "x w", output_shape=[2**20, 2**20])],
            [IMAGE],
            w=_weights(2, 2, 3, 3),
        ),
    )
    pools: dict[str, dict[str, Any]] = {
        "kernel of 2^31": {"kernel_shape": [FAR, FAR]},
        "kernel 0": {"kernel_shape": [0, 0]},
        "kernel -3": {"kernel_shape": [-3, -3]},
        "stride 0": {"kernel_shape": [2, 2], "strides": [0, 0]},
        "pads past it": {"kernel_shape": [2, 2], "pads": [5, 5, 5, 5]},
    }
    for name, attributes in pools.items():
        for op in ("MaxPool", "AveragePool"):
            yield f"{op}, {name}", partial(model, [node(op, "x", **attributes)], [IMAGE])
    yield "LRN of 0", partial(model, [node("LRN", "x", size=0)], [IMAGE])
    yield "LRN of 2^40", partial(model, [node("LRN", "x", size=2**40)], [IMAGE])
    yield "RoiAlign", partial(
        model, [node("RoiAlign", "x r i", output_height=2**20, output_width=2**20, sampling_ratio=2**20)],
        [IMAGE], r=_weights(1, 4), i=ints(77),
    )  # fmt: skip
    yield (
        "Col2Im",
        partial(
            model,
            [node("Col2Im", "x s b")],
            [("x", FLOAT, (1, 4, 9))],
            opset=18,
            s=ints(2**31, 2**31),
            b=ints(2, 2),
        ),
    )
    yield "DeformConv", partial(
        model, [node("DeformConv", "x w o", offset_group=0)], [IMAGE], opset=19, w=_weights(2, 2, 3, 3),
        o=_weights(1, 18, 6, 6),
    )  # fmt: skip


def _shapes() -> Iterator[tuple[str, Any]]:
    for shape in ((-1, -1), (0, 0, 0), (2**32, 2**32), (-7,), (5,)):
        yield f"Reshape to {shape}", partial(model, [node("Reshape", "x s")], s=ints(*shape))
    least = -(2**63)
    yield (
        "Slice of least",
        partial(model, [node("Slice", "x a b c s")], a=ints(least), b=ints(least), c=ints(1), s=ints(least)),
    )
    yield (
        "Slice step 0",
        partial(model, [node("Slice", "x a b c s")], a=ints(0), b=ints(4), c=ints(1), s=ints(0)),
    )
    yield "Slice axis 99", partial(model, [node("Slice", "x a b c")], a=ints(0), b=ints(4), c=ints(99))
    yield "Transpose of one axis", partial(model, [node("Transpose", "x", perm=[0, 0])])
    yield "Transpose of far axes", partial(model, [node("Transpose", "x", perm=[0, 2**40])])
    yield (
        "Split that does not add up",
        partial(model, [node("Split", "x s", "a b", axis=1), node("Add", "a b")], s=ints(-1, 2**62)),
    )
    yield "Squeeze of what is no 1", partial(model, [node("Squeeze", "x a")], a=ints(1))
    yield "Unsqueeze at 2^40", partial(model, [node("Unsqueeze", "x a")], a=ints(2**40))
    yield "Concat of other shapes", partial(model, [node("Concat", "x w", axis=1)], w=_weights(3, 3, 3))
    yield "Concat axis 2^40", partial(model, [node("Concat", "x x", axis=2**40)])
    yield "MatMul of other sizes", partial(model, [node("MatMul", "x w")], w=_weights(7, 7))
    yield "Gemm of rank 4", partial(model, [node("Gemm", "x w")], [IMAGE], w=_weights(7, 7))
    yield (
        "Einsum of 52 axes",
        partial(model, [node("Einsum", "x", equation="".join(map(chr, range(97, 123))))]),
    )
    yield "Einsum that outgrows", partial(
        model, [node("Einsum", "w w w w w w", "e", equation="a,b,c,d,e,f->abcdef"),
                node("ReduceSum", "e", "s"), node("Add", "x s")], w=_weights(400)
    )  # fmt: skip
    yield (
        "BatchNormalization of other sizes",
        partial(model, [node("BatchNormalization", "x w w w w")], [IMAGE], w=_weights(7)),
    )
    yield "Flatten at 99", partial(model, [node("Flatten", "x", axis=99)])
    yield "ReduceSum of axis 2^40", partial(model, [node("ReduceSum", "x a")], a=ints(2**40))
    yield "CumSum of axis 2^40", partial(model, [node("CumSum", "x a")], a=scalar(2**40))
    yield (
        "AffineGrid of 2^40",
        partial(
            model,
            [node("AffineGrid", "x s")],
            [("x", FLOAT, (1, 2, 3))],
            opset=20,
            s=ints(1, 1, 2**20, 2**20),
        ),
    )
    yield "Cast to type 99", partial(model, [node("Cast", "x", to=99)])
    yield "an attribute of another type", partial(model, [node("Softmax", "x", axis="one")])
    yield "too many inputs", partial(model, [node("Sin", "x x x x")])
    yield "no inputs", partial(model, [node("Sin", "")])


def _contributed() -> Iterator[tuple[str, Any]]:
    ours = partial(node, domain="com.microsoft")
    sequence = [("x", FLOAT, (1, 4, 8))]
    for heads in (0, -1, 7, 2**31):
        yield (
            f"Attention of {heads} heads",
            partial(
                model,
                [ours("Attention", "x w b", num_heads=heads)],
                sequence,
                w=_weights(8, 24),
                b=_weights(24),
            ),
        )
    yield "Attention of other sizes", partial(
        model, [ours("Attention", "x w b", num_heads=2, qkv_hidden_sizes=[-8, 2**40, 8])], sequence,
        w=_weights(8, 24), b=_weights(24),
    )  # fmt: skip
    for bits, block in ((4, 0), (4, -32), (77, 32), (4, 2**31)):
        yield (
            f"MatMulNBits of {bits} bits, blocks of {block}",
            partial(
                model, [ours("MatMulNBits", "x w s", K=8, N=2**20, bits=bits, block_size=block)], sequence,
                w=np.ones((4, 1, 16), np.uint8), s=_weights(4),
            ),
        )  # fmt: skip
    yield (
        "FusedConv of nothing",
        partial(model, [ours("FusedConv", "x w", activation="Leap")], [IMAGE], w=_weights(2, 9, 3, 3)),
    )
    yield (
        "SkipLayerNormalization",
        partial(model, [ours("SkipLayerNormalization", "x w g")], sequence, w=_weights(1), g=_weights(3)),
    )
    yield "BiasGelu", partial(model, [ours("BiasGelu", "x b")], sequence, b=_weights(5))
    yield "QuickGelu of NaN", partial(model, [ours("QuickGelu", "x", alpha=float("nan"))], sequence)
    yield "ExpandDims at 2^31", partial(model, [ours("ExpandDims", "x a")], a=scalar(FAR - 1, np.int32))
    yield "EmbedLayerNormalization", partial(
        model, [ours("EmbedLayerNormalization", "i i w w w g g", "y m")], [("i", INT32, (1, 4))],
        w=_weights(2, 8), g=_weights(8),
    )  # fmt: skip
    yield "QLinearAdd by zero", partial(
        model, [node("QuantizeLinear", "x s z", "q"), ours("QLinearAdd", "q n z q n z n z", "a"),
                node("DequantizeLinear", "a s z")],
        s=scalar(1, np.float32), n=scalar(0, np.float32), z=scalar(0, np.uint8),
    )  # fmt: skip
    yield "an operator of no name", partial(model, [ours("Nothing", "x")])


def _recurrent() -> Iterator[tuple[str, Any]]:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}
    for op, count in gates.items():
        for name, hidden, width in (("hidden 0", 0, 4), ("hidden -3", -3, 4), ("hidden 2^31", FAR, 4),
                                    ("other weights", 3, 9)):  # fmt: skip
            yield (
                f"{op}, {name}",
                partial(
                    model, [node(op, "x w r", hidden_size=hidden)], [SEQUENCE],
                    w=_weights(1, 3 * count, width), r=_weights(1, 3 * count, 3),
                ),
            )  # fmt: skip
    fitting = {"w": _weights(1, 12, 4), "r": _weights(1, 12, 3), "b": _weights(1, 24)}
    yield (
        "LSTM, lengths past its end",
        partial(
            model,
            [node("LSTM", "x w r b n", hidden_size=3)],
            [SEQUENCE],
            n=np.array([2**30], np.int32),
            **fitting,
        ),
    )
    yield (
        "LSTM, an activation of no name",
        partial(
            model, [node("LSTM", "x w r b", hidden_size=3, activations=["Leap"] * 3)], [SEQUENCE], **fitting
        ),
    )
    yield (
        "LSTM, both directions of one",
        partial(
            model, [node("LSTM", "x w r b", hidden_size=3, direction="bidirectional")], [SEQUENCE], **fitting
        ),
    )
    for heads in (0, 3, 2**40):
        yield (
            f"Attention of {heads} heads",
            partial(
                model, [node("Attention", "x x x", q_num_heads=heads, kv_num_heads=heads)],
                [("x", FLOAT, (1, 4, 8))], opset=23,
            ),
        )  # fmt: skip


def _selection() -> Iterator[tuple[str, Any]]:
    for k in (2**40, -3, 0, 5):
        yield f"TopK of {k}", partial(model, [node("TopK", "x k", "y i")], k=ints(k))
    yield "TopK at axis 99", partial(model, [node("TopK", "x k", "y i", axis=99)], k=ints(1))
    boxes = [("x", FLOAT, (1, 50, 4)), ("s", FLOAT, (1, 2, 50))]
    out = [("y", INT64, None)]
    for most in (2**62, -1, 0):
        yield (
            f"NonMaxSuppression of {most}",
            partial(model, [node("NonMaxSuppression", "x s m")], boxes, out, m=ints(most)),
        )
    yield (
        "NonMaxSuppression of other scores",
        partial(
            model, [node("NonMaxSuppression", "x s m")], [boxes[0], ("s", FLOAT, (3, 2, 7))], out, m=ints(5)
        ),
    )
    yield "NonMaxSuppression of 4 million boxes", partial(
        model, [node("NonMaxSuppression", "x s m")],
        [("x", FLOAT, (1, 200_000, 4)), ("s", FLOAT, (1, 20, 200_000))], out, m=ints(2**40),
    )  # fmt: skip
    yield (
        "Multinomial of 2^31",
        partial(model, [node("Multinomial", "x", sample_size=FAR - 1)], [X], [("y", INT32, None)]),
    )
    yield "Unique at 99", partial(model, [node("Unique", "x", axis=99)])


def _tree(**changed: Any) -> bytes:
    given = {
        "nodes_treeids": [0, 0, 0],
        "nodes_nodeids": [0, 1, 2],
        "nodes_featureids": [0, 0, 0],
        "nodes_values": [0.5, 0.0, 0.0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
        "n_targets": 1,
        **changed,
    }
    return model([node("TreeEnsembleRegressor", "x", domain="ai.onnx.ml", **given)])


def _trees() -> Iterator[tuple[str, Any]]:
    trees: dict[str, dict[str, Any]] = {
        "a circle": {"nodes_truenodeids": [0, 0, 0]},
        "children that are none": {"nodes_truenodeids": [77, 0, 0]},
        "a feature past the input": {"nodes_featureids": [2**31, 0, 0]},
        "a target past the last": {"target_ids": [0, 2**31]},
        "targets of no tree": {"target_treeids": [9, 9]},
        "2^31 targets": {"n_targets": FAR - 1},
        "no targets": {"n_targets": -1},
        "lists that do not fit": {"nodes_values": [0.5]},
        "a mode of no name": {"nodes_modes": ["LEAP", "LEAF", "LEAF"]},
        "a node twice": {"nodes_nodeids": [0, 1, 1]},
        "negative nodes": {"nodes_nodeids": [-1, -2, -3]},
    }
    for name, changed in trees.items():
        yield f"a tree with {name}", partial(_tree, **changed)
    learned = partial(node, domain="ai.onnx.ml")
    yield (
        "SVMRegressor",
        partial(
            model,
            [
                learned(
                    "SVMRegressor",
                    "x",
                    n_supports=2**31,
                    support_vectors=[1.0],
                    coefficients=[1.0],
                    rho=[0.0],
                )
            ],
        ),
    )
    yield (
        "LinearClassifier",
        partial(
            model,
            [learned("LinearClassifier", "x", "l y", coefficients=[1.0], classlabels_ints=[0, 1, 2])],
            [X],
            [Y],
        ),
    )
    yield "Scaler", partial(model, [learned("Scaler", "x", offset=[1.0, 2.0], scale=[1.0])])
    yield "Imputer", partial(model, [learned("Imputer", "x", imputed_value_floats=[1.0, 2.0, 3.0])])
    yield "OneHotEncoder", partial(model, [learned("OneHotEncoder", "x", cats_int64s=[2**62] * 3, zeros=0)])
