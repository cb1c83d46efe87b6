"""An ONNX graph as a ``torch.nn.Module``: it runs the graph itself, and its weights are the parameters.

Where other training goes in, e.g. fake quantization:

- ``hook(name, transform)``: ``transform(tensor) -> tensor`` of a value by its name. An input of the graph or
  a node's output: after it is made, so that all readers, and the graph's outputs, see the result. A weight or
  another initializer: before it is read; its gradient goes through the transform to the parameter.
- ``hook((node, index), transform)``: of what one node reads as its input ``index``; a node's name is that of
  its first output, as in :class:`edgekit.compiler.quantize.recipe.QuantizationPlan`. Other readers see the
  value as it is.
- A transform that is a ``torch.nn.Module`` is registered: its parameters are among ``module.parameters()``.

A transform of a value runs for each sample inside of ``torch.func.vmap``: a tensor has the value's own shape,
no batch, may not be changed in place, and nothing may depend on its numbers (no ``item()``, no running
ranges; scales come from the calibration, or are parameters). Transforms of initializers by name run once a
batch, outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

# These fill the table.
from edgekit.compiler.compress.torch import ops_elementwise, ops_products, ops_reduce, ops_shape  # noqa: F401
from edgekit.compiler.compress.torch.graph_program import GraphProgram, Tensor, constant, lower
from edgekit.compiler.compress.torch.trained_weights import trained_weights
from edgekit.compiler.lowering.op_table import open_shapes
from edgekit.compiler.model.rewriting import array_of, opset_of
from edgekit.diagnostics import Finding
from edgekit.errors import UnsupportedError, UsageError
from edgekit.tensor_spec import Array

Transform = Callable[[Tensor], Tensor]
Place = str | tuple[str, int]
"""A value by its name, or what a node reads: (name of its first output, index of the input)."""


class OnnxModule(torch.nn.Module):  # type: ignore[misc]  # torch's types are not loaded
    """A canonical graph with static shapes, on the CPU, in float32.

    Args:
        model: Opened, and after ``run_passes``. It is not changed.
        scales: Weight -> s: the parameter is s times the weight. For the first layer the size of the input,
            e.g. 128 for pixels of 0 to 255: Adam's steps have the same size for every weight, and a step in
            the first layer then counts 128 times less.

    Attributes:
        trained: Names of the weights that are parameters, in the order of ``weights()``.

    Raises:
        UnsupportedError: PyTorch cannot run some nodes here; all are named.
        UsageError: a weight is not float32.
    """

    def __init__(
        self,
        model: ir.Model,
        *,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.trained = tuple(trained_weights(model))
        program = GraphProgram()
        findings = open_shapes(model, "PyTorch") or lower.lower(
            program, model.graph, opset_of(model.opset_imports.items())
        )
        if findings:
            raise UnsupportedError(_refusal(findings), findings)
        self._steps = program.steps
        self._inputs = [str(value.name) for value in model.graph.inputs]
        self._outputs = [str(value.name) for value in model.graph.outputs]
        self._scales = {name: float(s) for name, s in (scales or {}).items() if name in self.trained}
        self._constants: dict[str, Tensor] = {}
        self._parameters_of = torch.nn.ParameterList()
        arrays = {str(name): array_of(value) for name, value in model.graph.initializers.items()}
        for name in self.trained:
            array = arrays[name]
            assert array is not None
            if array.dtype != np.float32:
                raise UsageError(f"weight {name} is {array.dtype}; training needs a float32 model")
            self._parameters_of.append(torch.nn.Parameter(constant(array) * self._scales.get(name, 1.0)))
        for name, array in arrays.items():
            if array is not None and name not in self.trained:
                self._constants[name] = constant(array)
        self._at_values: dict[str, Transform] = {}
        self._at_reads: dict[tuple[str, int], Transform] = {}
        self._hooked = torch.nn.ModuleList()

    def hook(self, place: Place, transform: Transform) -> None:
        """Transform a value, or what one node reads; see the module's text.

        Raises:
            KeyError: the graph has no such value or node, or it has a transform already.
        """
        places: Collection[Any]
        if isinstance(place, str):
            places = {
                *self._inputs,
                *self._constants,
                *self.trained,
                *(n for s in self._steps for n in s.outputs),
            }
            transforms: Any = self._at_values
        else:
            places = {(step.outputs[0], index) for step in self._steps for index in range(len(step.inputs))}
            transforms = self._at_reads
        if place not in places or place in transforms:
            raise KeyError(place)
        transforms[place] = transform
        if isinstance(transform, torch.nn.Module):
            self._hooked.append(transform)

    def weights(self) -> dict[str, Tensor]:
        """Return the weights as the graph has them, by name: parameters over their scale, without
        transforms."""
        pairs = zip(self.trained, self._parameters_of, strict=True)
        return {name: p / self._scales[name] if name in self._scales else p for name, p in pairs}

    def parameter(self, name: str) -> Tensor:
        return self._parameters_of[self.trained.index(name)]

    def forward(self, feeds: Mapping[str, Tensor], values: Sequence[str] = ()) -> dict[str, Tensor]:
        """Run a batch.

        Args:
            feeds: Every input by name: ``[batch, *its shape]``, of its dtype.

        Returns:
            Outputs and wanted values by name: ``[batch, *their shape]``.
        """
        constants = {**self._constants, **self.weights()}
        for name, transform in self._at_values.items():
            if name in constants:
                constants[name] = transform(constants[name])
        names = list(dict.fromkeys([*self._outputs, *values]))

        def one(sample: Mapping[str, Tensor]) -> dict[str, Tensor]:
            return self._run_sample(sample, constants, names)

        outputs: dict[str, Tensor] = torch.func.vmap(one)({name: feeds[name] for name in self._inputs})
        return outputs

    def write_back(self) -> ir.Model:
        copy = self.model.clone()
        for name, tensor in self.weights().items():
            array: Array = tensor.detach().numpy().copy()
            copy.graph.initializers[name].const_value = ir.tensor(array, name=name)
        return copy

    def _run_sample(
        self, sample: Mapping[str, Tensor], constants: Mapping[str, Tensor], names: Sequence[str]
    ) -> dict[str, Tensor]:
        values = dict(constants)
        for name, tensor in sample.items():
            values[name] = self._transformed(name, tensor)
        for step in self._steps:
            read = [None if name is None else values[name] for name in step.inputs]
            if self._at_reads:
                for index, tensor in enumerate(read):
                    transform = self._at_reads.get((step.outputs[0], index))
                    if transform is not None and tensor is not None:
                        read[index] = transform(tensor)
            outputs = step.function(*read)
            if isinstance(outputs, tuple | list):
                for name, tensor in zip(step.outputs, outputs, strict=True):
                    values[name] = self._transformed(name, tensor)
            else:
                values[step.outputs[0]] = self._transformed(step.outputs[0], outputs)
        return {name: values[name] for name in names}

    def _transformed(self, name: str, tensor: Tensor) -> Tensor:
        transform = self._at_values.get(name)
        return tensor if transform is None else transform(tensor)


def _refusal(findings: Sequence[Finding]) -> str:
    many = f"{len(findings)} nodes" if len(findings) > 1 else "a node"
    lines = [f"PyTorch cannot run {many} of the model here, so it cannot be trained"]
    return "\n".join([*lines, *(f"  {finding.node}: {finding.message}" for finding in findings)])
