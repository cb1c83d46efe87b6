"""Small graphs for the quantizer: weights from a seed, observations from a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from edgekit.model_file import open_model
from edgekit.node_checks import static_dims
from edgekit.passes import run_passes
from edgekit.quantize.calibrate import observe
from edgekit.quantize.kernels import node_name, rule_of
from edgekit.quantize.numerics import affine, quantize
from edgekit.quantize.observe import Observation
from edgekit.quantize.recipe import Plan, QuantizedWeights, Recipe
from edgekit.quantize.rules import Rules
from edgekit.target import Array

NEAREST = Recipe(ranges="minmax", rounding="nearest", bias_correction=False)


@dataclass
class Graph:
    """Builds one model: ``value = graph("Conv", "x", weight, pads=[1, 1, 1, 1])``."""

    inputs: Mapping[str, Sequence[int]]
    opset: int = 21
    seed: int = 0
    _nodes: list[onnx.NodeProto] = field(default_factory=list)
    _constants: list[onnx.TensorProto] = field(default_factory=list)

    def __call__(self, op: str, *inputs: str | Array, outputs: int = 1, **attributes: Any) -> str:
        """Add a node; arrays become constants. The (first) output is called after the op."""
        name = f"{op.lower()}{len(self._nodes)}"
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        made = [name] + [f"{name}_{k}" for k in range(1, outputs)]
        self._nodes.append(helper.make_node(op, names, made, **attributes))
        return name

    def constant(self, array: Array) -> str:
        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int) -> Array:
        """float32, of about the size that keeps a signal's."""
        self.seed += 1
        rng = np.random.default_rng(self.seed)
        fan = max(int(np.prod(shape)) // shape[0], 1)
        return rng.normal(0, fan**-0.5, shape).astype(np.float32)

    def conv(self, x: str, outputs: int, inputs: int, size: int = 1, groups: int = 1) -> str:
        """A Conv with a bias that keeps height and width."""
        w, b = self.weights(outputs, inputs // groups, size, size), self.weights(outputs)
        return self("Conv", x, w, b, pads=[size // 2] * 4, group=groups)

    def model(self, folder: Path, *outputs: str) -> ir.Model:
        """The canonical graph."""
        given = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in self.inputs.items()]
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self._nodes, "small", given, results, self._constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        path = folder / "small.onnx"
        path.write_bytes(onnx.shape_inference.infer_shapes(proto).SerializeToString())
        model = open_model(path)
        run_passes(model)
        return model


def samples_for(model: ir.Model, count: int = 4) -> list[dict[str, Array]]:
    """Normal noise for every input."""
    rng = np.random.default_rng(1)
    shapes = {str(value.name): static_dims(value) or () for value in model.graph.inputs}
    return [
        {name: rng.normal(0, 1, s).astype(np.float32) for name, s in shapes.items()} for _ in range(count)
    ]


def seen(model: ir.Model) -> dict[str, Observation]:
    return dict(observe(model, samples_for(model)))


def with_weights(model: ir.Model, plan: Plan, rules: Rules) -> Plan:
    """The plan with every weight rounded to nearest, by the largest of its output channel."""
    found = {}
    for node in model.graph:
        rule = rule_of(node, rules)
        if node_name(node) not in plan.nodes or rule is None or rule.weight is None:
            continue
        weight = node.inputs[rule.weight]
        assert weight is not None
        assert weight.const_value is not None
        array = weight.const_value.numpy()
        most = np.abs(array).max() if rule.weight_axis is None else _each(array, rule.weight_axis)
        by = affine(-most, most, "int8", symmetric=True, axis=rule.weight_axis, narrow=True)
        place = rule.bias
        bias = node.inputs[place] if place is not None and place < len(node.inputs) else None
        given = bias.const_value.numpy() if bias is not None and bias.const_value is not None else None
        stored = quantize(array, by)
        found[node_name(node)] = QuantizedWeights(stored, by, None if given is None else given.reshape(-1))
    return Plan(plan.activations, plan.nodes, found)


def _each(array: Array, axis: int) -> Array:
    most: Array = np.abs(np.moveaxis(array, axis, 0)).reshape(array.shape[axis], -1).max(1)
    return most
