"""Structured pruning without training: choice of channels, and weights fitted to the remaining ones.

channel groups -> moments of their readers' inputs -> order of removal, with errors on held-out samples
-> how much each group's errors change the outputs -> how many units each group loses -> one last fit
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from edgekit.compiler.compress.channel_groups import (
    ChannelGroup,
    Channels,
    CostKind,
    CostOfChannels,
    cost,
    find_channels,
)
from edgekit.compiler.compress.obs_selection import ReaderData, RemovalOrder, fit, removal_order
from edgekit.compiler.compress.reader_moments import ProductReader, ReaderMoments, moments_of, reader_of
from edgekit.compiler.compress.remove_channels import remove_channels
from edgekit.compiler.evaluate.fidelity import Evaluator
from edgekit.compiler.evaluate.samples import Sample
from edgekit.compiler.model.reference import Reference
from edgekit.compiler.model.rewriting import array_of
from edgekit.errors import UsageError
from edgekit.system.progress import Notify
from edgekit.tensor_spec import Array

TELLING_SAMPLES = 32
"""Validation samples that a group's sensitivity is measured on."""
PROBE = 0.25
"""The part of a group that is removed to measure its sensitivity."""
STEPS = ((24, 16), (16, 8))
"""(channels of a group, multiple that kernels like): units go in such steps, those of smaller groups one by
one. Timed alone, on three engines, a depthwise Conv of 72 channels takes longer than one of 80, and one of
100 up to twice as long as one of 96 (docs/decisions/0030)."""


@dataclass(frozen=True, eq=False)
class PrunableGroup:
    """Group whose readers can all be fitted.

    Attributes:
        order: Order in which units are removed.
        sensitivity: Change of the model's outputs for each error of the readers' outputs.
    """

    group: ChannelGroup
    readers: tuple[ProductReader, ...]
    order: RemovalOrder
    sensitivity: float = 1.0

    @property
    def name(self) -> str:
        return self.group.name

    def error(self, units: float) -> float:
        return self.sensitivity * self.order.error(units)


@dataclass(frozen=True, eq=False)
class PruningPlan:
    """Measurements to prune a model to any size.

    Attributes:
        calibration: Moments by the readers' ``input_key``.
    """

    channels: Channels
    groups: tuple[PrunableGroup, ...]
    calibration: Mapping[str, ReaderMoments]

    @property
    def model(self) -> ir.Model:
        return self.channels.model


def plan_pruning(
    model: ir.Model,
    calibration: Sequence[Sample],
    validation: Sequence[Sample],
    evaluator: Evaluator,
    report: Notify,
) -> PruningPlan:
    """Measure the cost of removing channels of a model.

    Args:
        model: The canonical float model with static shapes.
        calibration: Samples that weights are fitted to.
        validation: Other samples, to measure errors on.

    Raises:
        UsageError: no channels can be removed.
    """
    channels = find_channels(model)
    prunable: list[tuple[ChannelGroup, list[ProductReader]]] = []
    for group in channels.groups:
        fitting = [reader for use in group.inputs if (reader := reader_of(use)) is not None]
        if len(fitting) == len(group.inputs):
            prunable.append((group, fitting))
    if not prunable:
        raise UsageError(
            "no channels can be removed: each Conv, Gemm and MatMul with constant weights feeds nodes that "
            "need all of its channels"
        )
    every = [reader for _, readers in prunable for reader in readers]
    fitted = moments_of(model, every, calibration, _counting(report, "calibration samples"))
    judged = moments_of(model, every, validation, _counting(report, "validation samples"))
    groups = []
    for number, (group, readers) in enumerate(prunable):
        report("order of removal", number, len(prunable), "groups")
        data = [_data(channels, group, reader, fitted, judged) for reader in readers]
        groups.append(PrunableGroup(group, tuple(readers), removal_order(data)))
    plan = PruningPlan(channels, tuple(groups), fitted)
    measured = _with_sensitivity(plan, validation, evaluator, report)
    return PruningPlan(channels, tuple(measured), fitted)


def _counting(report: Notify, description: str) -> Callable[[int, int], None]:
    return lambda done, total: report("", done, total, description)


def _data(
    channels: Channels,
    group: ChannelGroup,
    reader: ProductReader,
    fitted: Mapping[str, ReaderMoments],
    judged: Mapping[str, ReaderMoments],
) -> ReaderData:
    roots = channels.labels.roots(reader.channels)
    blocks = np.stack([np.flatnonzero(roots == unit) for unit in group.units])
    return ReaderData(reader.matrix, reader.moments(fitted), reader.moments(judged), blocks)


