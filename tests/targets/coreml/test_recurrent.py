"""LSTM and GRU with constant weights, in every direction, as the reference has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.targets.engine_trial import feeds, load, same_as_reference

pytestmark = [pytest.mark.needs_coreml, pytest.mark.needs_ort]

STEPS, BATCH, SIZE, HIDDEN = 5, 2, 3, 4


def recurrent(
    op: str, direction: str, gates: int, attributes: Mapping[str, Any] = MappingProxyType({})
) -> ir.Model:
    """One layer with biases and an initial state."""
    rng = np.random.default_rng(2)
    ways = 2 if direction == "bidirectional" else 1
    weights = {
        "w": rng.normal(0, 0.5, (ways, gates * HIDDEN, SIZE)),
        "r": rng.normal(0, 0.5, (ways, gates * HIDDEN, HIDDEN)),
        "b": rng.normal(0, 0.5, (ways, 2 * gates * HIDDEN)),
    }
    states = ["h"] if op == "GRU" else ["h", "c"]
    lasts = [f"last_{name}" for name in states]
    node = helper.make_node(
        op, ["x", "w", "r", "b", "", *states], ["y", *lasts], name="layer", hidden_size=HIDDEN,
        direction=direction, **attributes,
    )  # fmt: skip
    state = (ways, BATCH, HIDDEN)
    graph = helper.make_graph(
        [node],
        "recurrent",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (STEPS, BATCH, SIZE)),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in states),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (STEPS, ways, BATCH, HIDDEN)),
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, state) for name in lasts),
        ],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    onnx.checker.check_model(model, full_check=True)
    return ir.from_proto(model)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm(direction: str, tmp_path: Path) -> None:
    model = recurrent("LSTM", direction, 4)
    same_as_reference(model, load(model, "coreml", tmp_path), feeds(model))


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_gru(direction: str, before: int, tmp_path: Path) -> None:
    model = recurrent("GRU", direction, 3, {"linear_before_reset": before})
    same_as_reference(model, load(model, "coreml", tmp_path), feeds(model))


def test_half_precision(tmp_path: Path) -> None:
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        model = recurrent(op, "forward", gates)
        runner = load(model, "coreml", tmp_path / op, "fp16")
        same_as_reference(model, runner, feeds(model), rtol=5e-3)
