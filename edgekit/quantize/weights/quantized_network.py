"""The quantized network on all samples side by side, run as far as the next weights need it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import onnx_ir as ir

from edgekit.evaluate.samples import Sample
from edgekit.model.rewriting import array_of
from edgekit.quantize.numerics import dequantize, quantize
from edgekit.quantize.placement.kernels import node_name
from edgekit.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights
from edgekit.quantize.weights.segments import Kept, reads, reads_integers, run_stretch
from edgekit.quantize.weights.weight_matrix import WeightMatrix
from edgekit.tensors import Array


class Network:
    """Activations of the quantized network, freed after their last reader.

    Args:
        model: The canonical float graph.
        plan: Where the pairs stand.
        products: The nodes whose inputs will be asked for, in the graph's order. Only what leads to them is
            computed.
        samples: What the network is run on.
        threads: Threads of one run.
    """

    def __init__(
        self,
        model: ir.Model,
        plan: QuantizationPlan,
        products: Sequence[WeightMatrix],
        samples: Sequence[Sample],
        threads: int = 1,
    ) -> None:
        self._plan, self._threads, self._count = plan, threads, len(samples)
        self._place = {node: place for place, node in enumerate(model.graph)}
        asked = {product.node: [product.input] for product in products}
        self._ahead = _leading_to(model, [value for values in asked.values() for value in values])
        readers: dict[str, list[ir.Node]] = {}
        for node in self._ahead:
            for value in reads(node):
                readers.setdefault(str(value.name), []).append(node)
        for node, values in asked.items():
            for value in values:
                readers.setdefault(str(value.name), []).append(node)
        self._last = {name: max(self._place[node] for node in nodes) for name, nodes in readers.items()}
        # Of a value that all read behind its pair, the integers are enough.
        self._integers = {
            str(value.name): all(reads_integers(value, reader, plan) for reader in readers[str(value.name)])
            for value in _values(model)
            if str(value.name) in readers
        }
        self._replaced: dict[tuple[str, int], Array] = {}
        self._kept = self._inputs(model, samples)

    def use(self, product: WeightMatrix, weights: QuantizedWeights) -> None:
        """From now on the node computes with these weights."""
        self._replaced[product.name, product.rule.weight or 0] = dequantize(weights.stored, weights.affine)
        if weights.bias is not None and product.bias_at is not None:
            node, place = product.bias_at
            before = array_of(node.inputs[place]) if place < len(node.inputs) else None
            shape = weights.bias.shape if before is None else before.shape
            self._replaced[node_name(node), place] = weights.bias.reshape(shape)

    def inputs_of(self, product: WeightMatrix) -> tuple[Callable[[int], Array], Affine | None]:
        """What a product reads: sample -> its input, as the integers of the pair that is returned too, or as
        floats where it has none.

        Products are asked for in the graph's order, each after those before it are in use.
        """
        self._advance(self._place[product.node])
        value = product.input
        kept = self._kept[str(value.name)]
        by = (
            self._plan.activations[str(value.name)]
            if reads_integers(value, product.node, self._plan)
            else None
        )
        if by is None or kept.stored_as is not None:
            return kept.arrays.__getitem__, by
        return lambda sample: quantize(kept.arrays[sample].astype(np.float32, copy=False), by), by

    def mean_outputs(self, product: WeightMatrix, positions: Sequence[Array]) -> Array:
        """float64 [samples, output channels]: the mean of each sample's output at its positions, with the
        weights in use. The product's input was asked for just before.
        """
        name = str(product.node.outputs[0].name)
        made = run_stretch(
            [product.node], self._plan, self._replaced, self._kept, {name: False}, self._count, self._threads
        )
        at = [product.outputs(y)[:, p] for y, p in zip(made[name].arrays, positions, strict=True)]
        return np.stack([one.mean(axis=1, dtype=np.float64) for one in at])

    def _inputs(self, model: ir.Model, samples: Sequence[Sample]) -> dict[str, Kept]:
        kept = {str(v.name): Kept([]) for v in model.graph.inputs if str(v.name) in self._last}
        for name in kept:
            if self._integers[name]:
                kept[name] = Kept([], self._plan.activations[name])
        for sample in samples:
            for name, one in kept.items():
                array = sample[name]
                one.arrays.append(array if one.stored_as is None else quantize(array, one.stored_as))
        return kept

    def _advance(self, end: int) -> None:
        """Run everything before a place in the graph, and forget what nobody reads from there on."""
        nodes = [node for node in self._ahead if self._place[node] < end]
        if nodes:
            self._ahead = self._ahead[len(nodes) :]
            made = (str(value.name) for node in nodes for value in node.outputs)
            wanted = {name: self._integers[name] for name in made if self._last.get(name, -1) >= end}
            self._kept.update(
                run_stretch(nodes, self._plan, self._replaced, self._kept, wanted, self._count, self._threads)
            )
        for name in [name for name in self._kept if self._last[name] < end]:
            del self._kept[name]


def _values(model: ir.Model) -> list[ir.Value]:
    return [*model.graph.inputs, *(value for node in model.graph for value in node.outputs)]


def _leading_to(model: ir.Model, values: Collection[ir.Value]) -> list[ir.Node]:
    """The nodes that these values depend on, in the graph's order."""
    needed: set[ir.Node] = set()
    ahead = [producer for value in values if (producer := value.producer())]
    while ahead:
        node = ahead.pop()
        if node not in needed:
            needed.add(node)
            ahead += [producer for value in reads(node) if (producer := value.producer())]
    return [node for node in model.graph if node in needed]