def _with_sensitivity(
    plan: PruningPlan, validation: Sequence[Sample], evaluator: Evaluator, report: Notify
) -> list[PrunableGroup]:
    """Prune each group alone, and measure the change of the outputs against its readers' error."""
    samples = evaluator.most_telling(TELLING_SAMPLES, TELLING_SAMPLES)
    feeds = [validation[index] for index in samples]
    groups = []
    for number, group in enumerate(plan.groups):
        report("sensitivity", number, len(plan.groups), "groups")
        units = max(int(len(group.group.units) * PROBE), 1)
        reference = Reference(pruned_model(plan, {group.name: units}), optimize=True)
        change_db = evaluator.change_db([reference.run(feed) for feed in feeds], samples)
        change = 10 ** (-change_db / 10) if np.isfinite(change_db) or change_db > 0 else np.inf
        error = max(group.order.error(units), 1e-12)
        groups.append(PrunableGroup(group.group, group.readers, group.order, max(change / error, 1e-12)))
    return groups


def prune(plan: PruningPlan, kind: CostKind, share: float) -> tuple[ir.Model, dict[str, int]] | None:
    """Prune a model by a share of its cost, greedily by the least estimated change of the outputs per saving.

    Args:
        share: Share of the cost to remove, 0 to 1.

    Returns:
        The smaller model, and the number of units by group that lost some. None if the groups cannot save
        that much.
    """
    costs, needed = CostOfChannels(plan.channels, kind), share * cost(plan.model, kind)
    removed = dict.fromkeys((prunable.name for prunable in plan.groups), 0)
    saved = 0.0
    while saved < needed:
        choices = []
        for prunable in plan.groups:
            units = _step(prunable, removed[prunable.name])
            if units and (saving := costs.saving(prunable.group, units)) > 0:
                more = prunable.error(removed[prunable.name] + units) - prunable.error(removed[prunable.name])
                choices.append((more / saving, prunable.name, units, saving, prunable.group))
        if not choices:
            return None
        _, name, units, saving, group = min(choices, key=lambda choice: choice[:2])
        costs.remove(group, units)
        removed[name] += units
        saved += saving
    removed = {name: units for name, units in removed.items() if units}
    return pruned_model(plan, removed), removed


def _step(group: PrunableGroup, removed: int) -> int:
    """Return the number of units to remove next, so that a multiple of channels remains; 0 at the end."""
    count = len(group.group.units)
    size = count * group.group.channels
    multiple = next((multiple for threshold, multiple in STEPS if size >= threshold), 1)
    step = max(multiple // group.group.channels, 1)
    left = count - removed
    units = left % step or step
    return units if removed + units <= group.order.removed[-1] else 0


def pruned_model(plan: PruningPlan, removed: Mapping[str, int]) -> ir.Model:
    """Return the model without some units of each group, its readers fitted to the remaining channels."""
    labels: set[int] = set()
    for group in plan.groups:
        chosen = group.order.units[: removed.get(group.name, 0)]
        labels.update(group.group.units[chosen].tolist())
    weights: dict[tuple[str, int], Array] = {}
    readers = {reader.name: reader for group in plan.groups for reader in group.readers}
    for reader in readers.values():
        _fit(plan, reader, labels, weights)
    return remove_channels(plan.model, labels, weights)


def _fit(
    plan: PruningPlan, reader: ProductReader, removed: Collection[int], weights: dict[tuple[str, int], Array]
) -> None:
    remaining = plan.channels.remaining(reader.channels, removed)
    if len(remaining) == len(reader.channels):
        return
    product = reader.product
    fitted, shift = fit(reader.matrix, reader.moments(plan.calibration), remaining)
    matrix, dtype = np.zeros_like(reader.matrix), product.weights.dtype
    matrix[remaining] = fitted / product.alpha
    weights[reader.name, 1] = product.from_matrix(matrix.T[None]).astype(dtype)
    if product.bias is None or product.bias_input is None:
        return
    node, index = product.bias_input
    bias = (product.bias + shift / product.beta).astype(dtype)
    old = array_of(node.inputs[index]) if index < len(node.inputs) else None
    fits = old is not None and old.size == bias.size
    weights[str(node.outputs[0].name), index] = bias.reshape(old.shape) if fits and old is not None else bias
