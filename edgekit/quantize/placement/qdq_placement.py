"""Rules + observations -> Plan: which values of the canonical graph are stored as integers, and how."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
import onnx_ir as ir

from edgekit.model.rewriting import array_of, float_of
from edgekit.quantize.numerics import affine, channel_affine, channel_noise, choose_range
from edgekit.quantize.observe.observers import Observation, pool
from edgekit.quantize.placement.kernels import Groups, Kernel, find_kernels, is_depthwise, node_name, silu_of
from edgekit.quantize.placement.zero_centring import centrable
from edgekit.quantize.recipe import Affine, QuantizationPlan, Recipe
from edgekit.target.quant_rules import Rules
from edgekit.tensors import Array

RangeCache = dict[tuple[object, ...], Affine]
"""Ranges that were chosen, for the next plan of the same observations; ``place`` fills it."""


def place(
    model: ir.Model,
    rules: Rules,
    observations: Mapping[str, Observation],
    recipe: Recipe,
    float_nodes: Collection[str] = frozenset(),
    memo: RangeCache | None = None,
) -> QuantizationPlan:
    """Say what is stored as integers, and how.

    A pair stands before each kernel and, where its row says so, behind it; none inside. Values that a move
    joins share one scale, and where a kernel has a fixed one, its output is stored by it from the start: no
    engine has to requantize. Nodes behind the last kernel with weights stay float, unless ``rules.outputs``.
    With ``rules.centred`` values that are read by the right kernels have a zero point, though the target has
    none: ``emit`` stores them less a constant.

    Args:
        model: The canonical float graph. It is not changed.
        rules: Of the target.
        observations: Value name -> what was seen of it. A value that was not observed, or was not finite, is
            not stored: its nodes stay float.
        recipe: Says how ranges are chosen.
        float_nodes: Names (first outputs) of nodes that are to stay float.
        memo: Of the plans made before; choosing ranges is most of the time.

    Returns:
        A plan without weights; empty where nothing computes on integers.
    """

    def storable(value: ir.Value) -> bool:
        seen = observations.get(str(value.name))
        return array_of(value) is not None or (
            seen is not None and bool(np.isfinite(seen.low).all() and np.isfinite(seen.high).all())
        )

    memo = {} if memo is None else memo
    floats = set(float_nodes)
    while True:
        kernels = find_kernels(model, rules, floats, storable)
        groups = _groups(kernels)
        wrong = _disagreeing(kernels, groups)
        activations = {} if wrong else _affines(kernels, groups, rules, observations, recipe, memo)
        act = rules.channel_noise.act if rules.channel_noise else "split"
        noisy = {} if act == "split" else _noisy(kernels, groups, activations, observations, rules)
        if act == "float":
            readers = [reader for readers in noisy.values() for reader in readers]
            wrong |= {reader.name for reader in readers} | _makers(readers, kernels)
        if not wrong:
            break
        floats |= wrong
    activations.update({name: channel_affine(observations[name], rules.activations) for name in noisy})
    nodes = frozenset(node_name(node) for kernel in kernels for node in kernel.nodes)
    return QuantizationPlan(activations, nodes)


def stored_values(kernels: Sequence[Kernel]) -> dict[str, ir.Value]:
    """The values behind which a pair stands: what kernels read, and what they can only write as integers."""
    stored: dict[str, ir.Value] = {}
    for kernel in kernels:
        written = () if kernel.rule.output == "asked" else kernel.outputs
        stored.update({str(value.name): value for value in (*kernel.inputs, *written)})
    return stored


def _groups(kernels: Sequence[Kernel]) -> Groups:
    """Values that share one scale: what a kernel moves, and what it is moved to."""
    groups = Groups()
    for kernel in kernels:
        if kernel.rule.output == "inputs":
            groups.join([str(value.name) for value in (*kernel.inputs, *kernel.outputs)])
    return groups


def _fixed(kernels: Sequence[Kernel]) -> dict[str, tuple[float, int]]:
    """Value -> the scale and zero point that its kernel can't choose."""
    return {
        str(value.name): kernel.rule.fixed
        for kernel in kernels
        if kernel.rule.output == "fixed" and kernel.rule.fixed is not None
        for value in kernel.outputs
    }


