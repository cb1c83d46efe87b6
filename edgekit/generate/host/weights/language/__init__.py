"""Weights of language models as integers in blocks."""

from edgekit.generate.host.weights.language.decoder_weights import quantize_decoder

__all__ = ["quantize_decoder"]
