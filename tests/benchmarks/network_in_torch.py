"""A convolutional network of a canonical ONNX graph as a module of PyTorch, as its author would have it.

Of Conv2d, BatchNorm2d and Linear, because tools for torch look for these. An exported network has no batch
norms any more: they are put back behind every Conv, with the statistics of its outputs on samples, so that
they change nothing until channels are removed and the statistics are taken anew.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from edgekit.compiler.model.rewriting import array_of, int_of, ints_of


def in_torch(model: ir.Model) -> Any:
    """The network with one input. Operators: those of EfficientNet-Lite and ResNet.

    Raises:
        ValueError: it has another operator.
    """
    import torch
    from torch import fx, nn
    from torch.nn import functional

    graph, modules = fx.Graph(), nn.Module()
    values: dict[ir.Value, Any] = {model.graph.inputs[0]: graph.placeholder("x")}
    for number, node in enumerate(model.graph):
        x = values[node.inputs[0]] if node.inputs[0] is not None else None
        if node.op_type in ("Conv", "Gemm"):
            x, layer = _layer(graph, node, x)
            name = f"{node.op_type.lower()}{number}"
            modules.add_module(name, layer)
            made = graph.call_module(name, (x,))
            if node.op_type == "Conv":
                modules.add_module(f"norm{number}", nn.BatchNorm2d(layer.out_channels))
                made = graph.call_module(f"norm{number}", (made,))
        elif node.op_type == "Clip":
            low, high = (float(_array(node.inputs[index])) for index in (1, 2))
            made = graph.call_function(torch.clamp, (x, low, high))
        elif node.op_type == "Relu":
            made = graph.call_function(functional.relu, (x,))
        elif node.op_type == "Add":
            made = graph.call_function(operator.add, tuple(values[v] for v in node.inputs if v is not None))
        elif node.op_type == "GlobalAveragePool":
            made = graph.call_function(functional.adaptive_avg_pool2d, (x, 1))
        elif node.op_type == "Reshape":
            made = graph.call_function(torch.flatten, (x, 1))
        else:
            raise ValueError(f"{node.op_type} is none of the operators of EfficientNet-Lite and ResNet")
        values[node.outputs[0]] = made
    graph.output(values[model.graph.outputs[0]])
    traced = fx.GraphModule(modules, graph)
    # As a module of its own class, with the code that fx wrote: NNCF takes no GraphModule.
    network = type("Network", (nn.Module,), {"forward": type(traced).forward})()
    for name, layer in traced.named_children():
        network.add_module(name, layer)
    return network.eval()


def _layer(graph: Any, node: ir.Node, x: Any) -> tuple[Any, Any]:
    import torch
    from torch import nn
    from torch.nn import functional

    weights, bias = (torch.tensor(_array(node.inputs[index])) for index in (1, 2))
    if node.op_type == "Gemm":
        weights = weights if int_of(node, "transB", 0) else weights.T
        layer: Any = nn.Linear(weights.shape[1], len(weights))
    else:
        top, left, bottom, right = ints_of(node, "pads", [0] * 4)
        even = (top, left) == (bottom, right)
        if not even:
            x = graph.call_function(functional.pad, (x, (left, right, top, bottom)))
        groups = int_of(node, "group", 1)
        layer = nn.Conv2d(
            weights.shape[1] * groups,
            len(weights),
            tuple(weights.shape[2:]),
            stride=tuple(ints_of(node, "strides", [1, 1])),
            padding=(top, left) if even else 0,
            groups=groups,
        )
    layer.weight.data, layer.bias.data = weights, bias
    return x, layer


def _array(value: ir.Value | None) -> Any:
    array = array_of(value)
    assert array is not None
    return array


def estimate_statistics(module: Any, pictures: Sequence[Any]) -> None:
    """Take the batch norms' statistics anew, as means over batches of pictures."""
    import torch
    from torch import nn

    norms = [each for each in module.modules() if isinstance(each, nn.BatchNorm2d)]
    for each in norms:
        each.reset_running_stats()
        each.momentum = None
        each.train()
    with torch.no_grad():
        for batch in torch.cat(list(pictures)).split(8):
            module(batch)
    for each in norms:
        each.eval()


def put_norms_back(module: Any, pictures: Sequence[Any]) -> None:
    """Give the batch norms the statistics of what they read, and the scale and shift that undo them."""
    import torch
    from torch import nn

    handles = []

    def undo(norm: Any, given: tuple[Any]) -> None:
        x = given[0]
        norm.running_mean.copy_(x.mean((0, 2, 3)))
        norm.running_var.copy_(x.var((0, 2, 3)))
        norm.weight.data = (norm.running_var + norm.eps).sqrt()
        norm.bias.data = norm.running_mean.clone()

    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            handles.append(each.register_forward_pre_hook(undo))
    with torch.no_grad():
        module(torch.cat(list(pictures)))
    for handle in handles:
        handle.remove()


def multiplications(module: Any, picture: Any) -> int:
    """Of its Conv2d and Linear, for one picture, as they are multiplied: zeros count."""
    import torch
    from torch import nn

    counts: list[int] = []

    def count(layer: Any, _: object, y: Any) -> None:
        counts.append(y.numel() * layer.weight[0].numel())

    handles = [
        each.register_forward_hook(count)
        for each in module.modules()
        if isinstance(each, nn.Conv2d | nn.Linear)
    ]
    with torch.no_grad():
        module(picture)
    for handle in handles:
        handle.remove()
    return sum(counts)
