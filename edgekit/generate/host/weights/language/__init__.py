"""Weights of language models as integers in blocks."""

from edgekit.compiler.quantize.language.decoder_weights import quantize_decoder

__all__ = ["quantize_decoder"]
