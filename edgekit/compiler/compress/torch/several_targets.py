"""One network with the rounding of several targets: each runs a part of every batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir
import torch

from edgekit.compiler.compress.int8_placement import Int8Placement
from edgekit.compiler.compress.torch.fake_quantization import FakeQuantizedModule
from edgekit.compiler.compress.torch.graph_program import Tensor


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
            values: Other values to return.
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
        """Return target -> its Q/DQ graph with the current weights and scales."""
        return {name: part.write_back() for name, part in zip(self.targets, self.parts, strict=True)}
