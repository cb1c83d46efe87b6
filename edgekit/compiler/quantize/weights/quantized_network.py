"""Runs the quantized network on all samples, up to the next layer whose weights are quantized."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.rewriting import array_of
from edgekit.compiler.quantize.numerics import dequantize, quantize
from edgekit.compiler.quantize.placement.kernels import node_name
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights
from edgekit.compiler.quantize.weights.segments import SampleValues, reads, reads_integers, run_segment
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix
from edgekit.tensor_spec import Array


class Network:
    """Activations of the quantized network, freed after their last consumer.

    Args:
        products: The layers whose inputs will be read, in the graph's order. Only nodes that they depend on
            are run.
    """

    def __init__(
        self,
        model: ir.Model,
        plan: QuantizationPlan,
        products: Sequence[WeightMatrix],
        samples: Sequence[Sample],
    ) -> None:
        self._plan, self._count = plan, len(samples)
        self._index = {node: index for index, node in enumerate(model.graph)}
        read_values = {product.node: [product.input] for product in products}
        self._pending = _leading_to(model, [value for values in read_values.values() for value in values])
        readers: dict[str, list[ir.Node]] = {}
        for node in self._pending:
            for value in reads(node):
                readers.setdefault(str(value.name), []).append(node)
        for node, values in read_values.items():
            for value in values:
                readers.setdefault(str(value.name), []).append(node)
        self._last = {name: max(self._index[node] for node in nodes) for name, nodes in readers.items()}
        # If all consumers read a value through its pair, only the integers are kept.
        self._integers = {
            str(value.name): all(reads_integers(value, reader, plan) for reader in readers[str(value.name)])
            for value in _values(model)
            if str(value.name) in readers
        }
        self._replaced: dict[tuple[str, int], Array] = {}
        self._arrays = self._inputs(model, samples)

    def use(self, product: WeightMatrix, weights: QuantizedWeights) -> None:
        """Use these weights for the node from now on."""
        self._replaced[product.name, product.rule.weight or 0] = dequantize(weights.stored, weights.affine)
        if weights.bias is not None and product.bias_input is not None:
            node, index = product.bias_input
            before = array_of(node.inputs[index]) if index < len(node.inputs) else None
            shape = weights.bias.shape if before is None else before.shape
            self._replaced[node_name(node), index] = weights.bias.reshape(shape)

    def inputs_of(self, product: WeightMatrix) -> tuple[Callable[[int], Array], Affine | None]:
        """Return the input of a layer: a function sample -> array, and the quantization of its integers, or
        None for float inputs.

        Layers must be read in the graph's order, each after :meth:`use` of those before it.
        """
        self._advance(self._index[product.node])
        value = product.input
        stored = self._arrays[str(value.name)]
        affine = (
            self._plan.activations[str(value.name)]
            if reads_integers(value, product.node, self._plan)
            else None
        )
        if affine is None or stored.stored_as is not None:
            return stored.arrays.__getitem__, affine
        return lambda sample: quantize(stored.arrays[sample].astype(np.float32, copy=False), affine), affine

    def mean_outputs(self, product: WeightMatrix, positions: Sequence[Array]) -> Array:
        """float64 [samples, output channels]: the mean of each sample's output at its positions, with the
        weights in use. :meth:`inputs_of` was called for this layer just before.
        """
        name = str(product.node.outputs[0].name)
        outputs = run_segment(
            [product.node],
            self._plan,
            self._replaced,
            self._arrays,
            {name: False},
            self._count,
        )
        sampled = [product.outputs(y)[:, p] for y, p in zip(outputs[name].arrays, positions, strict=True)]
        return np.stack([one.mean(axis=1, dtype=np.float64) for one in sampled])

    def _inputs(self, model: ir.Model, samples: Sequence[Sample]) -> dict[str, SampleValues]:
        inputs = {str(v.name): SampleValues([]) for v in model.graph.inputs if str(v.name) in self._last}
        for name in inputs:
            if self._integers[name]:
                inputs[name] = SampleValues([], self._plan.activations[name])
        for sample in samples:
            for name, one in inputs.items():
                array = sample[name]
                one.arrays.append(array if one.stored_as is None else quantize(array, one.stored_as))
        return inputs

    def _advance(self, end: int) -> None:
        """Run all nodes before an index, and free values without consumers from there on."""
        nodes = [node for node in self._pending if self._index[node] < end]
        if nodes:
            self._pending = self._pending[len(nodes) :]
            names = (str(value.name) for node in nodes for value in node.outputs)
            needed_later = {name: self._integers[name] for name in names if self._last.get(name, -1) >= end}
            self._arrays.update(
                run_segment(nodes, self._plan, self._replaced, self._arrays, needed_later, self._count)
            )
        for name in [name for name in self._arrays if self._last[name] < end]:
            del self._arrays[name]


def _values(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]


def _leading_to(model: ir.Model, values: Collection[ir.Value]) -> list[ir.Node]:
    needed: set[ir.Node] = set()
    pending = [producer for value in values if (producer := value.producer())]
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += [producer for value in reads(node) if (producer := value.producer())]
    return [node for node in model.graph if node in needed]
