"""Placement of a target's int8 rounding in a network, for quantization-aware training.

canonical graph + samples -> the target's own placement, scales from observed ranges
training graph: float weights, Q/DQ pairs at the activations; weights are rounded as they are read
trained weights and scales -> the Q/DQ graph that the target compiles as it is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.quantize.numerics import dequantize, stored_range
from edgekit.compiler.quantize.observe.calibrate import observe
from edgekit.compiler.quantize.observe.observers import Observation
from edgekit.compiler.quantize.placement.kernels import find_kernels, node_name, rule_of
from edgekit.compiler.quantize.placement.placement_presets import floats_of, rules_of
from edgekit.compiler.quantize.placement.qdq_graph import emit
from edgekit.compiler.quantize.placement.qdq_placement import place, prescribed_values
from edgekit.compiler.quantize.placement.rewrites import rewritten
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, Recipe
from edgekit.compiler.quantize.weights.optimize_weights import optimize, to_nearest
from edgekit.compiler.quantize.weights.segments import reads_integers
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix, product_of
from edgekit.errors import UsageError
from edgekit.target.build_target import resolve
from edgekit.target.installed_profiles import find_profile
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

DEFAULT = Recipe()
NEAREST = Recipe(rounding="nearest", bias_correction=False)
"""Weights are trained to be rounded like this; GPTQ and bias correction would move them once more."""


@dataclass(frozen=True, eq=False)
class Int8Placement:
    """Positions of rounding in a target's int8 form of one network.

    Attributes:
        model: The canonical float graph after the target's rewrites.
        plan: The quantized activations and nodes, without weights.
    """

    model: ir.Model
    rules: Rules
    plan: QuantizationPlan

    def training_graph(self) -> ir.Model:
        """Return the graph with Q/DQ pairs at the activations, and float weights under their own names."""
        return emit(self.model, self.plan, self.rules, float_weights=True)

    @cached_property
    def scales(self) -> dict[str, tuple[str, ...]]:
        """Return groups of values that share one trainable scale, by the first value of each group."""
        fixed = prescribed_values(self.model, self.plan, self.rules)
        shared: dict[int, list[str]] = {}
        for name, affine in self.plan.activations.items():
            if name not in fixed:
                shared.setdefault(id(affine), []).append(name)
        return {names[0]: tuple(names) for names in shared.values()}

    @cached_property
    def products(self) -> dict[str, WeightMatrix]:
        """Return the nodes with weights that run in int8, by the name of the constant."""
        matrices: dict[str, WeightMatrix] = {}
        for node in self.model.graph:
            rule = rule_of(node, self.rules) if node_name(node) in self.plan.nodes else None
            product = product_of(node, rule)
            if product is not None and rule is not None and rule.weight is not None:
                weights = node.inputs[rule.weight]
                assert weights is not None
                matrices[str(weights.name)] = product
        return matrices

    def rounded(self, name: str, weights: Array) -> Array:
        """Round weights to the values that int8 multiplies by.

        Args:
            name: Name of the constant: a key of ``products``.
            weights: Weights, float32, in the layout of the node.

        Returns:
            Rounded weights, float32, in the same shape.
        """
        product = replace(self.products[name], weights=weights)
        nearest = to_nearest(product, self._stored_as(product), self.rules)
        return dequantize(nearest.stored, nearest.affine)

    def _stored_as(self, product: WeightMatrix) -> Affine | None:
        reads = reads_integers(product.input, product.node, self.plan)
        return self.plan.activations[str(product.input.name)] if reads else None

    @cached_property
    def zero_points(self) -> tuple[str, ...]:
        """Return the keys of ``scales`` with a trainable zero point: it is not 0, and within the range.

        A zero point of 0 follows from the target's rules, or is as good. One at an end of the range means
        that no value is below 0 (or above), e.g. after a Relu. Centring subtracts a constant of the graph.
        """
        if self.rules.centred:
            return ()
        return tuple(key for key in self.scales if _is_inside(self.plan.activations[key]))

    def quantized(
        self,
        trained: Mapping[str, Array],
        scales: Mapping[str, Array],
        zero_points: Mapping[str, Array] = MappingProxyType({}),
    ) -> ir.Model:
        """Return the Q/DQ graph with trained constants and scales, in the form that a build reads.

        Args:
            trained: Name of a constant -> its float32 array; other constants are unchanged.
            scales: Key of ``scales`` -> float32, in the shape of the plan's; other scales are unchanged.
            zero_points: Key of ``zero_points`` -> integer; other zero points are unchanged.
        """
        model = self.model.clone()
        for name, array in trained.items():
            model.graph.initializers[name].const_value = ir.Tensor(np.ascontiguousarray(array, np.float32))
        activations = dict(self.plan.activations)
        for key, values in self.scales.items():
            for name in values if key in scales or key in zero_points else ():
                affine = activations[name]
                scale = np.asarray(scales.get(key, affine.scale), np.float32)
                zero = np.asarray(zero_points.get(key, affine.zero_point), affine.zero_point.dtype)
                activations[name] = replace(affine, scale=scale, zero_point=zero)
        plan = QuantizationPlan(activations, self.plan.nodes)
        return emit(model, optimize(model, plan, self.rules, (), NEAREST), self.rules)


def _is_inside(affine: Affine) -> bool:
    if affine.scale.ndim or not int(affine.zero_point):
        return False
    low, high = stored_range(affine.dtype)
    return bool(low < int(affine.zero_point) < high)


def place_int8(model: ir.Model, target: str, samples: Sequence[Sample]) -> Int8Placement:
    """Return the placement that a build for the target measures first, with ranges of observed samples.

    Args:
        model: The canonical model with float weights. It is not changed.
        samples: Calibration inputs by name, 16 or more.

    Raises:
        UsageError: the target has no int8, or computes no part of the model on integers.
        ProfileError: the target does not exist.
        SampleError, ModelError: see :func:`~edgekit.compiler.quantize.observe.calibrate.observe`.
    """
    rules = resolve(find_profile(target)).rules
    if rules is None:
        raise UsageError(f"{target} does not support int8, so the model cannot be trained for it")
    placement = place_candidate(model, observe(model, samples), rules, rules.placements[0])
    if not placement.plan.nodes:
        raise UsageError(f"{target} runs no node of this model on integers, so there is nothing to train for")
    return placement


def place_candidate(
    model: ir.Model,
    observations: Mapping[str, Observation],
    rules: Rules,
    placement: str,
    recipe: Recipe = DEFAULT,
    floats: frozenset[str] = frozenset(),
) -> Int8Placement:
    """Return the placement of one candidate of a search.

    Args:
        model: The canonical model with float weights. It is not changed.
        placement: One of ``rules.placements``.
    """
    placement_rules = rules_of(placement, rules)
    left = floats | floats_of(placement, find_kernels(model, placement_rules))
    graph, observed = rewritten(model, observations, rules, left)
    return Int8Placement(graph, placement_rules, place(graph, placement_rules, observed, recipe, left))
