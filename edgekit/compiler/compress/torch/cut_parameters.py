"""Removal of positions from parameters and buffers of a module, and from its layers' size attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

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
                kept = [index for index in range(tensor.shape[axis]) if index not in positions]
                smaller = smaller.index_select(axis, torch.tensor(kept, device=tensor.device))
            smaller = smaller.clone()
            if isinstance(tensor, torch.nn.Parameter):
                smaller = torch.nn.Parameter(smaller, requires_grad=tensor.requires_grad)
            for layer, name in owners:
                if name == "weight" and 0 in axes and getattr(layer, "groups", 1) > 1:
                    layer.groups = layer.groups * len(smaller) // len(tensor)
                setattr(layer, name, smaller)
                _set_sizes(layer)


def zero_parameters(module: Any, cuts: Cuts) -> None:
    """Set positions of parameters to zero, in place."""
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
