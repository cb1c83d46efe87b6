"""Rules + observations -> plan: which values of the canonical graph are quantized, with which scales."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
import onnx_ir as ir

from edgekit.compiler.lowering.byte_pairs import bytes_below
from edgekit.compiler.model.rewriting import array_of, float_of
from edgekit.compiler.quantize.numerics import (
    affine,
    channel_affine,
    channel_noise,
    choose_range,
    with_bytes_as,
)
from edgekit.compiler.quantize.observe.observers import Observation, pool
from edgekit.compiler.quantize.placement.kernels import (
    Groups,
    Kernel,
    find_kernels,
    is_depthwise,
    node_name,
    silu_of,
)
from edgekit.compiler.quantize.placement.output_ranges import kernels_of_unlike_outputs
from edgekit.compiler.quantize.placement.zero_centring import can_center
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, Recipe
from edgekit.target.quant_rules import Dtype, Rules
from edgekit.tensor_spec import Array

RangeCache = dict[tuple[object, ...], Affine]
"""Ranges chosen for earlier plans with the same observations; ``place`` adds to it."""


def place(
    model: ir.Model,
    rules: Rules,
    observations: Mapping[str, Observation],
    recipe: Recipe,
    float_nodes: Collection[str] = frozenset(),
    range_cache: RangeCache | None = None,
) -> QuantizationPlan:
    """Decide which values are quantized, and with which scales.

    A pair is placed before each kernel and, if its rule says so, after it; none within. The inputs and
    outputs of a data-movement op share one scale, and the output of a kernel with a fixed scale uses that
    scale, so no engine has to requantize. Nodes after the last kernel with weights stay float, unless
    ``rules.outputs``; so do kernels that would lose channels of an output. With ``rules.centred``, values
    whose consumers all allow it get a zero point although the target requires 0: ``emit`` subtracts a
    constant from them.

    Args:
        observations: Observations by value name. Nodes of unobserved or non-finite values stay float.
        float_nodes: Names (first outputs) of nodes to keep in float.
        range_cache: Ranges of earlier plans; choosing ranges takes most of the time.

    Returns:
        A plan without weights; empty if no node runs in int8.
    """

    def storable(value: ir.Value) -> bool:
        stats = observations.get(str(value.name))
        return array_of(value) is not None or (
            stats is not None and bool(np.isfinite(stats.low).all() and np.isfinite(stats.high).all())
        )

    range_cache = {} if range_cache is None else range_cache
    floats = set(float_nodes)
    while True:
        kernels = find_kernels(model, rules, floats, storable)
        groups = _groups(kernels)
        rejected = _conflicting(kernels, groups, rules)
        activations = {} if rejected else _affines(kernels, groups, rules, observations, recipe, range_cache)
        act = rules.channel_noise.act if rules.channel_noise else "split"
        noisy = {} if act == "split" else _noisy(kernels, groups, activations, observations, rules)
        if act == "float":
            readers = [reader for readers in noisy.values() for reader in readers]
            rejected |= {reader.name for reader in readers} | _producers(readers, kernels)
        if rules.channel_noise and activations:
            rejected |= _noisy_producers(kernels, activations, observations, rules.channel_noise.above)
        if not rules.integers:
            rejected |= kernels_of_unlike_outputs(model, kernels, activations, observations, _curve_after)
        if not rejected:
            break
        floats |= rejected
    activations.update({name: channel_affine(observations[name], rules.activations) for name in noisy})
    nodes = frozenset(node_name(node) for kernel in kernels for node in kernel.nodes)
    return QuantizationPlan(activations, nodes)


def stored_values(kernels: Sequence[Kernel]) -> dict[str, ir.Value]:
    """Return the values that get a pair: kernels' inputs, and outputs only produced as integers."""
    stored: dict[str, ir.Value] = {}
    for kernel in kernels:
        written = () if kernel.rule.output == "asked" else kernel.outputs
        stored.update({str(value.name): value for value in (*kernel.inputs, *written)})
    return stored


