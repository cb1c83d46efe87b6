"""Weights of language models as integers in blocks."""
