"""The reference executor's kernels against coremltools' own numpy value inference, an independent hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edgekit_coreml.interpreter.execute import KERNELS
from edgekit_coreml.vendor import coremltools

from edgekit.tensor_spec import Array
from tests.targets.coreml.running import executor

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

RNG = np.random.default_rng(0)
X: Array = RNG.normal(0, 2, (2, 4, 6, 6)).astype(np.float32)
Y: Array = RNG.normal(0, 2, (2, 4, 6, 6)).astype(np.float32)
P: Array = np.abs(X) + np.float32(0.1)
UNIT: Array = RNG.uniform(-0.9, 0.9, (3, 4)).astype(np.float32)
INTS: Array = RNG.integers(-9, 9, (3, 4)).astype(np.int32)
B: Array = RNG.integers(0, 2, (3, 4)).astype(bool)
ONE = np.float32(1)

UNARY = {
    X.tobytes(): ("abs", "atan", "ceil", "cos", "cosh", "erf", "exp", "floor", "relu", "relu6", "round",
                  "sigmoid", "sign", "sin", "sinh", "softplus", "softsign", "square", "tan", "tanh",
                  "identity"),
    P.tobytes(): ("sqrt",),
    UNIT.tobytes(): ("acos", "asin", "atanh"),
}  # fmt: skip
BINARY = ("add", "sub", "mul", "real_div", "maximum", "minimum", "pow", "mod", "floor_div", "equal",
          "not_equal", "less", "less_equal", "greater", "greater_equal")  # fmt: skip
SCALES: Array = RNG.uniform(0.01, 0.1, 4).astype(np.float32)

CASES: list[tuple[str, dict[str, Any]]] = [
    *((op, {"x": x}) for x, ops in zip((X, P, UNIT), UNARY.values(), strict=True) for op in ops),
    *((op, {"x": P, "y": P[:, :1]}) for op in BINARY),
    *((op, {"x": B, "y": ~B}) for op in ("logical_and", "logical_or", "logical_xor")),
    ("logical_not", {"x": B}),
    ("add", {"x": INTS, "y": INTS[:1]}),
    ("floor_div", {"x": INTS, "y": np.full((3, 4), 3, np.int32)}),
    ("clip", {"x": X, "alpha": np.float32(-1), "beta": ONE}),
    ("elu", {"x": X, "alpha": np.float32(0.7)}),
    ("gelu", {"x": X, "mode": "EXACT"}),
    ("gelu", {"x": X, "mode": "TANH_APPROXIMATION"}),
    ("leaky_relu", {"x": X, "alpha": np.float32(0.1)}),
    ("prelu", {"x": X, "alpha": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}),
    ("sigmoid_hard", {"x": X, "alpha": np.float32(0.2), "beta": np.float32(0.5)}),
    ("threshold", {"x": X, "alpha": np.float32(0.5)}),
    ("log", {"x": P, "epsilon": np.float32(0.01)}),
    ("inverse", {"x": P, "epsilon": np.float32(0.01)}),
    ("rsqrt", {"x": P, "epsilon": np.float32(0.01)}),
    ("cast", {"x": X, "dtype": "int32"}),
    ("cast", {"x": INTS, "dtype": "fp32"}),
    ("select", {"cond": B, "a": UNIT, "b": -UNIT}),
    ("softmax", {"x": X, "axis": 1}),
    *((f"reduce_{kind}", {"x": P, "axes": [1, 3], "keep_dims": keep})
      for kind in ("mean", "sum", "max", "min", "prod", "l1_norm", "l2_norm", "log_sum", "log_sum_exp",
                   "sum_square")
      for keep in (True, False)),
    ("reduce_argmax", {"x": X, "axis": 2, "keep_dims": True}),
    ("reduce_argmin", {"x": X, "axis": 2, "keep_dims": False}),
    ("matmul", {"x": X, "y": Y, "transpose_x": False, "transpose_y": True}),
    ("linear", {"x": UNIT, "weight": UNIT * 2, "bias": np.ones(3, np.float32)}),
    ("reshape", {"x": X, "shape": [2, 4, -1]}),
    ("transpose", {"x": X, "perm": [3, 0, 2, 1]}),
    ("squeeze", {"x": X[:1], "axes": [0]}),
    ("expand_dims", {"x": UNIT, "axes": [0, 3]}),
    ("concat", {"values": (X, Y), "axis": 1}),
    ("stack", {"values": (X, Y), "axis": 1}),
    ("split", {"x": X, "split_sizes": [1, 3], "axis": 1}),
    ("slice_by_index", {"x": X, "begin": [0, 1, 5, 0], "end": [2, 4, 0, 6], "stride": [1, 2, -2, 3],
                        "begin_mask": [True, False, False, False], "end_mask": [False, False, True, False]}),
    ("slice_by_size", {"x": X, "begin": [0, 1, 2, 0], "size": [2, 2, -1, 3]}),
    ("pad", {"x": X, "pad": [1, 2, 0, 3], "mode": "constant", "constant_val": np.float32(7)}),
    ("pad", {"x": X, "pad": [1, 2, 0, 3], "mode": "reflect"}),
    ("pad", {"x": X, "pad": [1, 2, 0, 3], "mode": "replicate"}),
    ("tile", {"x": UNIT, "reps": [2, 3]}),
    ("reverse", {"x": X, "axes": [1, 3]}),
    ("cumsum", {"x": X, "axis": 1, "exclusive": False, "reverse": True}),
    ("cumsum", {"x": X, "axis": 2, "exclusive": False, "reverse": False}),
    ("gather", {"x": X, "indices": np.array([2, 0, 3], np.int32), "axis": 1, "validate_indices": False}),
    ("gather_along_axis", {"x": UNIT, "indices": np.abs(INTS) % 3, "axis": 0, "validate_indices": False}),
    ("band_part", {"x": X, "lower": 1, "upper": 2}),
    ("topk", {"x": X, "k": 2, "axis": 3, "ascending": False}),
    ("argsort", {"x": X, "axis": 1, "ascending": True}),
    ("fill", {"shape": [2, 3], "value": np.float32(3)}),
    ("quantize", {"input": X, "scale": np.float32(0.03), "output_dtype": "int8", "zero_point": np.int8(5)}),
    ("quantize", {"input": X, "scale": SCALES, "output_dtype": "uint8", "axis": 1,
                  "zero_point": np.array([1, 2, 3, 128], np.uint8)}),
]  # fmt: skip


def _oracle(op: str, operands: dict[str, Any]) -> list[Array]:
    """What coremltools' value inference says."""
    tools = coremltools()
    from coremltools.converters.mil.mil import Builder, Function

    with Function({"unused": Builder.placeholder(shape=(1,))}, opset_version=tools.target.iOS17):
        made = getattr(Builder, op)(**operands)
    outputs = list(made) if isinstance(made, (tuple, list)) else [made]
    assert all(one.val is not None for one in outputs), f"coremltools infers no value of {op}"
    return [np.asarray(one.val) for one in outputs]