def prescribed_values(model: ir.Model, plan: QuantizationPlan, rules: Rules) -> frozenset[str]:
    """Return the values whose scale must not change: a kernel prescribes it, or they are constants."""
    floats = [node_name(node) for node in model.graph if node_name(node) not in plan.nodes]
    kernels = find_kernels(model, rules, floats)
    fixed = {id(plan.activations[name]) for name in _fixed(kernels, rules) if name in plan.activations}
    constants = {name for name, value in stored_values(kernels).items() if array_of(value) is not None}
    return frozenset(n for n, params in plan.activations.items() if id(params) in fixed or n in constants)


def _groups(kernels: Sequence[Kernel]) -> Groups:
    groups = Groups()
    for kernel in kernels:
        if kernel.rule.output == "inputs":
            groups.join([str(value.name) for value in (*kernel.inputs, *kernel.outputs)])
    return groups


def _fixed(kernels: Sequence[Kernel], rules: Rules) -> dict[str, tuple[float, int]]:
    """Map each value to the scale and zero point that its kernel prescribes, or that bytes have."""
    read = {} if rules.symmetric else {str(v.name): bytes_below(v) for k in kernels for v in k.inputs}
    return {name: (1.0, source[1] - 128) for name, source in read.items() if source is not None} | {
        str(value.name): kernel.rule.fixed
        for kernel in kernels
        if kernel.rule.output == "fixed" and kernel.rule.fixed is not None
        for value in kernel.outputs
    }


def _conflicting(kernels: Sequence[Kernel], groups: Groups, rules: Rules) -> set[str]:
    """Return data-movement ops that would join a fixed scale with values that cannot have it."""
    fixed = _fixed(kernels, rules)
    movement_outputs = {str(v.name) for k in kernels if k.rule.output == "inputs" for v in k.outputs}
    sources: dict[str, set[tuple[float, int] | None]] = {}
    for name in stored_values(kernels):
        if name not in movement_outputs:
            sources.setdefault(groups.root(name), set()).add(fixed.get(name))
    conflicting = {root for root, scales in sources.items() if len(scales) > 1 and scales != {None}}
    return {
        kernel.name
        for kernel in kernels
        if kernel.rule.output == "inputs"
        and len(kernel.inputs) > 1
        and groups.root(str(kernel.outputs[0].name)) in conflicting
    }


def _affines(
    kernels: Sequence[Kernel],
    groups: Groups,
    rules: Rules,
    observations: Mapping[str, Observation],
    recipe: Recipe,
    range_cache: RangeCache,
) -> dict[str, Affine]:
    fixed = _fixed(kernels, rules)
    members: dict[str, list[ir.Value]] = {}
    for name, value in stored_values(kernels).items():
        members.setdefault(groups.root(name), []).append(value)
    affines: dict[str, Affine] = {}
    for values in members.values():
        scales = [fixed[str(value.name)] for value in values if str(value.name) in fixed]
        if scales:
            one = _fixed_affine(scales[0], rules)
        elif all(array_of(value) is not None for value in values):
            one = _constant_affine(values, rules)
        else:
            after = _curve_after(values[0]) if len(values) == 1 else None
            observed = tuple(_observation(value, observations) for value in values)
            symmetric = rules.symmetric and not (rules.centred and can_center(values, kernels))
            dtype: Dtype = "int8" if rules.activations == "uint8" else rules.activations  # for all targets
            key = (observed, recipe.ranges, dtype, symmetric, after)
            if key not in range_cache:
                one_tensor = pool(observed) if len(observed) > 1 else observed[0]
                range_cache[key] = choose_range(one_tensor, recipe.ranges, dtype, symmetric, after)
            one = range_cache[key]
            one = with_bytes_as(one, rules.activations) if dtype == "int8" else one
        affines.update({str(value.name): one for value in values})
    return affines


def _fixed_affine(fixed: tuple[float, int], rules: Rules) -> Affine:
    limits = np.iinfo(rules.activations)
    steps = 2 ** (limits.bits - 8)
    zero_point = limits.min + (fixed[1] + 128) * steps
    return Affine(
        np.array(fixed[0] / steps, np.float32), np.array(zero_point, rules.activations), rules.activations
    )


def _constant_affine(values: Sequence[ir.Value], rules: Rules) -> Affine:
    arrays = [array for value in values if (array := array_of(value)) is not None]
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    return affine(low, high, rules.activations, rules.symmetric)


def _observation(value: ir.Value, observations: Mapping[str, Observation]) -> Observation:
    array = array_of(value)
    if array is None:
        return observations[str(value.name)]
    flat = array.reshape(-1, 1)
    return Observation(flat.min(0), flat.max(0), flat, None, len(flat))


