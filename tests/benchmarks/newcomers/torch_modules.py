"""Makers of PyTorch rows: a module with random weights, settled, saved in the form that a user chooses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.newcomers.rows import Made, Row

SAMPLES = 2


def image(size: int = 96, channels: int = 3) -> Callable[[], tuple[Any, ...]]:
    """Return a maker of a picture-like input: smooth values around 0."""

    def make() -> tuple[Any, ...]:
        import torch

        coarse = torch.randn(1, channels, 8, 8)
        return (torch.nn.functional.interpolate(coarse, size=(size, size), mode="bilinear"),)

    return make


def noise(*shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        import torch

        return tuple(torch.randn(shape) for shape in shapes)

    return make


def module_row(
    framework: str,
    name: str,
    module: Callable[[], Any],
    inputs: Callable[[], Any],
    form: str = ".pt2",
    **rest: Any,
) -> Row:
    """Return a row of a module; ``inputs`` makes its arguments, as a tuple or by name."""

    def make(folder: Path) -> Made:
        import torch

        torch.manual_seed(0)
        made = module()
        examples = [inputs() for _ in range(SAMPLES)]
        settle(made, examples[0])
        answers = [outputs(made, example) for example in examples]
        samples = [arrays(example) for example in examples]
        if form == "Python":
            return Made(made, samples, answers, examples[0])
        path = folder / f"model{form.split(' ')[0]}"
        save(made, examples[0], path, form)
        return Made(path, samples, answers)

    return Row(name, framework, make, form, **rest)


def save(module: Any, example: Any, path: Path, form: str) -> None:
    import torch

    if form == ".pt2":
        torch.export.save(torch.export.export(module, example), path)
    elif form == ".pt, TorchScript":
        torch.jit.save(torch.jit.trace(module, example), path)
    elif form == ".pth, pickle":
        torch.save(module, path)
    elif form == ".pth, state dict":
        torch.save(module.state_dict(), path)
    elif form == ".onnx, dynamic":
        names = [f"x{k}" for k in range(len(example))]
        dynamic = {name: {0: "batch", 2: "height", 3: "width"} for name in names}
        torch.onnx.export(
            module, example, path, dynamo=False, input_names=names, dynamic_axes=dynamic, opset_version=17
        )
    else:
        assert form == ".onnx", form
        torch.onnx.export(module, example, path, dynamo=True, verbose=False)


def settle(module: Any, example: Any) -> None:
    """Set the statistics of batch normalization from noise, so that values neither vanish nor explode."""
    import torch

    norms = [part for part in module.modules() if isinstance(part, torch.nn.modules.batchnorm._BatchNorm)]
    module.eval()
    if not norms or not all(isinstance(item, torch.Tensor) for item in example):
        return
    many = tuple(
        torch.cat([item, *(torch.randn_like(item) for _ in range(3))]) if item.is_floating_point() else item
        for item in example
    )
    for norm in norms:
        norm.train()
        norm.momentum = None
    with torch.no_grad():
        module(*many)
    module.eval()


def outputs(module: Any, example: Any) -> list[Any]:
    import torch

    with torch.no_grad():
        result = module(**example) if isinstance(example, Mapping) else module(*example)
    leaves = torch.utils._pytree.tree_leaves(result)
    return [leaf.numpy().copy() for leaf in leaves if isinstance(leaf, torch.Tensor)]


def arrays(example: Any) -> Any:
    if isinstance(example, Mapping):
        return {name: np.asarray(value) for name, value in example.items()}
    return [np.asarray(value) for value in example]
