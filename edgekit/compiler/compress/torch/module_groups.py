"""Groups of channels of a PyTorch module, for loops that prune and train by themselves.

    module -> ONNX, its parameters marked -> channel groups of the graph (as edgekit model shrink's)
    -> parameters

The rules are those of ``channel_rules``. Removing one unit and running the module finds the groups that the
module's own code needs (a size that is written in ``forward``).
"""

from __future__ import annotations

import copy
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.compiler.compress.channel_groups import ChannelGroup, Channels, find_channels
from edgekit.compiler.compress.channel_labels import Use
from edgekit.compiler.compress.torch.parameter_marks import (
    Cuts,
    ParameterMarks,
    cut_parameters,
    zero_parameters,
)
from edgekit.compiler.importers.original import quiet
from edgekit.compiler.model.onnx_file import open_bytes
from edgekit.compiler.model.rewriting import array_of, input_of
from edgekit.compiler.passes import PASSES
from edgekit.errors import MissingDependency, UsageError, reason_of
from edgekit.tensor_spec import Array

TOLERANCE = 1e-3
"""Greatest difference of a module without a unit from the one in which nothing reads it, over the largest
output: sums in another order, not another function."""
_MIXING = ("fold_affine", "fold_focus")
"""Passes that make one constant of several parameters."""


@dataclass(frozen=True, eq=False)
class ParameterSlice:
    """Slices of one parameter or buffer that belong to a group's units.

    Attributes:
        name: Name in ``state_dict``.
        positions: int64 [units, positions of a unit].
        reads: Whether these are columns of weights that read the channels.
    """

    name: str
    axis: int
    positions: Array
    reads: bool


@dataclass(frozen=True, eq=False)
class PruneGroup:
    """Channels of a module that can only be removed together.

    Attributes:
        name: Name of the first parameter that makes the channels, without ``.weight``.
        units: Number of units; at least one must remain.
        slices: Slices of each parameter and buffer that belong to the units.
    """

    name: str
    units: int
    slices: tuple[ParameterSlice, ...]


class PruneGroups(Sequence[PruneGroup]):
    """Groups of one module, in the order of execution.

    Attributes:
        refused: Name of a group of the graph that cannot be removed -> the reason.
    """

    def __init__(self, module: Any, groups: Sequence[PruneGroup], refused: Mapping[str, str]) -> None:
        self.refused = dict(refused)
        self._module, self._groups, self._spent = module, tuple(groups), False

    def __len__(self) -> int:
        return len(self._groups)

    def __getitem__(self, index: Any) -> Any:
        return self._groups[index]

    def __iter__(self) -> Iterator[PruneGroup]:
        return iter(self._groups)

    def remove(self, units: Mapping[str, Sequence[int]]) -> None:
        """Remove units of the module, in place: parameters, buffers, and sizes of its layers.

        The parameters that are cut are new objects: make the optimizer after this. These groups are then
        invalid; ``prune_groups`` finds those of the remaining module.

        Args:
            units: Group -> indices of its units.

        Raises:
            UsageError: a group or unit does not exist, no unit would remain, or units were removed before.
        """
        if self._spent:
            raise UsageError("units were already removed: call prune_groups(module) for the remaining groups")
        cut_parameters(self._module, self._cuts(units, reads_only=False))
        self._spent = True

    def zero(self, units: Mapping[str, Sequence[int]]) -> None:
        """Set the weights that read some units to zero, in place: the outputs are those of ``remove``.

        Args:
            units: Group -> indices of its units.

        Raises:
            UsageError: the units are invalid for ``remove``.
        """
        zero_parameters(self._module, self._cuts(units, reads_only=True))

    def _cuts(self, units: Mapping[str, Sequence[int]], reads_only: bool) -> Cuts:
        by_name = {group.name: group for group in self._groups}
        cuts: dict[tuple[str, int], set[int]] = {}
        for name, chosen in units.items():
            group = by_name.get(name)
            if group is None:
                raise UsageError(f"no group {name!r}; available: {', '.join(by_name) or 'none'}")
            wrong = [unit for unit in chosen if not 0 <= unit < group.units]
            if wrong:
                raise UsageError(f"group {name} has no unit {wrong[0]}: it has {group.units}, from 0")
            if len(set(chosen)) == group.units:
                raise UsageError(f"group {name} has {group.units} units, and at least one has to stay")
            for part in group.slices:
                if part.reads or not reads_only:
                    positions = part.positions[sorted(set(chosen))].ravel().tolist()
                    cuts.setdefault((part.name, part.axis), set()).update(positions)
        return cuts


def prune_groups(module: Any, example_inputs: Any) -> PruneGroups:
    """Find the groups of channels of a module that can be removed.

    A group's channels go through Add, Concat, depthwise Convs, batch norms, heads of attention and so on, as
    in ``edgekit model shrink``. Each group is tested: a copy without one unit must compute the same outputs
    as the module in which no weights read that unit.

    Args:
        module: A ``torch.nn.Module`` of float32 that ``torch.export`` supports. It is not changed.
        example_inputs: A tensor, or a tuple of tensors, to call the module with.

    Returns:
        The groups; ``remove`` removes some of their units from the module.

    Raises:
        MissingDependency: torch or onnxscript is not installed.
        UsageError: the module cannot be exported.
        ModelError: its graph cannot be opened.
    """
    torch = _torch()
    examples = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else tuple(example_inputs)
    marked = _with_biases(copy.deepcopy(module).eval())
    marks = ParameterMarks(marked)
    channels = find_channels(_graph(marked, examples))
    parameter_names = {name for name, _ in [*module.named_parameters(), *module.named_buffers()]}
    group_by_name: dict[str, PruneGroup] = {}
    refused: dict[str, str] = {}
    for group in channels.groups:
        outcome = _group(group, channels, marks, parameter_names, group_by_name)
        if isinstance(outcome, str):
            refused[group.name] = outcome
        else:
            group_by_name[outcome.name] = outcome
    for name in _contradicting(group_by_name):
        refused[name] = "one of its parameters is also used elsewhere, without these channels"
        del group_by_name[name]
    tried = PruneGroups(module, list(group_by_name.values()), {})
    for name in list(group_by_name):
        objection = _objection(module, tried, name, examples)
        if objection:
            refused[name] = objection
            del group_by_name[name]
    return PruneGroups(module, list(group_by_name.values()), refused)


