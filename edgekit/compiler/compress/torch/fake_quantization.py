"""Fake quantization by a target's own placement: what is trained is what its int8 computes.

The graph that runs is the one that a build would compile, with Q/DQ pairs at the activations
(:class:`~edgekit.compiler.compress.int8_placement.Int8Placement`). Weights are rounded as int8 does, at each
run, and their gradient passes the rounding as it is. Scales of activations are parameters, and zero points
where they are neither 0 nor an end of the range.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from edgekit.compiler.compress.int8_placement import Int8Placement, place_int8
from edgekit.compiler.compress.torch.graph_program import Tensor
from edgekit.compiler.compress.torch.onnx_module import OnnxModule
from edgekit.compiler.importers.contract import ImportOptions
from edgekit.compiler.importers.conversion import as_source, open_source_model
from edgekit.compiler.model.node_checks import static_dims
from edgekit.compiler.model.onnx_file import save_model
from edgekit.compiler.passes import run_passes
from edgekit.compiler.quantize.numerics import stored_range
from edgekit.compiler.quantize.placement.float_weights import with_float_weights
from edgekit.compiler.quantize.recipe import Affine
from edgekit.errors import UsageError
from edgekit.tensor_spec import Array

ZERO_POINT_STEPS = 32.0
"""A step of Adam changes a parameter by about the learning rate: a thousand of 0.001 at most this."""


class FakeQuantizedModule(OnnxModule):
    """A network whose values and weights are rounded where a target's int8 rounds them.

    Args:
        placement: From :func:`~edgekit.compiler.compress.int8_placement.place_int8`.
        scales: Scales, in the form that :class:`~edgekit.compiler.compress.torch.onnx_module.OnnxModule` has
            them.
    """

    def __init__(
        self,
        placement: Int8Placement,
        *,
        scales: Mapping[str, float] | None = None,
    ) -> None:
        graph = placement.training_graph()
        super().__init__(graph, scales=scales)
        self.placement = placement
        for name in placement.products:
            self.hook(name, _Rounded(placement, name))
        self._learned: dict[str, LearnedScale] = {}
        constants, zeros = _pair_constants(graph, 1), _pair_constants(graph, 2)
        self._zeros: dict[str, LearnedZeroPoint] = {}
        for key, values in placement.scales.items():
            places = [constants[value] for value in values if value in constants]
            if places:
                self._learned[key] = LearnedScale(placement.plan.activations[key].scale)
                for place in places:
                    self.hook(place, self._learned[key])
            if places and key in placement.zero_points and all(value in zeros for value in values):
                self._zeros[key] = LearnedZeroPoint(placement.plan.activations[key])
                for place in dict.fromkeys(zeros[value] for value in values):
                    self.hook(place, self._zeros[key])

    def write_back(self) -> ir.Model:
        """Return the Q/DQ graph with the current weights and scales: ``--precision int8`` compiles it as it
        is, with these scales."""
        trained = {name: tensor.detach().numpy() for name, tensor in self.weights().items()}
        scales = {key: parameter.array() for key, parameter in self._learned.items()}
        zeros = {key: parameter.array() for key, parameter in self._zeros.items()}
        return self.placement.quantized(trained, scales, zeros)


class FakeQuantized(torch.nn.Module):  # type: ignore[misc]  # torch's types are not loaded
    """A network with fake quantization, called as a module of PyTorch: what :func:`fake_quantize` makes.

    Args:
        graph: The network; its inputs and outputs have a batch of 1.
    """

    def __init__(self, graph: FakeQuantizedModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *inputs: Tensor) -> Any:
        """Run a batch of any size.

        Args:
            inputs: In the order of the model's inputs: ``[batch, ...]``.

        Returns:
            ``[batch, ...]``: a tensor, or of several outputs a dictionary by name.
        """
        graph_inputs = self.graph.model.graph.inputs
        feeds = {str(value.name): x.unsqueeze(1) for value, x in zip(graph_inputs, inputs, strict=True)}
        outputs = {name: y.flatten(0, 1) for name, y in self.graph(feeds).items()}
        return outputs if len(outputs) > 1 else next(iter(outputs.values()))

    def to_onnx(self) -> bytes:
        """Return an ONNX file with Q/DQ pairs: ``edgekit.build(..., precision="int8")`` compiles it as it
        is."""
        return save_model(self.graph.write_back())


def fake_quantize(module: Any, target: str, samples: Sequence[Any]) -> FakeQuantized:
    """Return a module that rounds values and weights where a target's int8 rounds them, for training.

        quantized = fake_quantize(module, "tflite", samples)
        ...                                         # train quantized: its parameters() are new
        Path("model.onnx").write_bytes(quantized.to_onnx())
        edgekit.build("model.onnx", targets=["tflite"], precision="int8")

    The network is the one that EdgeKit compiles: batch norms are folded into the layers before them, and keep
    their statistics. Scales begin as the ranges of the samples.

    Args:
        module: A ``torch.nn.Module``, or another model that ``edgekit.build`` takes. It is not changed.
        samples: Arguments of the module, each a tensor or a tuple of them with a batch of 1; for other
            models arrays by input name. 16 or more.

    Raises:
        MissingDependency: onnxscript is not installed.
        UsageError: there are no samples, their batch is not 1, or the target has no int8 for this model.
        ProfileError: the target does not exist.
        UnsupportedError: PyTorch cannot run a node of the model here.
        ModelError, SampleError: the model, or a sample, cannot be used.
    """
    if not len(samples):
        raise UsageError("fake_quantize needs 16 or more samples: arguments that the module is called with")
    named = isinstance(samples[0], Mapping)
    options = ImportOptions(example_inputs=None if named else _tensors(samples[0]))
    opened, _ = open_source_model(as_source(module), None, options)
    run_passes(opened)
    model = with_float_weights(opened)
    shapes = {
        str(value.name): static_dims(value) or () for value in [*model.graph.inputs, *model.graph.outputs]
    }
    other = next((name for name, shape in shapes.items() if shape[:1] != (1,)), None)
    if other is not None:
        raise UsageError(f"{other} has shape {shapes[other]}: samples must have a batch of 1")
    names = [str(value.name) for value in model.graph.inputs]
    feeds = samples if named else [_feed(names, _tensors(sample)) for sample in samples]
    return FakeQuantized(FakeQuantizedModule(place_int8(model, target, feeds)))


def _tensors(sample: Any) -> tuple[Tensor, ...]:
    return (sample,) if isinstance(sample, torch.Tensor) else tuple(sample)


def _feed(names: Sequence[str], sample: Sequence[Tensor]) -> dict[str, Array]:
    return {name: x.detach().cpu().numpy() for name, x in zip(names, sample, strict=True)}


class LearnedScale(torch.nn.Module):  # type: ignore[misc]  # torch's types are not loaded
    """A scale as the parameter log(scale): it stays positive, and a step changes it by a share of itself.

    Args:
        scale: float32, [] or [channels].
    """

    def __init__(self, scale: Array) -> None:
        super().__init__()
        self.log = torch.nn.Parameter(torch.tensor(np.log(scale), dtype=torch.float32))
        self.register_buffer("first", torch.from_numpy(np.array(scale, np.float32)))
        self.register_buffer("first_log", self.log.detach().clone())

    def forward(self, constant: Tensor) -> Tensor:
        return self.first * torch.exp(
            self.log - self.first_log
        )  # exactly the first scale until it is trained

    def array(self) -> Array:
        values: Array = self.forward(self.first).detach().numpy()
        return values


class LearnedZeroPoint(torch.nn.Module):  # type: ignore[misc]  # torch's types are not loaded
    """A zero point as a parameter: how far it is from the first one, in ZERO_POINT_STEPS.

    It is rounded as it is read, with the gradient of the identity (LSQ+, arXiv 2004.09576).

    Args:
        affine: With one zero point.
    """

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self._ends, self._dtype = stored_range(affine.dtype), affine.zero_point.dtype
        self.register_buffer("first", torch.tensor(float(affine.zero_point)))
        self.zero_point_shift = torch.nn.Parameter(torch.zeros(()))

    def forward(self, constant: Tensor) -> Tensor:
        place = torch.clamp(self.first + ZERO_POINT_STEPS * self.zero_point_shift, *map(float, self._ends))
        return place.round().detach() + (place - place.detach())

    def array(self) -> Array:
        return np.asarray(self.forward(self.first).detach().numpy(), self._dtype)


class _Rounded:
    """Weights as int8 multiplies by them; the gradient is that of the weights themselves."""

    def __init__(self, placement: Int8Placement, name: str) -> None:
        self._placement, self._name = placement, name

    def __call__(self, weights: Tensor) -> Any:
        rounded = self._placement.rounded(self._name, weights.detach().numpy())
        return torch.from_numpy(rounded) + (weights - weights.detach())


def _pair_constants(graph: ir.Model, index: int) -> dict[str, str]:
    """Map each value that has a pair to the name of its scale (1) or zero point (2)."""
    suffix = "/quantized"
    return {
        str(node.outputs[0].name).removesuffix(suffix): str(value.name)
        for node in graph.graph
        if node.op_type == "QuantizeLinear"
        for value in node.inputs[index : index + 1]
        if value is not None
    }


class SeveralTargets(torch.nn.Module):  # type: ignore[misc]  # torch's types are not loaded
    """The targets share the weights; each has scales of its own.

    Args:
        placements: Target -> where its int8 rounds in the same network.
        scales: Scales, in the form that :class:`~edgekit.compiler.compress.torch.onnx_module.OnnxModule` has
            them.
    """

    def __init__(
        self, placements: Mapping[str, Int8Placement], *, scales: Mapping[str, float] | None = None
    ) -> None:
        super().__init__()
        self.targets = tuple(placements)
        modules = [FakeQuantizedModule(placement, scales=scales) for placement in placements.values()]
        first = dict(zip(modules[0].trained, modules[0]._parameters_of, strict=True))
        for other in modules[1:]:
            for index, name in enumerate(other.trained):
                # A rewrite for one target may have changed a weight; that one has its own.
                if name in first and first[name].shape == other._parameters_of[index].shape:
                    other._parameters_of[index] = first[name]
        self.parts = torch.nn.ModuleList(modules)

    def forward(self, feeds: Mapping[str, Tensor], values: Sequence[str] = ()) -> dict[str, Tensor]:
        """Run a batch: the first part of it as the first target computes, and so on.

        Args:
            feeds: Every input by name: ``[batch, *its shape]``.
        """
        count = len(next(iter(feeds.values())))
        ends = [count * number // len(self.parts) for number in range(len(self.parts) + 1)]
        outputs: list[dict[str, Tensor]] = [
            part({name: x[begin:end] for name, x in feeds.items()}, values)
            for part, begin, end in zip(self.parts, ends, ends[1:], strict=False)
            if end > begin
        ]
        return {name: torch.cat([output[name] for output in outputs]) for name in outputs[0]}

    def quantized(self) -> dict[str, ir.Model]:
        return {name: part.write_back() for name, part in zip(self.targets, self.parts, strict=True)}