@pytest.mark.parametrize(("op", "operands"), CASES, ids=[f"{n}-{op}" for n, (op, _) in enumerate(CASES)])
def test_as_coremltools_infers(op: str, operands: dict[str, Any], tmp_path: Path) -> None:
    expected = _oracle(op, operands)
    names = {
        key: value for key, value in operands.items() if isinstance(value, np.ndarray) and value.size > 8
    }
    constant = {"scale", "alpha", "beta", "zero_point", "weight", "bias"}
    feeds = {name: array for name, array in names.items() if name not in constant}
    if op in ("concat", "stack"):
        feeds = {"first": operands["values"][0], "second": operands["values"][1]}
    if op == "fill":
        feeds = {"unused": UNIT}

    def make(builder: Any, inputs: Any) -> Any:
        given = {key: inputs[key] if key in feeds else value for key, value in operands.items()}
        for key, value in given.items():
            if key in feeds and feeds[key].dtype.kind == "b":  # booleans do not cross the interface
                given[key] = builder.cast(x=value, dtype="bool")
        if op in ("concat", "stack"):
            given["values"] = (inputs["first"], inputs["second"])
        made = getattr(builder, op)(**given)
        if op == "fill":
            return builder.add(x=made, y=builder.reduce_max(x=inputs["unused"], keep_dims=False))
        if not isinstance(made, (tuple, list)) and expected[0].dtype.kind in "bu":
            return builder.cast(x=made, dtype="int32")
        return made

    stored = {n: a.astype(np.int32) if a.dtype.kind in "bu" else np.asarray(a) for n, a in feeds.items()}
    ready = executor(make, stored, tmp_path)
    got = list(ready.run(stored).values())
    if op == "fill":
        expected = [expected[0] + UNIT.max()]
    for one, other in zip(expected, got, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(other.astype(np.float64), one.astype(np.float64), rtol=2e-5, atol=1e-6)


def test_enough_kernels_are_checked() -> None:
    checked = {op for op, _ in CASES}
    assert checked <= set(KERNELS)
    assert len(checked) >= 75