def _noisy(
    kernels: Sequence[Kernel],
    groups: Groups,
    activations: Mapping[str, Affine],
    observations: Mapping[str, Observation],
    rules: Rules,
) -> dict[str, list[Kernel]]:
    """Map values whose channels cannot share one scale to their consumers, if all are depthwise."""
    assert rules.channel_noise is not None
    sizes: dict[str, int] = {}
    for name in activations:
        sizes[groups.root(name)] = sizes.get(groups.root(name), 0) + 1
    readers: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        for value in kernel.inputs:
            readers.setdefault(str(value.name), []).append(kernel)
    return {
        name: reading
        for name, reading in readers.items()
        if all(is_depthwise(kernel.nodes[0]) for kernel in reading)
        and sizes[groups.root(name)] == 1
        and name in activations
        and channel_noise(observations[name], activations[name]) > rules.channel_noise.above
    }


def _noisy_producers(
    kernels: Sequence[Kernel],
    activations: Mapping[str, Affine],
    observations: Mapping[str, Observation],
    above: float,
) -> set[str]:
    """Return kernels that can only write integers, whose output's channels cannot share one scale, and whose
    only readers are depthwise Convs in float, directly or after an activation."""
    read = {str(value.name) for kernel in kernels for value in kernel.inputs}
    return {
        kernel.name
        for kernel in kernels
        if kernel.rule.output == "own"
        for value in kernel.outputs
        if str(value.name) in activations
        and str(value.name) not in read
        and _is_read_by_depthwise(value)
        and channel_noise(observations[str(value.name)], activations[str(value.name)]) > above
    }


def _is_read_by_depthwise(value: ir.Value) -> bool:
    silu = silu_of(value)
    readers = {use.node for use in (silu[1].outputs[0] if silu else value).uses()}
    after = [reader for reader in readers if reader.op_type in CURVES and not reader.domain]
    direct = readers - set(after)
    return (
        bool(readers)
        and not value.is_graph_output()
        and all(is_depthwise(reader) for reader in direct)
        and all(_is_read_by_depthwise(reader.outputs[0]) for reader in after)
    )


def _producers(readers: Sequence[Kernel], kernels: Sequence[Kernel]) -> set[str]:
    owners = {node: kernel.name for kernel in kernels for node in kernel.nodes}
    producers: set[str] = set()
    pending = [value.producer() for reader in readers for value in reader.inputs]
    visited: set[ir.Node] = set()
    while pending:
        node = pending.pop()
        if node in owners:
            producers.add(owners[node])
        elif node is not None and node not in visited:
            visited.add(node)
            pending += [value.producer() for value in node.inputs if value is not None]
    return producers


def _curve_after(value: ir.Value) -> Curve | None:
    """Return the activation that is a value's only consumer; range errors are measured after it."""
    if silu_of(value):
        return Curve("Silu")
    users = {use.node for use in value.uses()}
    if len(users) != 1 or value.is_graph_output():
        return None
    (node,) = users
    if node.domain or node.op_type not in CURVES:
        return None
    if node.op_type == "HardSigmoid":
        return Curve(node.op_type, float_of(node, "alpha", 0.2), float_of(node, "beta", 0.5))
    return Curve(node.op_type)


@dataclass(frozen=True)
class Curve:
    """Activation function that saturates, so that part of its input range does not matter."""

    op: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Array) -> Array:
        return CURVES[self.op](x, self.alpha, self.beta)


def _sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """Compute the sigmoid without overflow: exp of negative numbers only."""
    small: Array = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


def _gelu(x: Array, alpha: float, beta: float) -> Array:
    """Compute the tanh approximation; its error of 5e-4 is far below an 8-bit quantization step."""
    result: Array = x / 2 * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return result


CURVES: Mapping[str, Callable[[Array, float, float], Array]] = {
    "Gelu": _gelu,
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x, alpha, beta: x * np.clip(x / 6 + 0.5, 0, 1),
    "Sigmoid": _sigmoid,
    "Silu": lambda x, alpha, beta: x * _sigmoid(x, alpha, beta),
    "Tanh": lambda x, alpha, beta: np.tanh(x),
}
