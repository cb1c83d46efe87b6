"""Encoder-decoders from any source: sizes and form, weights, and the float reference."""
