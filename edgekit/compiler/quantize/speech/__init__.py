"""Quantization of speech models."""
