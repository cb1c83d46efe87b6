"""Decoders of language models as ONNX graphs, in the forms that engines are fast with."""

from edgekit.generate.host.graphs.language.block_weights import BlockWeights

__all__ = ["BlockWeights"]