def _torch() -> Any:
    try:
        import onnxscript  # noqa: F401
        import torch
    except ImportError as problem:
        missing = "onnxscript" if problem.name == "onnxscript" else "torch"
        raise MissingDependency(missing, "finding the channels of a module", extra="train") from None
    return torch


def _with_biases(module: Any) -> Any:
    """Give every Conv a bias: torch.onnx computes missing zeros at run time, instead of as a constant."""
    import torch

    for layer in module.modules():
        if isinstance(layer, torch.nn.modules.conv._ConvNd) and layer.bias is None:
            layer.bias = torch.nn.Parameter(torch.zeros(layer.out_channels, device=layer.weight.device))
    return module


def _graph(module: Any, examples: tuple[Any, ...]) -> Any:
    """Return the canonical graph, except that every constant comes from one parameter."""
    import torch

    name = type(module).__name__
    try:
        with torch.no_grad(), quiet(io.StringIO()):
            program = torch.export.export(module, examples)
            # Not optimized: that would fold batch norms into their Convs.
            exported = torch.onnx.export(program, (), dynamo=True, optimize=False, verbose=False)
        data = exported.model_proto.SerializeToString()
    except Exception as problem:
        raise UsageError(f"{name}: torch.export can't export it: {reason_of(problem)}") from None
    model = open_bytes(data, name)
    for step, _ in PASSES:
        if step.__name__ not in _MIXING:
            step(model)
    return model


def _group(
    group: ChannelGroup,
    channels: Channels,
    marks: ParameterMarks,
    parameters: Collection[str],
    groups: Mapping[str, PruneGroup],
) -> PruneGroup | str:
    slices: list[ParameterSlice] = []
    for use in _uses(group, channels):
        array = array_of(input_of(use.node, use.index))
        place = marks.place(array, use.axis) if array is not None else None
        if place is None:
            return (
                f"{use.node.op_type} has a constant along these channels that is not a parameter of "
                "the module"
            )
        roots = channels.labels.roots(use.ids)
        rows = [place.positions[np.flatnonzero(roots == unit)] for unit in group.units]
        if len({len(row) for row in rows}) > 1:
            return "its units have different sizes"
        part = ParameterSlice(place.name, place.axis, np.stack(rows), use.role == "input")
        if place.name in parameters and not any(_is_same(part, other) for other in slices):
            slices.append(part)
    first = next(part.name for part in slices if not part.reads)
    name = base = first.removesuffix(".weight")
    number = 2
    while name in groups:
        name, number = f"{base} ({number})", number + 1
    return PruneGroup(name, len(group.units), tuple(slices))


def _uses(group: ChannelGroup, channels: Channels) -> Iterator[Use]:
    units = group.units
    uses = [use for use in channels.labels.uses if np.isin(channels.labels.roots(use.ids), units).any()]
    yield from sorted(uses, key=lambda use: use.role != "output")


def _is_same(one: ParameterSlice, other: ParameterSlice) -> bool:
    return (one.name, one.axis, one.reads) == (other.name, other.axis, other.reads) and np.array_equal(
        one.positions, other.positions
    )


def _contradicting(groups: Mapping[str, PruneGroup]) -> set[str]:
    owners: dict[tuple[str, int, int], set[tuple[str, int]]] = {}
    for group in groups.values():
        for part in group.slices:
            for unit, positions in enumerate(part.positions):
                for position in positions.tolist():
                    owners.setdefault((part.name, part.axis, position), set()).add((group.name, unit))
    return {name for units in owners.values() if len(units) > 1 for name, _ in units}


def _objection(module: Any, groups: PruneGroups, name: str, examples: tuple[Any, ...]) -> str:
    """Return why a unit cannot be removed from a module; "" if it can."""
    import torch

    answers = []
    for act in (PruneGroups.zero, PruneGroups.remove):
        tried = copy.deepcopy(module).eval()
        act(PruneGroups(tried, list(groups), {}), {name: [0]})
        try:
            with torch.no_grad():
                answers.append(torch.utils._pytree.tree_leaves(tried(*examples)))
        except Exception as problem:
            return f"the module's code needs it: {reason_of(problem)}"
    for zeroed, smaller in zip(*answers, strict=True):
        if not isinstance(zeroed, torch.Tensor):
            continue
        if zeroed.shape != smaller.shape:
            return f"an output would have shape {tuple(smaller.shape)} instead of {tuple(zeroed.shape)}"
        largest = float(zeroed.abs().max()) if zeroed.numel() else 0.0
        if not torch.allclose(zeroed, smaller, rtol=TOLERANCE, atol=TOLERANCE * largest):
            return "the module's results change without it: its code uses the number of these channels"
    return ""
