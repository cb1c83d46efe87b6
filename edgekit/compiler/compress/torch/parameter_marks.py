"""Tracing of the constants of an exported graph to the module's parameters, and the removal of positions.

Every position of the exported copy's parameters and buffers has a different number: consecutive float32
patterns. An exporter and the passes only move them (Transpose, Reshape, a Split of joint weights), so a
constant's own numbers identify their origin.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgekit.tensor_spec import Array

FIRST = 0x0080_0000
"""The pattern of the least normal float32: what is less may be flushed to zero."""
LAST = 0x3F00_0000
"""That of 0.5: numbers of a billion places, and none that is a constant of somebody's formula."""


@dataclass(frozen=True)
class Place:
    """Origin of an axis of a constant.

    Attributes:
        positions: Positions along that axis, int64, for each index of the constant's axis.
    """

    name: str
    axis: int
    positions: Array


class ParameterMarks:
    """Marks in the float32 parameters and buffers of a module, set in place.

    Args:
        module: Copy of the module; its numbers are overwritten.
    """

    def __init__(self, module: Any) -> None:
        import torch

        self._names: list[str] = []
        self._shapes: list[tuple[int, ...]] = []
        self._begins = [FIRST]
        visited: set[int] = set()
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.dtype != torch.float32 or not tensor.numel() or id(tensor) in visited:
                continue
            begin, end = self._begins[-1], self._begins[-1] + tensor.numel()
            if end > LAST:
                break
            visited.add(id(tensor))
            numbers = np.arange(begin, end, dtype=np.int32).view(np.float32)
            tensor.data.copy_(torch.from_numpy(numbers.reshape(tuple(tensor.shape))))
            self._names.append(name)
            self._shapes.append(tuple(tensor.shape))
            self._begins.append(end)

    def place(self, constant: Array, axis: int) -> Place | None:
        """Return the origin of a constant's axis; None if it is not one axis of one parameter."""
        if constant.dtype != np.float32 or not constant.size:
            return None
        marks = np.ascontiguousarray(constant).view(np.int32).astype(np.int64)
        owners = np.searchsorted(self._begins, marks, side="right") - 1
        owner = int(owners.flat[0])
        if not 0 <= owner < len(self._names) or (owners != owner).any():
            return None
        coordinates = np.unravel_index(marks - self._begins[owner], self._shapes[owner])
        for number, along in enumerate(coordinates):
            rows = np.moveaxis(along, axis, 0).reshape(constant.shape[axis], -1)
            positions = rows[:, 0]
            if (rows == positions[:, None]).all() and len(np.unique(positions)) == len(positions):
                return Place(self._names[owner], number, positions)
        return None


Cuts = Mapping[tuple[str, int], Collection[int]]
"""(parameter or buffer as in ``state_dict``, axis) -> positions."""


def cut_parameters(module: Any, cuts: Cuts) -> None:
    """Remove positions of parameters and buffers, in place, and set the sizes of the layers that own them.

    A parameter that several layers share stays shared.
    """
    import torch

    with torch.no_grad():
        for tensor, owners, axes in _cut_tensors(module, cuts):
            smaller = tensor.detach()
            for axis, positions in axes.items():
                remaining = [index for index in range(tensor.shape[axis]) if index not in positions]
                smaller = smaller.index_select(axis, torch.tensor(remaining, device=tensor.device))
            smaller = smaller.clone()
            if isinstance(tensor, torch.nn.Parameter):
                smaller = torch.nn.Parameter(smaller, requires_grad=tensor.requires_grad)
            for layer, name in owners:
                if name == "weight" and 0 in axes and getattr(layer, "groups", 1) > 1:
                    layer.groups = layer.groups * len(smaller) // len(tensor)
                setattr(layer, name, smaller)
                _set_sizes(layer)


def zero_parameters(module: Any, cuts: Cuts) -> None:
    import torch

    with torch.no_grad():
        for tensor, _, axes in _cut_tensors(module, cuts):
            for axis, positions in axes.items():
                tensor.index_fill_(axis, torch.tensor(sorted(positions), device=tensor.device), 0.0)


def _cut_tensors(
    module: Any, cuts: Cuts
) -> Iterator[tuple[Any, list[tuple[Any, str]], dict[int, Collection[int]]]]:
    """Yield each tensor, the layers that own it with its name there, and axis -> positions."""
    axes: dict[int, dict[int, Collection[int]]] = {}
    named = dict([*module.named_parameters(), *module.named_buffers()])
    for (name, axis), positions in cuts.items():
        axes.setdefault(id(named[name]), {})[axis] = set(positions)
    owners: dict[int, list[tuple[Any, str]]] = {}
    tensors = {}
    for layer in module.modules():
        for name, tensor in [*layer._parameters.items(), *layer._buffers.items()]:
            if tensor is not None and id(tensor) in axes:
                owners.setdefault(id(tensor), []).append((layer, name))
                tensors[id(tensor)] = tensor
    for key, tensor in tensors.items():
        yield tensor, owners[key], axes[key]


def _set_sizes(layer: Any) -> None:
    """Set a layer's size attributes from its weight. Torch's layers compute from their weights only, except
    for ``groups`` and the heads of attention."""
    from torch import nn

    weight = getattr(layer, "weight", None)
    if weight is None:
        return
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):
        layer.in_channels, layer.out_channels = weight.shape[0], weight.shape[1] * layer.groups
    elif isinstance(layer, nn.modules.conv._ConvNd):
        layer.in_channels, layer.out_channels = weight.shape[1] * layer.groups, weight.shape[0]
    elif isinstance(layer, nn.Linear):
        layer.out_features, layer.in_features = weight.shape
    elif isinstance(layer, nn.modules.batchnorm._NormBase):
        layer.num_features = weight.shape[0]
    elif isinstance(layer, nn.PReLU):
        layer.num_parameters = weight.shape[0]