def _disagreeing(kernels: Sequence[Kernel], groups: Groups) -> set[str]:
    """Moves that would join a fixed scale with values that can't all have it: they stay float."""
    fixed = _fixed(kernels)
    moved = {str(v.name) for k in kernels if k.rule.output == "inputs" for v in k.outputs}
    sources: dict[str, set[tuple[float, int] | None]] = {}
    for name in stored_values(kernels):
        if name not in moved:
            sources.setdefault(groups.root(name), set()).add(fixed.get(name))
    torn = {root for root, scales in sources.items() if len(scales) > 1 and scales != {None}}
    return {
        kernel.name
        for kernel in kernels
        if kernel.rule.output == "inputs"
        and len(kernel.inputs) > 1
        and groups.root(str(kernel.outputs[0].name)) in torn
    }


def _affines(
    kernels: Sequence[Kernel],
    groups: Groups,
    rules: Rules,
    observations: Mapping[str, Observation],
    recipe: Recipe,
    memo: RangeCache,
) -> dict[str, Affine]:
    """Value -> its scale and zero point, one for each group."""
    fixed = _fixed(kernels)
    members: dict[str, list[ir.Value]] = {}
    for name, value in stored_values(kernels).items():
        members.setdefault(groups.root(name), []).append(value)
    found: dict[str, Affine] = {}
    for values in members.values():
        scales = [fixed[str(value.name)] for value in values if str(value.name) in fixed]
        if scales:
            one = _fixed_affine(scales[0], rules)
        elif all(array_of(value) is not None for value in values):
            one = _constant_affine(values, rules)
        else:
            after = _curve_behind(values[0]) if len(values) == 1 else None
            seen = tuple(_seen(value, observations) for value in values)
            symmetric = rules.symmetric and not (rules.centred and centrable(values, kernels))
            key = (seen, recipe.ranges, rules.activations, symmetric, after)
            if key not in memo:
                one_tensor = pool(seen) if len(seen) > 1 else seen[0]
                memo[key] = choose_range(one_tensor, recipe.ranges, rules.activations, symmetric, after)
            one = memo[key]
        found.update({str(value.name): one for value in values})
    return found


def _fixed_affine(fixed: tuple[float, int], rules: Rules) -> Affine:
    scale, zero_point = fixed
    shifted = zero_point + 128 if rules.activations == "uint8" else zero_point
    return Affine(np.array(scale, np.float32), np.array(shifted, rules.activations), rules.activations)


def _constant_affine(values: Sequence[ir.Value], rules: Rules) -> Affine:
    arrays = [array for value in values if (array := array_of(value)) is not None]
    low, high = min(a.min() for a in arrays), max(a.max() for a in arrays)
    return affine(low, high, rules.activations, rules.symmetric)


def _seen(value: ir.Value, observations: Mapping[str, Observation]) -> Observation:
    """What was observed of a value; a constant is what it is."""
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
    """Values read by depthwise kernels alone whose channels can't share one scale -> those kernels."""
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


def _makers(readers: Sequence[Kernel], kernels: Sequence[Kernel]) -> set[str]:
    """The kernels that make what these read, at once or through float nodes."""
    owners = {node: kernel.name for kernel in kernels for node in kernel.nodes}
    found: set[str] = set()
    waiting = [value.producer() for reader in readers for value in reader.inputs]
    passed: set[ir.Node] = set()
    while waiting:
        node = waiting.pop()
        if node in owners:
            found.add(owners[node])
        elif node is not None and node not in passed:
            passed.add(node)
            waiting += [value.producer() for value in node.inputs if value is not None]
    return found


def _curve_behind(value: ir.Value) -> Curve | None:
    """The curve that is all that happens to a value: the error of its range is measured behind it."""
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
    """A function of one value that flattens somewhere, so that not every part of its range matters.

    Attributes:
        op: A key of ``CURVES``.
        alpha, beta: Of HardSigmoid.
    """

    op: str
    alpha: float = 0.0
    beta: float = 0.0

    def __call__(self, x: Array) -> Array:
        return CURVES[self.op](x, self.alpha, self.beta)


def _sigmoid(x: Array, alpha: float, beta: float) -> Array:
    """Without overflow: exp of what is not positive."""
    small: Array = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result


def _gelu(x: Array, alpha: float, beta: float) -> Array:
    """Its tanh form; the other is within 5e-4 of it, far below a step of 8 bits."""
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
