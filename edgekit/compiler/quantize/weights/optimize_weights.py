"""Quantizes the weights of a plan, layer by layer in the graph's order, using the quantized inputs of each
layer.

    float network      one pass over the samples: the outputs at sampled positions     (sampled_positions)
    quantized network  all samples at once, one segment at a time up to the next layer (segments)
    each layer         second moments of its quantized inputs -> integers, bias        (second_moments,
    rounding)

The inputs contain the quantization errors of all earlier layers, so each layer compensates them if it can.

Layers that share their weights share the integers: rounded to nearest once, by one scale for each channel
that serves them all. Rounding to the inputs of each layer would give each its own copy. Biases are corrected
for each layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from edgekit.compiler.evaluate.samples import Sample, sample_digests, subset
from edgekit.compiler.quantize.placement.kernels import node_name, rule_of
from edgekit.compiler.quantize.recipe import Affine, QuantizationPlan, QuantizedWeights, Recipe
from edgekit.compiler.quantize.weights.quantized_network import Network
from edgekit.compiler.quantize.weights.rounding import (
    WEIGHT_MAX,
    channel_scales,
    compensated,
    gptq,
    nearest,
    within_limit,
)
from edgekit.compiler.quantize.weights.sampled_positions import Targets, find_targets
from edgekit.compiler.quantize.weights.second_moments import column_blocks, moments_of
from edgekit.compiler.quantize.weights.segments import reads_integers
from edgekit.compiler.quantize.weights.value_digests import WeightCache, digest_of, histories
from edgekit.compiler.quantize.weights.weight_matrix import WeightMatrix, product_of
from edgekit.target.quant_rules import Rules
from edgekit.tensor_spec import Array

Progress = Callable[[int, int], None]

BIAS_LIMIT = 2.0**30
"""Largest int32 bias, so that the accumulator has room for the sum as well."""


@dataclass(frozen=True, eq=False)
class _SharedWeights:
    """The integers of layers that share their weights.

    Attributes:
        matrix: int8 [groups, outputs, columns].
        scales: float64 [groups, outputs].
        weights: The same in the layout of the nodes, without bias.
    """

    matrix: Array
    scales: Array
    weights: QuantizedWeights


def optimize(
    model: ir.Model,
    plan: QuantizationPlan,
    rules: Rules,
    samples: Sequence[Sample],
    recipe: Recipe,
    cache: WeightCache | None = None,
    progress: Progress | None = None,
) -> QuantizationPlan:
    """Quantize the weights of every node of the plan that has weights.

    Args:
        samples: The calibration set; the first ``recipe.samples`` are used. Not needed for round-to-nearest
            without bias correction.
        cache: Results of earlier calls; new results are added. It does not change the result.
        progress: Called with (done, total) steps.
    """
    products = [
        product
        for node in model.graph
        if node_name(node) in plan.nodes and (product := product_of(node, rule_of(node, rules))) is not None
    ]
    shared = _shared_weights(products, plan, rules)
    if recipe.rounding == "nearest" and not recipe.bias_correction and recipe.compensation is None:
        return replace(plan, weights={p.name: _nearest_of(p, plan, rules, shared) for p in products})
    cache = cache if cache is not None else WeightCache()
    calibration, digests = _in_order(subset(samples, range(min(recipe.samples, len(samples)))))
    common = digest_of(recipe, *digests)
    settings = {p.name: f"{common} {p.rule.weight_axis} {_limit(p, rules)}" for p in products}
    for name, weights in shared.items():  # other layers decide on the scales, too
        settings[name] += f" {digest_of(weights.scales.tobytes().hex())}"
    keys = histories(model, plan, settings)
    quantized = {p.name: cached for p in products if (cached := cache.weights.get(keys[p.name])) is not None}
    for name in quantized.keys() & shared.keys():
        same = shared[name].weights
        quantized[name] = replace(quantized[name], stored=same.stored, affine=same.affine)
    for product in products:
        if (not product.has_columns or product.name in shared) and product.bias is None:
            quantized[product.name] = _nearest_of(product, plan, rules, shared)  # independent of the samples
    missing = [p for p in products if p.name not in quantized]
    if missing:
        report = _counting(progress, len(calibration) + len(missing))
        targets = _targets(model, missing, calibration, digests, recipe, cache, report)
        network = Network(model, plan, missing, calibration)
        for product in products:
            if product.name not in quantized:
                quantized[product.name] = _quantize_product(
                    product, network, targets[product.name], rules, recipe, shared.get(product.name)
                )
                cache.weights.put(keys[product.name], quantized[product.name], product.weights.size)
                report()
            network.use(product, quantized[product.name])
    return replace(plan, weights={p.name: quantized[p.name] for p in products})


def _shared_weights(
    products: Sequence[WeightMatrix], plan: QuantizationPlan, rules: Rules
) -> dict[str, _SharedWeights]:
    """Layer -> its integers, for layers that read one weight in the same way."""
    readers: dict[Hashable, list[WeightMatrix]] = {}
    for p in products:
        weight = p.node.inputs[p.rule.weight or 0]
        way = (p.node.op_type, p.channel_axis, p.groups, p.rule.weight, p.rule.weight_axis)
        readers.setdefault((weight, way), []).append(p)
    shared: dict[str, _SharedWeights] = {}
    for alike in readers.values():
        if len(alike) == 1:
            continue
        first, matrix = alike[0], alike[0].matrix()
        scales = np.max([_scales(p, matrix, _stored_as(p, plan), rules) for p in alike], axis=0)
        pairs, limit = _pairs(first, rules)
        stored = nearest(matrix, scales, pairs, limit)
        weights = _SharedWeights(stored, scales, _packed(first, stored, scales, None))
        shared.update({p.name: weights for p in alike})
    return shared


def _nearest_of(
    product: WeightMatrix, plan: QuantizationPlan, rules: Rules, shared: Mapping[str, _SharedWeights]
) -> QuantizedWeights:
    if product.name in shared:
        return replace(shared[product.name].weights, bias=product.original_bias)
    return to_nearest(product, _stored_as(product, plan), rules)


def _in_order(samples: Sequence[Sample]) -> tuple[Sequence[Sample], list[str]]:
    """Return the samples sorted by digest, so that their order does not matter, and the digests."""
    digests = sample_digests(samples)
    order = sorted(range(len(samples)), key=lambda i: digests[i])
    return subset(samples, order), [digests[i] for i in order]


def _counting(progress: Progress | None, total: int) -> Callable[[], None]:
    done = itertools.count(1)
    return lambda: progress(next(done), total) if progress else None


def _targets(
    model: ir.Model,
    products: Sequence[WeightMatrix],
    samples: Sequence[Sample],
    digests: Sequence[str],
    recipe: Recipe,
    cache: WeightCache,
    report: Callable[[], None],
) -> dict[str, Targets]:
    float_histories = histories(model, QuantizationPlan({}, frozenset()), {})
    values = recipe.compensation is not None
    keys = {
        p.name: digest_of(float_histories[p.name], p.name, recipe.positions, values, *digests)
        for p in products
    }
    targets = {p.name: cached for p in products if (cached := cache.targets.get(keys[p.name])) is not None}
    unknown = [p for p in products if p.name not in targets]
    if unknown:
        drawn = find_targets(model, unknown, samples, digests, recipe.positions, values, report)
        for name, target in drawn.items():
            arrays = (target.means, *target.positions, *target.values)
            cache.targets.put(keys[name], target, sum(array.nbytes for array in arrays))
        targets |= drawn
    return targets


def _quantize_product(
    product: WeightMatrix,
    network: Network,
    target: Targets,
    rules: Rules,
    recipe: Recipe,
    shared: _SharedWeights | None,
) -> QuantizedWeights:
    x, affine = network.inputs_of(product)
    if product.has_columns:
        return _round_product(product, x, affine, target, rules, recipe, shared)
    if shared is None:
        weights = to_nearest(product, affine, rules)
    else:
        weights = replace(shared.weights, bias=product.original_bias)
    if not recipe.bias_correction or product.bias is None:
        return weights
    network.use(product, weights)
    uniform = [positions[:count] for positions, count in zip(target.positions, target.uniform, strict=True)]
    missing = significant_mean(target.means - network.mean_outputs(product, uniform))
    bias = np.asarray(product.bias) + missing / (product.beta if product.own_bias else 1.0)
    return replace(weights, bias=bias.astype(np.float32))


def _stored_as(product: WeightMatrix, plan: QuantizationPlan) -> Affine | None:
    if not reads_integers(product.input, product.node, plan):
        return None
    return plan.activations[str(product.input.name)]


def to_nearest(product: WeightMatrix, affine: Affine | None, rules: Rules) -> QuantizedWeights:
    """Round to nearest, without samples. ``affine`` of the input is None if it reads floats."""
    matrix = product.matrix()
    pairs, limit = _pairs(product, rules)
    scales = _scales(product, matrix, affine, rules)
    return _packed(product, nearest(matrix, scales, pairs, limit), scales, product.original_bias)


def _round_product(
    product: WeightMatrix,
    x: Callable[[int], Array],
    affine: Affine | None,
    target: Targets,
    rules: Rules,
    recipe: Recipe,
    shared: _SharedWeights | None,
) -> QuantizedWeights:
    """Quantize one layer using its quantized inputs.

    ``x``: sample -> the input: integers of ``affine``, or floats if ``affine`` is None.
    """
    matrix = product.matrix()
    corrects = recipe.bias_correction and product.bias is not None
    moments = moments_of(product, x, affine, target, recipe, about_mean=corrects)
    if shared is not None:
        real = shared.matrix * shared.scales[..., None]
        biases = _corrected(product, real, moments.means, target.means) if corrects else product.original_bias
        return replace(shared.weights, bias=biases)
    blocks = column_blocks(matrix.shape[2])
    if recipe.compensation is not None:
        adjusted = [
            compensated(matrix[..., start:end], moments.hessian[i], moments.cross[i], recipe.compensation)
            for i, (start, end) in enumerate(blocks)
        ]
        matrix = np.concatenate(adjusted, axis=2)
    pairs, limit = _pairs(product, rules)
    scales = _scales(product, matrix, affine, rules)
    if recipe.rounding == "nearest":
        stored = nearest(matrix, scales, pairs, limit)
    else:
        parts = []
        for i, (start, end) in enumerate(blocks):
            block_pairs = pairs[(pairs >= start).all(1) & (pairs < end).all(1)] - start
            parts.append(gptq(matrix[..., start:end], scales, moments.hessian[i], block_pairs, limit))
        stored = within_limit(np.concatenate(parts, axis=2), pairs, limit)
    bias = product.original_bias
    if corrects:
        bias = _corrected(product, stored * scales[..., None], moments.means, target.means)
    return _packed(product, stored, scales, bias)


def _corrected(product: WeightMatrix, real: Array, inputs: Array, expected: Array) -> Array:
    """Return the corrected bias, float32 [output channels].

    The mean error from rounding this layer's weights is known and corrected in full. The mean error from
    earlier layers is estimated from few samples, so only its significant part is corrected.

    Args:
        real: [groups, outputs, columns]: the dequantized weights.
        inputs: [samples, groups, columns]: means of the quantized inputs.
        expected: [samples, output channels]: means of the float outputs.
    """
    exact, old_bias = product.matrix(), np.asarray(product.bias, np.float64)
    output = np.einsum("gok,sgk->sgo", exact, inputs).reshape(expected.shape)
    before = expected - product.alpha * output - (product.beta * old_bias if product.own_bias else 0.0)
    rounding = np.einsum("gok,gk->go", exact - real, inputs.mean(axis=0)).reshape(-1)
    missing = product.alpha * rounding + significant_mean(before)
    bias: Array = (old_bias + missing / product.beta).astype(np.float32)
    return bias


def significant_mean(errors: Array) -> Array:
    """Compute the mean error of each channel, shrunk by its uncertainty.

    A mean m of variance v becomes m max(0, 1 - v / m^2) (James and Stein, 1961): an error common to all
    samples is kept almost entirely, one that differs between samples is dropped. After a global pool, where a
    sample has one position, the plain mean did harm: PP-OCR detection, l2, 15.3 dB with it, 16.9 without any
    correction, 18.2 with this.

    Args:
        errors: float64 [samples, channels].

    Returns:
        float64 [channels]; the mean itself of a single sample.
    """
    mean: Array = errors.mean(axis=0)
    if len(errors) == 1:
        return mean
    chance = errors.var(axis=0, ddof=1) / len(errors)
    shrinkage: Array = np.maximum(1 - chance / np.maximum(mean**2, np.finfo(np.float64).tiny), 0)
    return mean * shrinkage


def _pairs(product: WeightMatrix, rules: Rules) -> tuple[Array, int]:
    if rules.pair_limit is None:
        return np.zeros((0, 2), np.int64), WEIGHT_MAX
    return product.pairs(), rules.pair_limit


def _scales(product: WeightMatrix, matrix: Array, affine: Affine | None, rules: Rules) -> Array:
    """Return one scale for each output channel, float64 [groups, outputs]; all equal for per-tensor rules.

    Scales are large enough for an int32 bias even if the target's biases are float, so that targets can share
    weights. This costs no accuracy: such small weights are below the float32 resolution of the bias.
    """
    scales = channel_scales(matrix, *_pairs(product, rules))
    if product.bias is not None and affine is not None and affine.scale.size == 1:
        needed = np.abs(product.bias) / (float(affine.scale.reshape(())) * BIAS_LIMIT)
        if needed.size == scales.size:  # a grouped ConvTranspose has one scale for a channel of each group
            scales = np.maximum(scales, needed.reshape(scales.shape)).astype(np.float32).astype(np.float64)
    return scales if product.rule.weight_axis is not None else np.full_like(scales, scales.max())


def _limit(product: WeightMatrix, rules: Rules) -> int:
    """Return the pair limit as a part of the cache key. It is the same for all targets if a layer has no
    pairs, so that they share its weights."""
    pairs, limit = _pairs(product, rules)
    return limit if len(pairs) else WEIGHT_MAX


def _packed(product: WeightMatrix, stored: Array, scales: Array, bias: Array | None) -> QuantizedWeights:
    axis = product.channel_axis if product.rule.weight_axis is not None else None
    scale = scales.reshape(-1) if axis is not None else scales.flat[0]
    affine = Affine(np.asarray(scale, np.float32), np.zeros(np.shape(scale), np.int8), "int8", axis)
    return QuantizedWeights(product.from_matrix(stored), affine, bias)
