"""Quantization of encoder-decoders."""
