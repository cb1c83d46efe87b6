"""Weights of language models as integers in blocks."""

from edgekit.quantize.language.quantize_decoder import quantize_decoder

__all__ = ["quantize_decoder"]
