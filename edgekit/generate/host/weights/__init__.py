"""Quantization of the weights of models that write tokens."""
